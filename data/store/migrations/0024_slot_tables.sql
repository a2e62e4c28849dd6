CREATE TABLE group_hours (
    slot_seconds INTEGER NOT NULL,
    kind VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    slot_start TIMESTAMPTZ NOT NULL,
    boards DOUBLE NOT NULL,
    allocated_gpus DOUBLE,
    effective_gpus DOUBLE,
    power_watts DOUBLE,
    unseen_ratio DOUBLE
);
CREATE TABLE job_slots (
    slot_seconds INTEGER NOT NULL,
    job_id VARCHAR NOT NULL,
    slot_start TIMESTAMPTZ NOT NULL,
    effective_gpus DOUBLE,
    utilization_ratio DOUBLE,
    utilization_max_ratio DOUBLE,
    allocated_gpus DOUBLE,
    memory_used_mib DOUBLE,
    power_watts DOUBLE,
    sample_count BIGINT
);
