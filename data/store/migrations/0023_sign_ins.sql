CREATE TABLE sign_ins (
    id_hash VARCHAR PRIMARY KEY,
    issuer VARCHAR NOT NULL,
    subject VARCHAR NOT NULL,
    provider_session VARCHAR NOT NULL,
    person VARCHAR NOT NULL,
    groups VARCHAR NOT NULL,
    ends_at TIMESTAMPTZ NOT NULL
);
