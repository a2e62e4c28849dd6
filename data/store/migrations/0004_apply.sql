ALTER TABLE decisions ADD COLUMN change_digest VARCHAR DEFAULT '';
ALTER TABLE decisions ADD COLUMN person VARCHAR DEFAULT '';
ALTER TABLE decisions ADD COLUMN entry BIGINT DEFAULT 0;
ALTER TABLE audit ADD COLUMN covers VARCHAR DEFAULT '';
ALTER TABLE audit ADD COLUMN row_digest VARCHAR DEFAULT '';
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
INSERT INTO cursors SELECT 'notified', coalesce(max(sequence), 0) FROM audit;
