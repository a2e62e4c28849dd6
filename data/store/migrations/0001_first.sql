CREATE TABLE samples (
    sampled_at TIMESTAMPTZ NOT NULL,
    gpu_uuid VARCHAR NOT NULL,
    mig_instance VARCHAR NOT NULL,
    mig_profile VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    gpu_model VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    utilization_ratio DOUBLE,
    utilization_signal VARCHAR NOT NULL,
    memory_used_mib DOUBLE,
    memory_total_mib DOUBLE,
    power_watts DOUBLE,
    energy_joules DOUBLE,
    batch_id VARCHAR NOT NULL
);
CREATE TABLE batches (
    batch_id VARCHAR PRIMARY KEY,
    sequence BIGINT NOT NULL,
    source VARCHAR NOT NULL,
    row_count BIGINT NOT NULL,
    report VARCHAR NOT NULL
);
CREATE TABLE jobs (
    job_id VARCHAR PRIMARY KEY,
    last_seen_at TIMESTAMPTZ NOT NULL,
    record VARCHAR NOT NULL
);
CREATE TABLE cycles (
    cycle_id VARCHAR PRIMARY KEY,
    sequence BIGINT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ NOT NULL,
    plan_id VARCHAR NOT NULL,
    forecast_count BIGINT NOT NULL,
    skipped_count BIGINT NOT NULL,
    recommendation_count BIGINT NOT NULL
);
CREATE TABLE plans (
    plan_id VARCHAR PRIMARY KEY,
    cycle_id VARCHAR NOT NULL,
    record VARCHAR NOT NULL
);
CREATE TABLE forecasts (
    cycle_id VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    skipped BOOLEAN NOT NULL,
    record VARCHAR NOT NULL
);
CREATE TABLE recommendations (
    digest VARCHAR PRIMARY KEY,
    cycle_id VARCHAR NOT NULL,
    plan_id VARCHAR NOT NULL,
    record VARCHAR NOT NULL
);
CREATE TABLE decisions (
    sequence BIGINT PRIMARY KEY,
    digest VARCHAR NOT NULL,
    decision VARCHAR NOT NULL,
    decided_by VARCHAR NOT NULL,
    decided_at TIMESTAMPTZ NOT NULL,
    remark VARCHAR NOT NULL
);
CREATE TABLE audit (
    sequence BIGINT PRIMARY KEY,
    entry_at TIMESTAMPTZ NOT NULL,
    actor VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    detail VARCHAR NOT NULL,
    previous_hash VARCHAR NOT NULL,
    entry_hash VARCHAR NOT NULL
);
