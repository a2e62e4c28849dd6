CREATE TABLE prepared_answers (
    place BIGINT PRIMARY KEY,
    name VARCHAR NOT NULL,
    batch BIGINT NOT NULL,
    cycle BIGINT NOT NULL,
    made_at TIMESTAMPTZ NOT NULL,
    record VARCHAR NOT NULL
);
