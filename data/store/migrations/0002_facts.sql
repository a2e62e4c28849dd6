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
CREATE TABLE five_minute (
    slot_start TIMESTAMPTZ NOT NULL,
    gpu_uuid VARCHAR NOT NULL,
    mig_instance VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    holder VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    gpu_index VARCHAR NOT NULL,
    gpu_model VARCHAR NOT NULL,
    mig_profile VARCHAR NOT NULL,
    seconds DOUBLE NOT NULL,
    board_seconds DOUBLE NOT NULL,
    used_board_seconds DOUBLE NOT NULL,
    known_board_seconds DOUBLE NOT NULL,
    joules DOUBLE,
    joules_by_slices DOUBLE,
    joules_by_activity DOUBLE,
    counter_joules DOUBLE,
    power_joules DOUBLE,
    power_joules_beside_counter DOUBLE,
    samples BIGINT NOT NULL,
    sample_weight DOUBLE NOT NULL,
    shared_samples BIGINT NOT NULL,
    jumps BIGINT NOT NULL,
    utilization_sum DOUBLE,
    utilization_samples BIGINT NOT NULL,
    utilization_max DOUBLE,
    signal VARCHAR NOT NULL,
    memory_max_mib DOUBLE,
    memory_total_mib DOUBLE,
    power_sum DOUBLE,
    power_samples BIGINT NOT NULL,
    power_weight DOUBLE NOT NULL,
    last_at TIMESTAMPTZ
);
CREATE TABLE hourly AS SELECT * FROM five_minute;
CREATE TABLE dirty_hours (hour_start TIMESTAMPTZ PRIMARY KEY);
CREATE TABLE retained (resolution VARCHAR PRIMARY KEY, since TIMESTAMPTZ NOT NULL);
INSERT INTO dirty_hours
    SELECT DISTINCT to_timestamp(floor(epoch(sampled_at) / 3600) * 3600) FROM samples;
