CREATE TABLE job_progress (
    reported_at TIMESTAMPTZ NOT NULL,
    label_id VARCHAR NOT NULL,
    done_ratio DOUBLE NOT NULL,
    PRIMARY KEY (reported_at, label_id)
);
