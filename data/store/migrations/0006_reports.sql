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
