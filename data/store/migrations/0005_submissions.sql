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
