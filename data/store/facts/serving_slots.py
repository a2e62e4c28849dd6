"""Traffic of inference engines: a row a replica and five minutes, read by service.

A replica is joined to its job as GPU samples are: by the pod that its labels name, through who held
what. A pod of which no scheduler told is of the workload whose pods are named as it is, where that
is one; else pods of one Deployment or StatefulSet are one service by their names. Replicas without
a pod are one by their model and cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from data.facts.columns import SERVING
from data.records.feasible_changes import SCALES_TO_ZERO
from data.records.serving import MAX_START_SECONDS

SERVING_KEY = ("slot_start", "label_id", "engine", "model", "address")
_LETTER = "[bcdfghjklmnpqrstvwxz2456789]"  # of which Kubernetes makes the ends of names
_DRAWN, _ORDINAL = f"(?:-{_LETTER}{{6,10}})?-{_LETTER}{{5}}", "-[0-9]+"
_PLAIN = "split_part(label_id, '@', 1)"
_CLUSTER = f"substr(label_id, length({_PLAIN}) + 1)"
_WORKLOAD = f"regexp_replace({_PLAIN}, '(?:{_DRAWN}|{_ORDINAL})$', '') || {_CLUSTER}"
"""A pod's name without what it has behind that of its workload; the cluster is kept."""
_POD_NAME = f"""regexp_replace(regexp_replace({_PLAIN}, '{_DRAWN}$', '-*'), '{_ORDINAL}$', '-#')
        || {_CLUSTER}"""
"""A pod's name with signs in place of letters that were drawn, or of a number."""
_IS_UID = "starts_with(label_id, 'pod-uid:')"
_NAMES = f"""
pods AS (
    SELECT job_id, label_id, max(seen_at) AS seen_at FROM allocations
    WHERE label_id <> '' AND NOT {_IS_UID} AND job_id NOT LIKE '%/pod/%' GROUP BY job_id, label_id
), named_so AS (
    SELECT {_POD_NAME} AS pod_name, job_id, max(seen_at) AS seen_at FROM pods GROUP BY 1, 2
), names AS (
    SELECT pod_name, max(job_id) AS job_id FROM (
        SELECT *, max(seen_at) OVER (PARTITION BY pod_name) AS newest FROM named_so
    ) AS placed WHERE seen_at = newest GROUP BY pod_name HAVING count(*) = 1
)
"""  # noqa: S608 - only constants of this module are put together
"""The one workload whose pods are named so, of those that were told of last."""


def _known_sum(name: str) -> str:
    """Return a sum that is unknown where a part of it is."""
    return f"CASE WHEN count({name}) = count(*) THEN sum({name}) END AS {name}"


_SUMS = ", ".join(
    _known_sum(name) for name in SERVING.names if name not in (*SERVING_KEY, "kv_cache_ratio")
)
_NAMELESS = """replace(model, '@', '%40')
        || CASE WHEN address LIKE '%@%' THEN '@' || split_part(address, '@', 2) ELSE '' END"""
"""The model as its cluster's (`data.facts.cluster_names`), which the address tells."""
_OF_SERVICES = f"""
labels AS (
    SELECT DISTINCT label_id FROM served
), known AS (
    SELECT label_id, arg_max(job_id, seen_at) AS job_id FROM allocations
    WHERE label_id <> '' AND label_id IN (SELECT label_id FROM labels) GROUP BY label_id
), unknown AS (
    SELECT label_id, {_POD_NAME} AS pod_name FROM labels
    WHERE label_id NOT IN (SELECT label_id FROM known)
), {_NAMES}, jobs_of_labels AS (
    SELECT label_id, job_id FROM known
    UNION ALL
    SELECT label_id, coalesce(names.job_id, {_WORKLOAD})
    FROM unknown LEFT JOIN names ON names.pod_name = unknown.pod_name
), named AS (
    SELECT s.*, CASE WHEN s.label_id = '' THEN {_NAMELESS} ELSE '' END AS nameless,
        CASE WHEN s.label_id = '' THEN s.address ELSE s.label_id END AS replica, owner.job_id
    FROM served AS s JOIN jobs_of_labels AS owner ON owner.label_id = s.label_id
)
"""  # noqa: S608 - only constants of this package are put together
_REPLICAS = f"""
WITH served AS (
    SELECT * FROM serving_slots WHERE slot_start >= :start AND slot_start < :end
), {_OF_SERVICES}, replicas AS (
    SELECT slot_start, job_id, nameless, replica, max(engine) AS engine, max(model) AS model,
        max(kv_cache_ratio) AS kv_cache_ratio, {_SUMS}
    FROM named GROUP BY slot_start, job_id, nameless, replica
)
"""  # noqa: S608
_BY_SLOT = f"""
SELECT job_id, nameless, slot_start, max(engine) AS engine, max(model) AS model,
    count(*)::BIGINT AS replicas, max(running_requests) AS fullest_requests,
    max(CASE WHEN waiting_requests >= 1 THEN running_requests END) AS full_requests,
    max(kv_cache_ratio) AS kv_cache_ratio, {_SUMS}
FROM replicas
"""  # noqa: S608
SERVICE = f"""{_REPLICAS}{_BY_SLOT}WHERE job_id = :job_id AND nameless = :nameless
GROUP BY job_id, nameless, slot_start ORDER BY slot_start
"""
ENGINES = f"""
WITH served AS (
    SELECT label_id, engine, model, address, count(*)::BIGINT AS slots,
        min(slot_start) AS oldest, max(slot_start) AS newest
    FROM serving_slots WHERE slot_start >= :start AND slot_start < :end GROUP BY 1, 2, 3, 4
), {_OF_SERVICES}
SELECT * FROM named ORDER BY job_id, nameless, replica
"""  # noqa: S608
RUNS = """
WITH labels AS (
    SELECT unnest(CAST(:labels AS VARCHAR[])) AS label_id
), told AS (
    SELECT DISTINCT label_id, 'pods' AS told_by, runs, started_at AS since FROM allocations
    WHERE runs <> '' AND label_id IN (SELECT label_id FROM labels)
    UNION ALL
    SELECT job_id AS label_id, 'boards' AS told_by, max(gpu_model) || ' x '
        || CAST(count(DISTINCT gpu_uuid || mig_instance) AS VARCHAR) AS runs, slot_start AS since
    FROM hourly WHERE slot_start >= :start AND slot_start < :end
        AND job_id IN (SELECT label_id FROM labels)
        AND job_id NOT IN (SELECT label_id FROM allocations)
    GROUP BY job_id, slot_start
)
SELECT label_id, told_by, runs, since FROM (
    SELECT *, lag(runs) OVER (PARTITION BY label_id ORDER BY since) AS before FROM told
) AS in_order WHERE before IS NULL OR before <> runs
"""
"""Starts of labels: as their scheduler tells, else as boards were allocated to them."""
SUMS = tuple(
    name
    for name in SERVING.names
    if name not in (*SERVING_KEY, "kv_cache_ratio", "preemptions", "first_token_seconds",
                    "first_token_count")
)  # fmt: skip
"""Columns of many services; requests at work and those that wait are first."""
REPLICA_NAMES = ("label_id", "engine", "model", "address")
_SUMMED = ", ".join(_known_sum(name) for name in SUMS)


def readings(names: Sequence[str], *, several: bool) -> str:
    """Return the query of SUMS and the cache of replicas by `service` and `slot_start`.

    `names` are those of REPLICA_NAMES that tell replicas apart. `several` where engines, models or
    addresses of one replica are added up.
    """
    sums, cache, grouped = ", ".join(SUMS), "kv_cache_ratio", ""
    if several:
        sums, cache = _SUMMED, "max(kv_cache_ratio) AS kv_cache_ratio"
        grouped = "GROUP BY service, replica, slot_start"
    return f"""
    SELECT service, slot_start, {sums}, {cache} FROM serving_slots JOIN (
        SELECT unnest(CAST(:service AS BIGINT[])) AS service,
            unnest(CAST(:replica AS BIGINT[])) AS replica,
            {", ".join(f"unnest(CAST(:{name} AS VARCHAR[])) AS {name}" for name in names)}
    ) AS wanted USING ({", ".join(names)})
    WHERE slot_start >= :start AND slot_start < :end {grouped}
    """  # noqa: S608


TOKENS = f"""{_REPLICAS}
SELECT job_id, to_timestamp(floor(epoch(slot_start) / 3600) * 3600) AS hour_start,
    CASE WHEN count(generation_tokens) = count(*) AND count(DISTINCT slot_start) = 12
        THEN sum(generation_tokens) END AS generation_tokens
FROM replicas WHERE job_id <> '' GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608

MAX_STARTS = 50
_NEWEST = f"""
SELECT job_id, source, seconds FROM (
    SELECT *, row_number() OVER (PARTITION BY job_id, source ORDER BY began_at DESC) AS place
    FROM starts
) AS placed WHERE place <= {MAX_STARTS} ORDER BY job_id, source, place
"""  # noqa: S608
STARTS = f"""
WITH {_NAMES}, served AS (
    SELECT label_id, {_POD_NAME} AS pod_name, min(slot_start) AS read_at,
        min(CASE WHEN generation_tokens > 0 THEN slot_start END) AS served_at,
        max(engine || ' ' || model) AS runs, max(slot_start) AS last_at
    FROM serving_slots WHERE slot_start >= :start AND slot_start < :end AND label_id <> ''
        AND label_id IN (SELECT job_id FROM samples)
        AND label_id NOT IN (SELECT label_id FROM allocations)
    GROUP BY label_id
), boards AS (
    SELECT job_id AS label_id, min(sampled_at) AS seen_at,
        max(gpu_model) || ' x ' || CAST(count(DISTINCT gpu_uuid || mig_instance) AS VARCHAR) AS held
    FROM samples
    WHERE job_id IN (SELECT label_id FROM served) GROUP BY job_id
), seen AS (
    SELECT coalesce(names.job_id, {_WORKLOAD}) AS job_id,
        'boards' AS source, boards.seen_at AS began_at,
        epoch(served_at) + 300 - epoch(boards.seen_at) AS seconds,
        runs || ' ' || held AS runs, last_at
    FROM boards JOIN served USING (label_id) LEFT JOIN names ON names.pod_name = served.pod_name
    -- An engine that answered before may have had no request, and boards of which nothing was read
    -- before may have been held all along.
    WHERE served_at - read_at <= INTERVAL '5 minutes' AND EXISTS (
        SELECT 1 FROM samples AS s WHERE s.sampled_at < boards.seen_at
            AND s.sampled_at >= boards.seen_at - INTERVAL '5 minutes')
), told AS (
    SELECT job_id, 'pods' AS source, started_at AS began_at, min(start_seconds) AS seconds,
        max(runs) AS runs, max(CASE WHEN ended_at IS NULL THEN seen_at END) AS last_at
    FROM allocations WHERE started_at >= :start AND started_at < :end AND NOT {_IS_UID}
        AND label_id <> ''
    GROUP BY job_id, label_id, started_at
), all_starts AS (
    SELECT *, max(last_at) OVER (PARTITION BY job_id, source) AS newest_at
    FROM (SELECT * FROM told UNION ALL SELECT * FROM seen) AS both_sources
), starts AS (
    SELECT * FROM all_starts AS s WHERE seconds IS NOT NULL
        AND (source = 'pods' OR (seconds > 0 AND seconds <= {MAX_START_SECONDS:.0f}))
        AND (runs = '' OR newest_at IS NULL OR EXISTS (SELECT 1 FROM all_starts AS now
            WHERE now.job_id = s.job_id AND now.source = s.source AND now.last_at = s.newest_at
                AND now.runs IN ('', s.runs)))
)
{_NEWEST}
"""  # noqa: S608


PODS = f"""
SELECT DISTINCT a.job_id, a.started_at, coalesce(a.ended_at, a.seen_at) AS until, a.source
FROM allocations AS a JOIN jobs USING (job_id)
WHERE record LIKE '%["{SCALES_TO_ZERO}","yes"]%' AND coalesce(a.ended_at, a.seen_at) >= :start
    AND NOT {_IS_UID}
    AND a.job_id IN (SELECT unnest(CAST(:jobs AS VARCHAR[])))
ORDER BY 1, 2
"""  # noqa: S608
"""Runs of pods of workloads whose autoscaler may stop the last one, as far as was told."""
SILENT = f"""
WITH read AS (
    SELECT DISTINCT label_id FROM serving_slots WHERE slot_start >= :start AND slot_start < :end
), living AS (
    SELECT DISTINCT a.job_id, a.label_id, label_id IN (SELECT label_id FROM read) AS is_read
    FROM allocations AS a JOIN (
        SELECT source, max(seen_at) AS seen_at FROM allocations GROUP BY source
    ) AS newest USING (source, seen_at)
    WHERE seen_at >= :start AND ended_at IS NULL AND started_at <= :start AND NOT {_IS_UID}
), alike AS (
    SELECT job_id, is_read, {_POD_NAME} AS pod_name FROM living
)
SELECT job_id, count(*)::BIGINT AS replicas FROM alike
WHERE NOT is_read AND {_PLAIN.replace("label_id", "pod_name")} LIKE '%-*'
    AND (job_id, pod_name) IN (SELECT job_id, pod_name FROM alike WHERE is_read)
GROUP BY job_id
"""  # noqa: S608
"""Pods of which no engine was read. Those of drawn names do as another does that was read; of pods
with numbers the first may answer for all."""
