"""The aggregations over samples, as SQL: history per job, fleet over time, energy.

Rules: a MIG instance counts as one device of its job; the board's power and energy are counted
once and shared equally over the instances that report at that time; gaps above five minutes are
unknown, not zero.
"""

LARGEST_GAP_SECONDS = 300
"""Between two samples further apart than this nothing is known (telemetry: restarts, reloads)."""

_WINDOW = "sampled_at > :start AND sampled_at <= :end"
_SLOT = "to_timestamp(floor(epoch(sampled_at) / :slot_seconds) * :slot_seconds)"

JOB_HISTORY = f"""
WITH boards AS (
    SELECT gpu_uuid, {_SLOT} AS slot_start, count(DISTINCT mig_instance) AS instances
    FROM samples WHERE {_WINDOW} GROUP BY ALL
), devices AS (
    SELECT job_id, gpu_uuid, mig_instance, {_SLOT} AS slot_start,
        avg(utilization_ratio) AS utilization, max(utilization_ratio) AS largest,
        max(memory_used_mib) AS memory, avg(power_watts) AS power, count(*) AS samples
    FROM samples
    WHERE {_WINDOW} AND job_id <> '' AND (:job_id = '' OR job_id = :job_id)
    GROUP BY ALL
)
SELECT job_id, slot_start,
    avg(utilization) * count(*) AS effective_gpus,
    avg(utilization) AS utilization_ratio,
    max(largest) AS utilization_max_ratio,
    count(*)::DOUBLE AS allocated_gpus,
    max(memory) AS memory_used_mib,
    avg(power / instances) * count(*) AS power_watts,
    sum(samples)::BIGINT AS sample_count
FROM devices JOIN boards USING (gpu_uuid, slot_start)
GROUP BY job_id, slot_start ORDER BY job_id, slot_start
"""  # noqa: S608 - only constants of this module are put together

FLEET_HISTORY = f"""
WITH devices AS (
    SELECT gpu_uuid, mig_instance, {_SLOT} AS slot_start,
        avg((job_id <> '')::INT) AS allocated,
        avg(utilization_ratio) FILTER (job_id <> '') AS utilization,
        avg(power_watts) AS power, count(*) AS samples
    FROM samples WHERE {_WINDOW} GROUP BY ALL
), boards AS (
    SELECT gpu_uuid, slot_start, avg(allocated) AS allocated,
        sum(allocated * utilization) / count(*) AS used,
        sum(allocated) FILTER (allocated > 0 AND utilization IS NULL) / count(*) AS unknown,
        max(power) AS power, sum(samples) AS samples
    FROM devices GROUP BY ALL
)
SELECT slot_start,
    count(*)::DOUBLE AS boards,
    sum(allocated) AS allocated_gpus,
    coalesce(sum(used), 0) AS used_gpus,
    sum(allocated) - coalesce(sum(used), 0) - coalesce(sum(unknown), 0) AS idle_allocated_gpus,
    coalesce(sum(unknown), 0) AS unknown_gpus,
    count(*) - sum(allocated) AS free_gpus,
    sum(power) AS power_watts,
    sum(samples)::BIGINT AS sample_count
FROM boards GROUP BY slot_start ORDER BY slot_start
"""  # noqa: S608

ENERGY_KEYS = {
    "job": "job_id",
    "namespace": "namespace",
    "gpu_model": "gpu_model",
    "day": "strftime(make_timestamp(epoch_us(sampled_at)), '%Y-%m-%d')",
    "fleet": "'fleet'",
}

ENERGY = """
WITH readings AS (
    SELECT gpu_uuid, sampled_at, count(*) AS sharing, max(power_watts) AS power
    FROM samples
    WHERE sampled_at > :start - to_seconds(:gap) AND sampled_at <= :end
    GROUP BY ALL
), steps AS (
    SELECT *, epoch(sampled_at) - epoch(lag(sampled_at) OVER w) AS seconds,
        lag(power) OVER w AS power_before
    FROM readings WINDOW w AS (PARTITION BY gpu_uuid ORDER BY sampled_at)
), shares AS (
    SELECT samples.*, jobs.record->>'namespace' AS namespace,
        steps.seconds / 3600 / sharing AS hours,
        (power + power_before) / 2 * steps.seconds / 3600000 / sharing AS kwh
    FROM samples JOIN steps USING (gpu_uuid, sampled_at) LEFT JOIN jobs USING (job_id)
    WHERE sampled_at > :start AND steps.seconds <= :gap
)
SELECT coalesce({key}, '') AS key,
    sum(kwh) AS energy_kwh,
    coalesce(sum(hours) FILTER (job_id <> ''), 0) AS gpu_hours,
    sum(hours * (1 - utilization_ratio)) FILTER (job_id <> '') AS idle_gpu_hours,
    sum(hours) AS observed_hours
FROM shares GROUP BY 1 ORDER BY 1
"""

GPUS = """
SELECT gpu_uuid, mig_instance,
    arg_max(mig_profile, sampled_at) AS mig_profile,
    arg_max(node, sampled_at) AS node,
    arg_max(gpu_model, sampled_at) AS gpu_model,
    arg_max(memory_total_mib, sampled_at) AS memory_total_mib,
    arg_max(job_id, sampled_at) AS job_id,
    max(sampled_at) AS last_seen_at
FROM samples WHERE sampled_at > :start AND sampled_at <= :end
GROUP BY gpu_uuid, mig_instance ORDER BY node, gpu_uuid, mig_instance
"""

SIGNALS = """
SELECT job_id, mode(utilization_signal) AS signal
FROM samples
WHERE sampled_at > :start AND sampled_at <= :end AND job_id <> '' AND utilization_signal <> ''
GROUP BY job_id
"""
