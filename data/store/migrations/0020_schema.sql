-- The schema of an empty store. Columns with a default were added to tables with rows.
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
    batch_id VARCHAR NOT NULL,
    gpu_index VARCHAR DEFAULT '',
    power_limit_watts DOUBLE
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
    record VARCHAR NOT NULL,
    finding BIGINT DEFAULT 0
);
CREATE TABLE decisions (
    sequence BIGINT PRIMARY KEY,
    digest VARCHAR NOT NULL,
    decision VARCHAR NOT NULL,
    decided_by VARCHAR NOT NULL,
    decided_at TIMESTAMPTZ NOT NULL,
    remark VARCHAR NOT NULL,
    change_digest VARCHAR DEFAULT '',
    person VARCHAR DEFAULT '',
    entry BIGINT DEFAULT 0
);
CREATE TABLE audit (
    sequence BIGINT PRIMARY KEY,
    entry_at TIMESTAMPTZ NOT NULL,
    actor VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    detail VARCHAR NOT NULL,
    previous_hash VARCHAR NOT NULL,
    entry_hash VARCHAR NOT NULL,
    covers VARCHAR DEFAULT '',
    row_digest VARCHAR DEFAULT ''
);
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
    source VARCHAR NOT NULL,
    start_seconds DOUBLE,
    runs VARCHAR DEFAULT ''
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
CREATE TABLE group_forecasts (
    cycle_id VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    record VARCHAR NOT NULL,
    PRIMARY KEY (cycle_id, position)
);
CREATE TABLE commands (
    sequence BIGINT PRIMARY KEY,
    entry BIGINT NOT NULL,
    command_id VARCHAR NOT NULL UNIQUE,
    kind VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    target VARCHAR NOT NULL,
    change_digest VARCHAR NOT NULL,
    person VARCHAR NOT NULL,
    asked_at TIMESTAMPTZ NOT NULL
);
CREATE TABLE journal (
    sequence BIGINT PRIMARY KEY,
    entry BIGINT NOT NULL,
    command_id VARCHAR NOT NULL,
    digest VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    step BIGINT NOT NULL,
    written_at TIMESTAMPTZ NOT NULL,
    fence BIGINT NOT NULL,
    detail VARCHAR NOT NULL,
    record VARCHAR NOT NULL
);
CREATE TABLE leases (
    command_id VARCHAR PRIMARY KEY,
    version BIGINT NOT NULL,
    owner VARCHAR NOT NULL,
    fence BIGINT NOT NULL,
    until TIMESTAMPTZ NOT NULL,
    not_before TIMESTAMPTZ NOT NULL,
    held VARCHAR NOT NULL,
    finished BOOLEAN NOT NULL
);
CREATE TABLE outbox (
    message_id VARCHAR PRIMARY KEY,
    entry BIGINT NOT NULL,
    channel VARCHAR NOT NULL,
    recipient VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    body VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    not_before TIMESTAMPTZ NOT NULL,
    claimed_until TIMESTAMPTZ NOT NULL,
    state VARCHAR NOT NULL,
    problem VARCHAR NOT NULL
);
CREATE TABLE cursors (name VARCHAR PRIMARY KEY, position BIGINT NOT NULL);
INSERT INTO cursors VALUES ('notified', 0);
CREATE TABLE submissions (
    submission_id VARCHAR PRIMARY KEY,
    sequence BIGINT NOT NULL,
    job_digest VARCHAR NOT NULL,
    is_open BOOLEAN NOT NULL,
    record VARCHAR NOT NULL
);
CREATE TABLE measured_peaks (
    family VARCHAR NOT NULL,
    job_id VARCHAR NOT NULL,
    measured_at TIMESTAMPTZ NOT NULL,
    record VARCHAR NOT NULL,
    PRIMARY KEY (family, job_id)
);
CREATE TABLE reports (
    period VARCHAR NOT NULL,
    edition VARCHAR NOT NULL,
    entry BIGINT NOT NULL,
    PRIMARY KEY (period, edition)
);
CREATE TABLE findings_told (
    owner VARCHAR NOT NULL,
    finding VARCHAR NOT NULL,
    told_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (owner, finding)
);
CREATE TABLE board_xids (
    gpu_uuid VARCHAR NOT NULL,
    xid BIGINT NOT NULL,
    node VARCHAR NOT NULL,
    gpu_index VARCHAR NOT NULL,
    first_seen_at TIMESTAMPTZ NOT NULL,
    last_seen_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (gpu_uuid, xid)
);
CREATE TABLE memory_outlooks (
    cycle_id VARCHAR NOT NULL,
    record VARCHAR NOT NULL,
    PRIMARY KEY (cycle_id)
);
CREATE TABLE findings (
    number BIGINT PRIMARY KEY,
    target VARCHAR NOT NULL,
    action VARCHAR NOT NULL,
    opened_at TIMESTAMPTZ NOT NULL
);
CREATE TABLE finding_events (
    sequence BIGINT PRIMARY KEY,
    entry BIGINT NOT NULL,
    number BIGINT NOT NULL,
    digest VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    until_at TIMESTAMPTZ,
    made_at TIMESTAMPTZ NOT NULL,
    person VARCHAR NOT NULL,
    remark VARCHAR NOT NULL
);
CREATE TABLE token_events (
    sequence BIGINT PRIMARY KEY,
    entry BIGINT NOT NULL,
    token_id VARCHAR NOT NULL,
    event VARCHAR NOT NULL,
    person VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    token_hash VARCHAR NOT NULL,
    expires_at TIMESTAMPTZ,
    made_at TIMESTAMPTZ NOT NULL,
    made_by VARCHAR NOT NULL
);
CREATE TABLE serving_slots (
    slot_start TIMESTAMPTZ NOT NULL,
    label_id VARCHAR NOT NULL,
    engine VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    address VARCHAR NOT NULL,
    running_requests DOUBLE,
    waiting_requests DOUBLE,
    kv_cache_ratio DOUBLE,
    finished_requests DOUBLE,
    prompt_tokens DOUBLE,
    generation_tokens DOUBLE,
    preemptions DOUBLE,
    first_token_seconds DOUBLE,
    first_token_count DOUBLE,
    queue_wait_seconds DOUBLE,
    queue_wait_count DOUBLE,
    request_seconds DOUBLE,
    request_count DOUBLE,
    PRIMARY KEY (slot_start, label_id, engine, model, address)
);
CREATE TABLE serving_outlooks (
    cycle_id VARCHAR NOT NULL,
    record VARCHAR NOT NULL,
    PRIMARY KEY (cycle_id)
);
CREATE TABLE prepared_answers (
    place BIGINT PRIMARY KEY,
    name VARCHAR NOT NULL,
    batch BIGINT NOT NULL,
    cycle BIGINT NOT NULL,
    made_at TIMESTAMPTZ NOT NULL,
    record VARCHAR NOT NULL
);
CREATE TABLE board_activity (
    slot_start TIMESTAMPTZ NOT NULL,
    gpu_uuid VARCHAR NOT NULL,
    mig_instance VARCHAR NOT NULL,
    engine_active DOUBLE,
    sm_active DOUBLE,
    tensor_active DOUBLE,
    dram_active DOUBLE,
    pcie_bytes_per_second DOUBLE,
    nvlink_bytes_per_second DOUBLE,
    throttled_ratio DOUBLE,
    power_ratio DOUBLE,
    fp32_active DOUBLE,
    temperature_celsius DOUBLE,
    memory_temperature_celsius DOUBLE,
    clock_mhz DOUBLE,
    uncorrected_errors DOUBLE,
    remapped_rows DOUBLE,
    remap_failed DOUBLE,
    PRIMARY KEY (slot_start, gpu_uuid, mig_instance)
);
CREATE TABLE slow_work (
    cycle_id VARCHAR NOT NULL,
    record VARCHAR NOT NULL,
    PRIMARY KEY (cycle_id)
);
CREATE TABLE quotas (
    source VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    queue VARCHAR NOT NULL,
    per VARCHAR NOT NULL,
    resource VARCHAR NOT NULL,
    flavor VARCHAR NOT NULL,
    gpu_model VARCHAR NOT NULL,
    nominal DOUBLE,
    borrowing_limit DOUBLE,
    lending_limit DOUBLE,
    used DOUBLE,
    reserved DOUBLE,
    admitted BIGINT,
    pending BIGINT,
    weight DOUBLE,
    priority BIGINT,
    preempts VARCHAR NOT NULL,
    parent VARCHAR NOT NULL,
    observed_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (source, kind, queue, per, resource, flavor)
);
CREATE TABLE workload_forecasts (
    name VARCHAR NOT NULL,
    position BIGINT NOT NULL,
    job_id VARCHAR NOT NULL,
    made_at TIMESTAMPTZ NOT NULL,
    record VARCHAR NOT NULL,
    PRIMARY KEY (name)
);
CREATE TABLE job_progress (
    reported_at TIMESTAMPTZ NOT NULL,
    label_id VARCHAR NOT NULL,
    done_ratio DOUBLE NOT NULL,
    PRIMARY KEY (reported_at, label_id)
);
