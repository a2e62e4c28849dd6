"""The questions of the views, as SQL over the roll-ups; samples themselves are not read.

Whole hours come from `hourly`, the ragged ends of a window from `five_minute`. Rules: a MIG
instance is one device of its job; a board's time and energy are split as `rollup_sql` says, and so
are the boards of fleet and groups, so that parts and free boards are the boards.
"""

from data.base.units import IDLE_RATIO
from data.facts.columns import SAMPLES

_ENDS = """
    (SELECT {columns} FROM hourly WHERE slot_start >= :first_hour AND slot_start < :last_hour
    UNION ALL
    SELECT {columns} FROM five_minute
    WHERE (slot_start >= :start AND slot_start < least(:first_hour, :end))
        OR (slot_start >= greatest(:last_hour, :first_hour, :start) AND slot_start < :end))
"""
_SLOT = "to_timestamp(floor(epoch(slot_start) / :slot_seconds) * :slot_seconds)"
WINDOW = "slot_start >= :start AND slot_start < :end"


def whole_slots(*columns: str) -> str:
    """Return the relation of a window's whole hours and the five minutes at its ends."""
    return _ENDS.format(columns=", ".join(columns))


JOB_FILTER = """(:job_id = '' OR job_id = :job_id)
        AND (:whenever OR job_id IN (SELECT job_id FROM jobs
            WHERE last_seen_at >= :seen_since AND last_seen_at < :seen_before))"""
JOB_HISTORY = f"""
WITH devices AS (
    SELECT job_id, gpu_uuid, mig_instance, {_SLOT} AS slot_start,
        sum(utilization_sum) / nullif(sum(utilization_samples), 0) AS utilization,
        max(utilization_max) AS largest, max(memory_max_mib) AS memory,
        sum(power_sum) / nullif(sum(power_samples), 0) AS power, sum(samples) AS samples
    FROM five_minute
    WHERE {WINDOW} AND holder = 'job' AND {JOB_FILTER}
    GROUP BY 1, 2, 3, 4 HAVING sum(samples) > 0
)
SELECT job_id, slot_start,
    CASE WHEN count(utilization) = count(*) THEN sum(utilization) END AS effective_gpus,
    CASE WHEN count(utilization) = count(*) THEN avg(utilization) END AS utilization_ratio,
    CASE WHEN count(utilization) = count(*) OR max(largest) > {IDLE_RATIO}
        THEN max(largest) END AS utilization_max_ratio,
    count(*)::FLOAT8 AS allocated_gpus,
    max(memory) AS memory_used_mib,
    CASE WHEN count(power) = count(*) THEN sum(power) END AS power_watts,
    sum(samples)::BIGINT AS sample_count
FROM devices GROUP BY job_id, slot_start ORDER BY job_id, slot_start
"""  # noqa: S608 - only constants of this module are put together
"""Sums of a job are unknown while a device of it is not read; work of others is work of it."""

NEWEST = """
SELECT sampled_at FROM samples WHERE sampled_at <= :until ORDER BY sampled_at DESC LIMIT 1
"""
"""A top-1 reads the newest rows only, where max() reads the column."""

_SLICES = """coalesce(
        CASE WHEN mig_profile ~ '^[1-7]g[.].*' THEN CAST(left(mig_profile, 1) AS FLOAT8) / 7 END,
        1.0 / count(*) OVER (PARTITION BY gpu_uuid, slot_start))"""
"""A device's share of its board as `rollup_sql` has it, before that of all is at most one."""

FLEET_HISTORY = f"""
WITH devices AS (
    SELECT gpu_uuid, mig_instance, {{slot}} AS slot_start, max(mig_profile) AS mig_profile,
        sum(sample_weight) AS weight,
        sum(sample_weight) FILTER (WHERE holder = 'job') AS held,
        sum(sample_weight) FILTER (WHERE holder = 'unattributed') AS nameless,
        sum(utilization_sum) FILTER (WHERE holder = 'job')
            / nullif(sum(utilization_samples) FILTER (WHERE holder = 'job'), 0) AS utilization,
        sum(power_sum) AS power_sum, sum(power_weight) AS power_weight, sum(samples) AS samples
    FROM {{table}} WHERE slot_start >= :start AND slot_start < :end GROUP BY 1, 2, 3
), seen AS (
    SELECT gpu_uuid, mig_instance, slot_start, {_SLICES} AS slices
    FROM devices WHERE weight > 0
), sizes AS (
    SELECT *, greatest(sum(slices) OVER (PARTITION BY gpu_uuid, slot_start), 1) AS cut FROM seen
), boards AS (
    SELECT gpu_uuid, slot_start,
        coalesce(sum(held / weight * slices / cut), 0) AS allocated,
        coalesce(sum(nameless / weight * slices / cut), 0) AS unattributed,
        sum(held / weight * slices / cut * utilization) AS used,
        sum(held / weight * slices / cut) FILTER (WHERE held > 0 AND utilization IS NULL)
            AS unknown,
        sum(power_sum) / nullif(max(power_weight), 0) AS power, sum(samples) AS samples
    FROM devices LEFT JOIN sizes USING (gpu_uuid, mig_instance, slot_start)
    GROUP BY gpu_uuid, slot_start HAVING sum(samples) > 0
)
SELECT slot_start,
    count(*)::FLOAT8 AS boards,
    sum(allocated) AS allocated_gpus,
    coalesce(sum(used), 0) AS used_gpus,
    sum(allocated) - coalesce(sum(used), 0) - coalesce(sum(unknown), 0) AS idle_allocated_gpus,
    coalesce(sum(unknown), 0) AS unknown_gpus,
    sum(unattributed) AS unattributed_gpus,
    count(*) - sum(allocated) - sum(unattributed) AS free_gpus,
    sum(power) AS power_watts,
    sum(samples)::BIGINT AS sample_count
FROM boards GROUP BY slot_start ORDER BY slot_start
"""  # noqa: S608

POWER_READINGS = f"""
SELECT {", ".join(SAMPLES.names)} FROM (
    SELECT *, row_number() OVER (
        PARTITION BY gpu_model, utilization_signal ORDER BY hash(gpu_uuid, epoch_us(sampled_at))
    ) AS draw
    FROM samples
    WHERE sampled_at > :start AND sampled_at <= :end AND mig_instance = ''
        AND power_watts IS NOT NULL AND utilization_ratio IS NOT NULL
) AS drawn
WHERE draw <= :most
ORDER BY gpu_model, gpu_uuid, sampled_at
"""  # noqa: S608
"""Drawn by hash: the same readings whenever they are asked for."""

_DEVICES = f"""
parts AS (
    SELECT gpu_uuid, mig_instance, {_SLOT} AS slot_start, gpu_model, holder, job_id,
        max(mig_profile) AS mig_profile, sum(sample_weight) AS weight,
        sum(power_sum) AS power_sum, sum(power_weight) AS power_weight,
        sum(utilization_sum) / nullif(sum(utilization_samples), 0) AS utilization
    FROM hourly WHERE {WINDOW} GROUP BY 1, 2, 3, 4, 5, 6
), whole AS (
    SELECT gpu_uuid, mig_instance, slot_start, max(mig_profile) AS mig_profile,
        sum(weight) AS whole, sum(power_weight) AS powered
    FROM parts GROUP BY 1, 2, 3 HAVING sum(weight) > 0
), slices AS (
    SELECT gpu_uuid, mig_instance, slot_start, whole, powered, {_SLICES} AS slices FROM whole
), sizes AS (
    SELECT *, greatest(sum(slices) OVER (PARTITION BY gpu_uuid, slot_start), 1) AS cut FROM slices
), devices AS (
    SELECT parts.*, weight / whole AS share, slices / cut AS size,
        power_sum / nullif(powered, 0) AS power
    FROM parts JOIN sizes USING (gpu_uuid, mig_instance, slot_start)
)"""  # noqa: S608
"""Holders of devices' parts by slot, by share of their samples; devices without weight are out."""
_HOLDING = """share * size AS allocated, share * size * utilization AS used, power"""
_MODEL = """gpu_model || CASE split_part(job_id, '@', 2) WHEN '' THEN ''
            ELSE '@' || split_part(job_id, '@', 2) END"""
_SUMS = "sum(allocated) AS allocated_gpus, sum(used) AS effective_gpus, sum(power) AS power_watts"

JOB_HOLDINGS = f"""
WITH {_DEVICES}, held AS (
    SELECT job_id, slot_start, {_HOLDING} FROM devices
    WHERE holder = 'job'
        AND job_id IN (SELECT unnest(CAST(:job_ids AS VARCHAR[])))
)
SELECT job_id, slot_start, {_SUMS} FROM held GROUP BY job_id, slot_start
ORDER BY job_id, slot_start
"""  # noqa: S608

_OR_ZERO = "CASE WHEN bool_or(is_held) THEN max({0}) ELSE 0 END AS {0}"
GROUP_HISTORY = f"""
WITH namespaces AS MATERIALIZED (
    SELECT job_id, record::JSON->>'namespace' AS namespace FROM jobs
), {_DEVICES}, boards AS (
    SELECT slot_start, count(DISTINCT gpu_uuid)::FLOAT8 AS boards
    FROM devices GROUP BY slot_start
), seen AS (
    SELECT gpu_uuid, slot_start, max({_MODEL}) FILTER (WHERE holder = 'job') AS held_as,
        array_agg(DISTINCT job_id) FILTER (WHERE holder = 'job') AS job_ids
    FROM devices GROUP BY 1, 2
), placed AS (
    SELECT *, max(held_as) OVER (PARTITION BY gpu_uuid) AS gpu_model,
        lead(slot_start) OVER ahead AS seen_again, lead(job_ids) OVER ahead AS held_again
    FROM seen WINDOW ahead AS (PARTITION BY gpu_uuid ORDER BY slot_start)
), gaps AS (
    SELECT * FROM placed WHERE job_ids && held_again
        AND epoch(seen_again) - epoch(slot_start) > :slot_seconds
), presence AS (
    SELECT slot_start, gpu_model, 0.0 AS unseen FROM placed
    UNION ALL
    SELECT boards.slot_start, gpu_model, 1.0 FROM gaps
        JOIN boards ON boards.slot_start > gaps.slot_start AND boards.slot_start < seen_again
), unseen AS (
    SELECT 'fleet' AS kind, 'fleet' AS name, slot_start, avg(unseen)::FLOAT8 AS unseen_ratio
    FROM presence GROUP BY slot_start
    UNION ALL
    SELECT 'gpu_model', gpu_model, slot_start, avg(unseen)::FLOAT8
    FROM presence WHERE gpu_model IS NOT NULL GROUP BY gpu_model, slot_start
), held AS (
    SELECT slot_start, coalesce(namespaces.namespace, '(unknown)') AS namespace,
        {_MODEL} AS gpu_model, {_HOLDING}
    FROM devices LEFT JOIN namespaces USING (job_id) WHERE holder = 'job'
), grouped AS (
    SELECT 'fleet' AS kind, 'fleet' AS name, * FROM held
    UNION ALL SELECT 'namespace', namespace, * FROM held
    UNION ALL SELECT 'gpu_model', gpu_model, * FROM held
)
SELECT kind, name, slot_start, boards,
    {_OR_ZERO.format("allocated_gpus")}, {_OR_ZERO.format("effective_gpus")},
    {_OR_ZERO.format("power_watts")}, max(unseen_ratio) AS unseen_ratio
FROM (
    SELECT kind, name, slot_start, {_SUMS}, TRUE AS is_held, NULL::FLOAT8 AS unseen_ratio
    FROM grouped GROUP BY 1, 2, 3
    UNION ALL
    SELECT kind, name, slot_start, NULL, NULL, NULL, FALSE, unseen_ratio FROM unseen
) AS sums JOIN boards USING (slot_start)
GROUP BY kind, name, slot_start, boards
HAVING bool_or(is_held) OR kind = 'fleet' OR max(unseen_ratio) > 0
ORDER BY kind, name, slot_start
"""  # noqa: S608
"""Sums and what was unseen are grouped, not joined: PostgreSQL knows no sizes of what is derived,
and compared each row of the one with each of the other."""


NODE_POWER = f"""
WITH devices AS (
    SELECT gpu_uuid, mig_instance, {_SLOT} AS slot_start, max(node) AS node,
        sum(power_sum) AS power_sum, sum(power_weight) AS power_weight
    FROM hourly WHERE {WINDOW} GROUP BY 1, 2, 3 HAVING sum(samples) > 0
), boards AS (
    SELECT gpu_uuid, slot_start, max(node) AS node,
        sum(power_sum) / nullif(max(power_weight), 0) AS power
    FROM devices GROUP BY gpu_uuid, slot_start
)
SELECT node, slot_start, count(power)::FLOAT8 AS boards, sum(power) AS power_watts
FROM boards GROUP BY node, slot_start ORDER BY node, slot_start
"""  # noqa: S608


def fleet_history(slot_seconds: int) -> str:
    """Return the fleet's history by slot; whole hours are read from the hourly roll-up."""
    table = "five_minute" if slot_seconds % 3600 else "hourly"
    return FLEET_HISTORY.format(slot=_SLOT, table=table)


UNATTRIBUTED = "(unattributed)"
_NOBODY = f"CASE holder WHEN 'unattributed' THEN '{UNATTRIBUTED}' ELSE '' END"
_UTC_TEXT = "CAST(slot_start AT TIME ZONE 'UTC' AS VARCHAR)"
ENERGY_KEYS = {
    "job": f"CASE holder WHEN 'job' THEN job_id ELSE {_NOBODY} END",
    "namespace": (
        "CASE holder WHEN 'job' THEN coalesce(jobs.record::JSON->>'namespace', '(unknown)') "
        f"ELSE {_NOBODY} END"
    ),
    "node": "node",
    "gpu_model": "gpu_model",
    "day": f"substr({_UTC_TEXT}, 1, 10)",
    # A colon before a letter or digit would be a parameter.
    "hour": f"replace(substr({_UTC_TEXT}, 1, 13), ' ', 'T') || chr(58) || '00Z'",
    "fleet": "'fleet'",
}

ENERGY = f"""
SELECT coalesce({{key}}, '') AS key,
    sum(joules) / 3600000 AS energy_kwh,
    least(sum(joules), sum(joules_by_slices), sum(joules_by_activity)) / 3600000 AS energy_low_kwh,
    greatest(sum(joules), sum(joules_by_slices), sum(joules_by_activity)) / 3600000
        AS energy_high_kwh,
    coalesce(sum(board_seconds) FILTER (WHERE holder = 'job'), 0) / 3600 AS gpu_hours,
    sum(known_board_seconds - used_board_seconds) FILTER (WHERE holder = 'job') / 3600
        AS idle_gpu_hours,
    sum(board_seconds) / 3600 AS observed_hours
FROM {whole_slots("*")} AS slots LEFT JOIN jobs USING (job_id)
GROUP BY 1 HAVING sum(seconds) > 0 OR sum(joules) > 0 ORDER BY 1
"""  # noqa: S608

GPUS = f"""
WITH holders AS (
SELECT gpu_uuid, mig_instance, holder, job_id,
    arg_max(mig_profile, last_at) AS mig_profile,
    arg_max(node, last_at) AS node,
    arg_max(gpu_model, last_at) AS gpu_model,
    arg_max(memory_total_mib, last_at) AS memory_total_mib,
    max(last_at) AS last_at
FROM {
    whole_slots(
        "gpu_uuid",
        "mig_instance",
        "mig_profile",
        "node",
        "gpu_model",
        "memory_total_mib",
        "job_id",
        "holder",
        "last_at",
        "samples",
    )
} AS slots WHERE samples > 0
GROUP BY gpu_uuid, mig_instance, holder, job_id
), ranked AS (
    SELECT *, max(last_at) OVER (PARTITION BY gpu_uuid, mig_instance) AS newest FROM holders
)
SELECT gpu_uuid, mig_instance,
    arg_max(mig_profile, last_at) AS mig_profile,
    arg_max(node, last_at) AS node,
    arg_max(gpu_model, last_at) AS gpu_model,
    arg_max(memory_total_mib, last_at) AS memory_total_mib,
    coalesce(string_agg(DISTINCT job_id, chr(10) ORDER BY job_id)
        FILTER (WHERE last_at = newest AND job_id <> ''), '') AS holders,
    max(last_at) AS last_seen_at,
    max(last_at) FILTER (WHERE holder = 'unattributed') AS unexplained_at
FROM ranked
GROUP BY gpu_uuid, mig_instance ORDER BY node, gpu_uuid, mig_instance
"""  # noqa: S608

_HEALTH = {
    "temperature_celsius": "max",
    "memory_temperature_celsius": "max",
    "clock_mhz": "avg",
    "throttled_ratio": "avg",
    "uncorrected_errors": "max",
    "remapped_rows": "max",
    "remap_failed": "max",
}
"""Health of boards, whatever instance of a board tells it, and the way to join readings."""
HEALTH_VALUES = ", ".join(f"{call}({name}) AS {name}" for name, call in _HEALTH.items())
HEALTH_NAMES = ", ".join(_HEALTH)
BOARDS = f"""
WITH devices AS (
    SELECT gpu_uuid, mig_instance,
        arg_max(node, last_at) AS node, arg_max(gpu_index, last_at) AS gpu_index,
        arg_max(gpu_model, last_at) AS gpu_model, arg_max(mig_profile, last_at) AS mig_profile,
        string_agg(DISTINCT job_id, chr(10) ORDER BY job_id) FILTER (WHERE holder = 'job') AS jobs,
        sum(board_seconds) AS seen, sum(board_seconds) FILTER (WHERE holder = 'job') AS held,
        sum(used_board_seconds) AS used, sum(known_board_seconds) AS known,
        max(memory_max_mib) AS memory, max(memory_total_mib) AS memory_total,
        sum(power_sum) AS power_sum, sum(power_weight) AS power_weight, max(last_at) AS last_at
    FROM five_minute WHERE {WINDOW} AND samples > 0 GROUP BY gpu_uuid, mig_instance
), health AS (
    SELECT gpu_uuid, {HEALTH_VALUES} FROM board_activity WHERE {WINDOW} GROUP BY gpu_uuid
), boards AS (
SELECT arg_max(node, last_at) AS node, arg_max(gpu_index, last_at) AS gpu_index, gpu_uuid,
    arg_max(gpu_model, last_at) AS gpu_model,
    coalesce(string_agg(mig_profile, ', ' ORDER BY mig_instance)
        FILTER (WHERE mig_instance <> ''), '') AS mig_profiles,
    coalesce(string_agg(jobs, chr(10) ORDER BY mig_instance), '') AS jobs,
    coalesce(sum(held), 0) / nullif(sum(seen), 0) AS allocated_ratio,
    sum(used) / nullif(sum(known), 0) AS used_ratio,
    sum(memory) AS memory_used_mib, sum(memory_total) AS memory_total_mib,
    sum(power_sum) / nullif(max(power_weight), 0) AS power_watts, max(last_at) AS last_seen_at
FROM devices GROUP BY gpu_uuid
)
SELECT boards.*, {HEALTH_NAMES} FROM boards LEFT JOIN health ON health.gpu_uuid = boards.gpu_uuid
ORDER BY node, gpu_index, boards.gpu_uuid
"""  # noqa: S608

SILENT_BOARDS = f"""
SELECT gpu_uuid, arg_max(node, last_at) AS node, arg_max(gpu_index, last_at) AS gpu_index,
    max(last_at) AS last_seen_at
FROM {whole_slots("gpu_uuid", "node", "gpu_index", "last_at", "samples")} AS slots WHERE samples > 0
GROUP BY gpu_uuid HAVING max(last_at) < :since ORDER BY node, gpu_index, gpu_uuid
"""  # noqa: S608

BOARD_HISTORY = f"""
WITH past AS (
SELECT mig_instance, {_SLOT} AS slot_start,
    arg_max(mig_profile, last_at) AS mig_profile,
    string_agg(DISTINCT job_id, ', ' ORDER BY job_id) FILTER (WHERE holder = 'job') AS jobs,
    sum(utilization_sum) / nullif(sum(utilization_samples), 0) AS utilization_ratio,
    max(memory_max_mib) AS memory_used_mib, max(memory_total_mib) AS memory_total_mib,
    sum(power_sum) / nullif(sum(power_samples), 0) AS power_watts
FROM five_minute WHERE {WINDOW} AND gpu_uuid = :gpu_uuid AND samples > 0
GROUP BY 1, 2
), health AS (
    SELECT {_SLOT} AS slot_start, {HEALTH_VALUES}
    FROM board_activity WHERE {WINDOW} AND gpu_uuid = :gpu_uuid GROUP BY 1
)
SELECT past.*, {HEALTH_NAMES} FROM past LEFT JOIN health ON health.slot_start = past.slot_start
ORDER BY mig_instance, past.slot_start
"""  # noqa: S608

HANDOVER_SLOTS = 2
"""Five-minute slots in which a job's boards may still carry the name of the job before it."""
SIGNALS = f"""
SELECT job_id, CASE WHEN 10 * sum(shared_samples) > sum(samples)
    AND (sum(shared_slots) > {HANDOVER_SLOTS} OR max(shared_at) = max(last_at)) THEN 'shared'
    ELSE arg_max(signal, samples) END AS signal
FROM (
    SELECT job_id, signal, sum(samples) AS samples, sum(shared_samples) AS shared_samples,
        max(slot_start) AS last_at, max(slot_start) FILTER (WHERE shared_samples > 0) AS shared_at,
        count(DISTINCT slot_start) FILTER (WHERE shared_samples > 0) AS shared_slots
    FROM five_minute WHERE {WINDOW} AND holder = 'job' AND signal <> ''
        AND job_id IN (SELECT job_id FROM jobs WHERE last_seen_at >= :seen_since)
    GROUP BY job_id, signal
) AS signals GROUP BY job_id
"""  # noqa: S608

JOBS = """
SELECT record FROM jobs WHERE last_seen_at >= :seen_since AND job_id NOT IN (
    SELECT label_id FROM allocations WHERE label_id <> job_id
) ORDER BY job_id
"""

DISAGREEMENTS = """
SELECT gpu_uuid, max(node) AS node,
    sum(counter_joules) / 3600000 AS counter_kwh,
    sum(power_joules_beside_counter) / 3600000 AS power_kwh,
    sum(jumps)::BIGINT AS jumps
FROM hourly WHERE slot_start >= :start AND slot_start < :end AND counter_joules IS NOT NULL
GROUP BY gpu_uuid
HAVING sum(seconds) >= 600 AND abs(sum(counter_joules) - sum(power_joules_beside_counter))
    > 0.1 * greatest(sum(counter_joules), sum(power_joules_beside_counter))
ORDER BY gpu_uuid
"""
"""Boards whose energy counter and power integral differ by more than a tenth over >= 10 min."""

OBSERVED_UNTIL = """
SELECT slot_start FROM (
    SELECT slot_start, count(*) OVER (
        ORDER BY epoch(slot_start) RANGE BETWEEN 172799 PRECEDING AND CURRENT ROW) AS observed
    FROM (SELECT DISTINCT slot_start FROM hourly WHERE slot_start <= :now) AS hours
) AS around WHERE observed >= 12 ORDER BY slot_start DESC LIMIT 1
"""
