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
