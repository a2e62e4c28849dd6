CREATE TABLE group_forecasts (
    cycle_id VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    record VARCHAR NOT NULL,
    PRIMARY KEY (cycle_id, position)
);
