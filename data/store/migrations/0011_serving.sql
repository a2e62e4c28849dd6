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
