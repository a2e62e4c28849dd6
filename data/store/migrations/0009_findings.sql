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
ALTER TABLE recommendations ADD COLUMN finding BIGINT DEFAULT 0;
CREATE TEMPORARY TABLE seen AS
SELECT
    digest,
    sequence,
    started_at,
    CASE WHEN (CAST(record AS JSON) ->> 'job_id') = '' THEN CAST(record AS JSON) ->> 'job_name'
         ELSE CAST(record AS JSON) ->> 'job_id' END AS target,
    CAST(record AS JSON) ->> 'action' AS action
FROM recommendations JOIN cycles USING (cycle_id);
INSERT INTO findings
SELECT row_number() OVER (ORDER BY min(sequence), target, action), target, action, min(started_at)
FROM seen GROUP BY target, action;
UPDATE recommendations SET finding = numbered.number
FROM (SELECT digest AS seen_digest, number FROM seen JOIN findings USING (target, action)) AS numbered
WHERE digest = seen_digest;
DROP TABLE seen;
