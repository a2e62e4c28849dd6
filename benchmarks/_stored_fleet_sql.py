"""SQL that makes the readings and roll-ups of a stored fleet from its boards."""

from data.base.units import SECONDS_PER_DAY

SLOT = 300
SLOTS_PER_DAY = SECONDS_PER_DAY // SLOT
SOURCE = "stored-fleet"


def _reading(slot: str, suffix: str) -> str:
    """Return SQL for what a board shows at a slot: holder's label, use, memory and power."""
    place = f"({slot} + phase)"
    held = f"({place} % period < busy)"
    noise = f"(0.8 + 0.4 * (hash(board, {slot} % {SLOTS_PER_DAY}) % 1000) / 1000)"
    wave = f"(1 + 0.3 * sin(2 * pi() * ({slot} % {SLOTS_PER_DAY}) / {SLOTS_PER_DAY} + lane))"
    used = f"CASE WHEN {held} THEN round(least(1, level * {noise} * {wave}), 3) ELSE 0.0 END"
    label = f"""CASE WHEN NOT {held} THEN ''
        WHEN service THEN namespace || '/deployment/serve-' || lane
        WHEN slurm THEN 'slurm:' || (1000000 + 1000 * lane + {place} // period - begun)
        ELSE namespace || '/job/train-' || (lane % 97) || '-' || lane || '-'
            || ({place} // period - begun) END"""
    memory = f"CASE WHEN {held} THEN 0.2 + 0.6 * (lane * 37 % 100) / 100 ELSE 0.004 END"
    return f"""{label} AS job{suffix}, {used} AS used{suffix},
        round(memory_total_mib * ({memory})) AS memory{suffix},
        round(idle + (tdp - idle) * ({used})) AS power{suffix}"""


_SLOTS = f"""
    SELECT *, {_reading("slot", "")}
    FROM range(:first, :until) AS slots(slot),
        (SELECT *, (:oldest + phase) // period AS begun FROM fleet_boards) AS boards
"""  # noqa: S608
_SIGNAL = "CASE WHEN gpu_model LIKE 'L40S%' THEN 'gpu_util' ELSE 'sm_active' END"
_HOLDER = "CASE WHEN {} = '' THEN 'free' ELSE 'job' END"

FIVE_MINUTES = f"""
INSERT INTO five_minute
WITH pairs AS (
    SELECT *, {_reading("slot", "")}, {_reading("(slot + 1)", "_next")},
        slot < :newest AS followed
    FROM range(:first, :until) AS slots(slot),
        (SELECT *, (:oldest + phase) // period AS begun FROM fleet_boards) AS boards
), parts AS (
    SELECT *, job = job_next AND followed AS whole, unnest(CASE
        WHEN job = job_next OR NOT followed THEN [true] ELSE [true, false] END) AS read
    FROM pairs
), rows AS (
    SELECT *, CASE WHEN read THEN job ELSE job_next END AS holder_job,
        CASE WHEN whole OR NOT read THEN {SLOT}.0 ELSE 0.0 END AS covered,
        CASE WHEN whole OR NOT read THEN (power + power_next) / 2 * {SLOT} ELSE 0.0 END AS energy
    FROM parts
)
SELECT to_timestamp(slot * {SLOT}), gpu_uuid, '', holder_job, {_HOLDER.format("holder_job")},
    node, gpu_index, gpu_model, '', covered, covered, covered * used_next, covered,
    energy, energy, energy, NULL, energy, NULL,
    read::BIGINT, read::BIGINT, 0, 0,
    CASE WHEN read THEN used END, read::BIGINT, CASE WHEN read THEN used END,
    CASE WHEN read THEN {_SIGNAL} ELSE '' END, CASE WHEN read THEN memory END, memory_total_mib,
    CASE WHEN read THEN power END, read::BIGINT, read::BIGINT,
    CASE WHEN read THEN to_timestamp(slot * {SLOT}) END
FROM rows
"""  # noqa: S608 - only constants of this module are put together
"""Five-minute rows of the slots in [:first, :until). A slot's reading is at its start, and the five
minutes after it belong to the holder at their end: where that one is another, there are two rows.
"""

SAMPLES_SQL = f"""
INSERT INTO samples (sampled_at, gpu_uuid, mig_instance, mig_profile, node, gpu_index, gpu_model,
    job_id, utilization_ratio, utilization_signal, memory_used_mib, memory_total_mib, power_watts,
    power_limit_watts, batch_id)
SELECT to_timestamp(slot * {SLOT}), gpu_uuid, '', '', node, gpu_index, gpu_model, job, used,
    {_SIGNAL}, memory, memory_total_mib, power, tdp, '{SOURCE}'
FROM ({_SLOTS})
"""  # noqa: S608


LATER = f"""
SELECT to_timestamp(slot * {SLOT} + 60 * minute) AS sampled_at, gpu_uuid, '' AS mig_instance,
    '' AS mig_profile, node, gpu_index, gpu_model, job AS job_id, used AS utilization_ratio,
    {_SIGNAL} AS utilization_signal, memory AS memory_used_mib, memory_total_mib,
    power AS power_watts, tdp AS power_limit_watts, NULL::DOUBLE AS energy_joules
FROM ({_SLOTS}), range({SLOT // 60}) AS minutes(minute)
"""  # noqa: S608
