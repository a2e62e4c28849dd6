"""Questions about many jobs, answered by the page: filtered, sorted and counted by the store.

Conditions and orders are chosen by name from what stands here; values travel as parameters.
"""

from data.facts.cluster_names import MAIN_CLUSTER
from data.facts.jobs import JobState
from data.store.facts.samples_sql import whole_slots


def _text(*path: str) -> str:
    """Return SQL for a text of the job's record, such as namespace or scheduler, user."""
    return (
        f"coalesce(record::JSON{''.join(f'->{name!r}' for name in path[:-1])}->>{path[-1]!r}, '')"
    )


FIELDS = {
    "namespace": _text("namespace"),
    "team": _text("scheduler", "account"),
    "application": _text("scheduler", "workload"),
    "user": _text("scheduler", "user"),
    "owner": _text("owner"),
    "state": f"coalesce(nullif({_text('scheduler', 'state')}, ''), 'unknown')",
    "kind": _text("kind"),
    "model": _text("gpu_model"),
    "cluster": f"coalesce(nullif(split_part(job_id, '@', 2), ''), '{MAIN_CLUSTER}')",
}
"""Fields by which jobs can be filtered."""

TENANT_NAMES = {
    "account-or-namespace": f"coalesce(nullif({FIELDS['team']}, ''), {FIELDS['namespace']})",
    "namespace": FIELDS["namespace"],
    "account": FIELDS["team"],
    "owner": FIELDS["owner"],
}
"""The name of a job's tenant, '' for none, by what a tenant is (`Job.tenant`)."""

_RUNS = f"""
    last_seen_at >= :running_since
    AND {FIELDS["state"]} IN ('{JobState.RUNNING}', '{JobState.UNKNOWN}')
"""
"""A job seen lately of which no scheduler says that it waits, is suspended or is over."""

ORDERS = {
    "waste": "idle_gpu_hours DESC NULLS LAST",
    "GPU-hours": "gpu_hours DESC NULLS LAST",
    "energy": "energy_kwh DESC NULLS LAST",
    "last seen": "last_seen_at DESC",
    "name": "job_id",
}

_JOBS_WITHOUT_DUPLICATES = """
    SELECT job_id, last_seen_at, record FROM jobs
    WHERE job_id NOT IN (SELECT label_id FROM allocations WHERE label_id <> job_id)
"""
_SEARCHED = f"lower(job_id || ' ' || {_text('name')} || ' ' || {_text('owner')})"
_USED = f"""
    SELECT job_id, sum(board_seconds) / 3600 AS gpu_hours,
        sum(known_board_seconds - used_board_seconds) / 3600 AS idle_gpu_hours,
        sum(joules) / 3600000 AS energy_kwh,
        sum(used_board_seconds) / nullif(sum(known_board_seconds), 0) AS utilization_ratio,
        max(memory_max_mib) AS memory_mib, max(memory_total_mib) AS memory_total_mib
    FROM {
    whole_slots(
        "job_id",
        "holder",
        "board_seconds",
        "known_board_seconds",
        "used_board_seconds",
        "joules",
        "memory_max_mib",
        "memory_total_mib",
    )
} AS slots WHERE holder = 'job' GROUP BY job_id
"""  # noqa: S608 - only constants of this module are put together


def _selection(fields: tuple[str, ...], *, searched: bool, running: bool) -> str:
    conditions = [f"{FIELDS[name]} = :{name}" for name in fields]
    if searched:
        conditions.append(f"position(:search IN {_SEARCHED}) > 0")
    if running:
        conditions.append(_RUNS)
    where = " AND ".join(conditions) or "TRUE"
    return f"""
        WITH known AS ({_JOBS_WITHOUT_DUPLICATES}), used AS ({_USED}), chosen AS (
            SELECT known.job_id, last_seen_at, record, gpu_hours, idle_gpu_hours, energy_kwh,
                utilization_ratio, memory_mib, memory_total_mib
            FROM known LEFT JOIN used ON known.job_id = used.job_id WHERE
            {where.replace("job_id", "known.job_id")}
        )
    """  # noqa: S608


def job_page(fields: tuple[str, ...], order: str, *, searched: bool, running: bool) -> str:
    """Return the query for one page of jobs with these filters."""
    selection = _selection(fields, searched=searched, running=running)
    return f"""
        {selection} SELECT * FROM chosen
        ORDER BY {ORDERS[order]}, job_id LIMIT :most OFFSET :skipped
    """  # noqa: S608


def job_totals(fields: tuple[str, ...], *, searched: bool, running: bool) -> str:
    """Return the query for what all pages hold together."""
    return f"""
        {_selection(fields, searched=searched, running=running)}
        SELECT count(*) AS found, sum(gpu_hours) AS gpu_hours,
            sum(idle_gpu_hours) AS idle_gpu_hours, sum(energy_kwh) AS energy_kwh,
            count(*) FILTER (WHERE {_RUNS}) AS running
        FROM chosen
    """  # noqa: S608


CHOICES = f"""
SELECT DISTINCT {", ".join(f'{text} AS "{name}"' for name, text in FIELDS.items())}
FROM ({_JOBS_WITHOUT_DUPLICATES}) AS known
"""  # noqa: S608
"""Combinations of all fields that jobs have: few are those of one job alone."""

HOLDERS = f"""
SELECT job_id, {FIELDS["namespace"]} AS namespace, {FIELDS["owner"]} AS owner
FROM ({_JOBS_WITHOUT_DUPLICATES}) AS known WHERE last_seen_at >= :seen_since ORDER BY job_id
"""  # noqa: S608

RUNS = """
SELECT job_id, slot_start, sum(board_seconds) / 3600 AS gpu_hours,
    sum(used_board_seconds) / 3600 AS used_gpu_hours,
    sum(known_board_seconds - used_board_seconds) / 3600 AS idle_gpu_hours,
    sum(joules) / 3600000 AS energy_kwh
FROM hourly
WHERE slot_start >= :start AND holder = 'job' AND job_id IN (SELECT unnest(:job_ids))
GROUP BY job_id, slot_start HAVING sum(seconds) > 0 ORDER BY job_id, slot_start
"""

SIMILAR = f"""
SELECT record FROM ({_JOBS_WITHOUT_DUPLICATES}) AS known
WHERE {_text("namespace")} = :namespace AND {_text("owner")} = :owner
    AND {_text("gpu_model")} = :gpu_model AND {_text("kind")} = :kind AND job_id <> :job_id
ORDER BY last_seen_at DESC, job_id LIMIT :most
"""  # noqa: S608
"""Jobs of the same kind of the same owner: those that may be runs of the same recurring job."""
