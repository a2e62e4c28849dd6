CREATE TABLE memory_outlooks (
    cycle_id VARCHAR NOT NULL,
    record VARCHAR NOT NULL,
    PRIMARY KEY (cycle_id)
);
