"""Activity of devices: a row a device and five minutes, read by job.

A row counts for a job that held the device alone and for at least 80 % of the slot.
"""

from __future__ import annotations

from data.base.units import SLOT_SECONDS
from data.facts.columns import ACTIVITY
from data.store.facts.samples_sql import HEALTH_NAMES, HEALTH_VALUES, WINDOW

ACTIVITY_KEY = ("slot_start", "gpu_uuid", "mig_instance")
_WHOLE = 0.8
_MEANS = ", ".join(
    # A mean over boards is unknown where one of them does not tell.
    f"CASE WHEN count({name}) = count(*) THEN avg({name}) END AS {name}"
    for name in ACTIVITY.names
    if name not in ACTIVITY_KEY
)
PLACES = f"""
places AS (
    SELECT gpu_uuid, arg_max(node, last_at) AS node, arg_max(gpu_index, last_at) AS gpu_index
    FROM five_minute WHERE {WINDOW} AND samples > 0 GROUP BY gpu_uuid
)"""  # noqa: S608
"""Node and index of each board at its newest reading of a window."""
BY_JOB = f"""
WITH held AS (
    SELECT slot_start, gpu_uuid, mig_instance, job_id FROM five_minute
    WHERE slot_start >= :start AND slot_start < :end AND holder = 'job' AND shared_samples = 0
        AND seconds >= {_WHOLE * SLOT_SECONDS}
), told AS (
    SELECT held.job_id, coalesce(a.sm_active, a.power_ratio) AS work, a.*
    FROM held JOIN board_activity AS a ON a.slot_start = held.slot_start
        AND a.gpu_uuid = held.gpu_uuid AND a.mig_instance = held.mig_instance
)
SELECT job_id, slot_start, count(*)::BIGINT AS boards, {_MEANS},
    CASE WHEN count(work) = count(*) AND max(work) > 0
        THEN 1 - avg(work) / max(work) END AS behind,
    CASE WHEN count(work) = count(*) AND max(work) > 0
        THEN 1 - min(work) / max(work) END AS spread
FROM told GROUP BY job_id, slot_start ORDER BY job_id, slot_start
"""  # noqa: S608 - only constants of this package are put together


_UNHEALTHY = (
    "throttled_ratio >= :throttled OR remap_failed > 0 OR uncorrected_errors > 0 "
    "OR temperature_celsius >= :hot OR memory_temperature_celsius >= :hot_memory"
)
UNHEALTHY_BOARDS = f"""
WITH health AS (
    SELECT gpu_uuid, {HEALTH_VALUES} FROM board_activity WHERE {WINDOW} GROUP BY gpu_uuid
), unwell AS (
    SELECT * FROM health WHERE {_UNHEALTHY}
), first_slots AS (
    SELECT gpu_uuid, min(slot_start) AS unwell_at FROM board_activity
    WHERE slot_start >= :day_before AND slot_start < :end AND ({_UNHEALTHY})
        AND gpu_uuid IN (SELECT gpu_uuid FROM unwell) GROUP BY gpu_uuid
), models AS (
    SELECT gpu_uuid, arg_max(gpu_model, last_at) AS gpu_model FROM five_minute
    WHERE {WINDOW} AND samples > 0 GROUP BY gpu_uuid
    HAVING 4 * sum(used_board_seconds) >= sum(board_seconds)
), peers AS (
    SELECT gpu_model, sum(temperature_celsius) AS heat, count(temperature_celsius) AS boards
    FROM health JOIN models ON models.gpu_uuid = health.gpu_uuid GROUP BY gpu_model
), {PLACES}
SELECT unwell.gpu_uuid, node, gpu_index, unwell_at,
    (heat - temperature_celsius) / nullif(boards - 1, 0) AS peers_celsius, {HEALTH_NAMES}
FROM unwell JOIN places ON places.gpu_uuid = unwell.gpu_uuid
    LEFT JOIN first_slots ON first_slots.gpu_uuid = unwell.gpu_uuid
    LEFT JOIN models ON models.gpu_uuid = unwell.gpu_uuid
    LEFT JOIN peers ON peers.gpu_model = models.gpu_model
ORDER BY node, gpu_index, unwell.gpu_uuid
"""  # noqa: S608
