CREATE TABLE workload_forecasts (
    name VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    job_id VARCHAR NOT NULL,
    made_at TIMESTAMPTZ NOT NULL,
    record VARCHAR NOT NULL,
    PRIMARY KEY (name)
);
