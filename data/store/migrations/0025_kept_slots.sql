CREATE TABLE kept_slots (
    table_name VARCHAR NOT NULL,
    slot_seconds INTEGER NOT NULL,
    until TIMESTAMPTZ NOT NULL
);
INSERT INTO kept_slots
SELECT 'group_hours', slot_seconds, max(slot_start) + slot_seconds * INTERVAL '1 second'
FROM group_hours GROUP BY slot_seconds
UNION ALL
SELECT 'job_slots', slot_seconds, max(slot_start) + slot_seconds * INTERVAL '1 second'
FROM job_slots GROUP BY slot_seconds;
ALTER TABLE group_hours DROP COLUMN slot_seconds;
ALTER TABLE job_slots DROP COLUMN slot_seconds;
