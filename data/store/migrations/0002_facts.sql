ALTER TABLE samples ADD COLUMN gpu_index VARCHAR DEFAULT '';
ALTER TABLE samples ADD COLUMN power_limit_watts DOUBLE;
CREATE TABLE allocations (
    job_id VARCHAR NOT NULL,
    label_id VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    gpu_index VARCHAR NOT NULL,
    gpu_uuid VARCHAR NOT NULL,
    mig_instance VARCHAR NOT NULL,
    gpu_count DOUBLE,
    started_at TIMESTAMPTZ NOT NULL,
    ended_at TIMESTAMPTZ,
    seen_at TIMESTAMPTZ NOT NULL,
    source VARCHAR NOT NULL
);
CREATE TABLE nodes (
    name VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    seen_at TIMESTAMPTZ NOT NULL,
    record VARCHAR NOT NULL,
    PRIMARY KEY (name, source)
);
