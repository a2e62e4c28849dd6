"""Holders of the boards of a service's replicas, and hours in which all of them were read."""

OWNERS = """
SELECT unnest(CAST(:labels AS VARCHAR[])) AS label_id,
    unnest(CAST(:jobs AS VARCHAR[])) AS job_id
"""
BOARDS = f"""
WITH owners AS ({OWNERS}), holders AS (
    SELECT label_id AS held_by, job_id FROM owners UNION SELECT job_id, job_id FROM owners
), served AS (
    SELECT job_id, slot_start, count(DISTINCT label_id) AS replicas
    FROM serving_slots JOIN owners USING (label_id)
    WHERE slot_start >= :start AND slot_start < :end GROUP BY 1, 2
), held AS (
    SELECT held_by, holders.job_id, slot_start,
        count(DISTINCT gpu_uuid || '/' || mig_instance) AS boards
    FROM five_minute JOIN holders ON five_minute.job_id = held_by
    WHERE holder = 'job' AND board_seconds > 0 AND slot_start >= :start AND slot_start < :end
    GROUP BY 1, 2, 3
), slots AS (
    SELECT served.job_id, served.slot_start, replicas, coalesce(sum(boards), 0) AS boards
    FROM served LEFT JOIN held
        ON held.job_id = served.job_id AND held.slot_start = served.slot_start
    GROUP BY 1, 2, 3
), usual AS (
    SELECT job_id, percentile_cont(0.9) WITHIN GROUP (ORDER BY CAST(boards AS FLOAT8) / replicas)
        AS boards_each
    FROM slots GROUP BY 1
), hours AS (
    SELECT job_id, to_timestamp(floor(epoch(slot_start) / 3600) * 3600) AS hour_start,
        bool_and(boards >= replicas * boards_each - 0.5) AS all_read
    FROM slots JOIN usual USING (job_id) GROUP BY 1, 2
)
SELECT held_by, hours.job_id, hour_start, all_read
FROM hours JOIN (SELECT DISTINCT held_by, job_id FROM held) AS names
    ON names.job_id = hours.job_id
ORDER BY 1, 3
"""  # noqa: S608 - only constants of this module are put together
"""Replicas of a service hold as many boards each; fewer are read while their exporter is silent."""
