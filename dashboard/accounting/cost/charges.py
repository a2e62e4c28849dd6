"""Board-hours, energy and money in parts: by period, holder, model and state of use.

The parts come from the roll-ups as the energy statement reads them, so that whose a board was is
settled in one place (`data/store/rollups/rollup_sql.py`). A part is split by state and priced;
every sum of parts is then the whole, by whatever they are grouped.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd

from dashboard.accounting.cost.applications import application_of
from dashboard.accounting.cost.groups import BOARD_GROUPS
from dashboard.accounting.cost.prices import PriceList
from dashboard.accounting.cost.work_shares import parts_by_use
from dashboard.accounting.energy.build import read_parts, tenant_key
from dashboard.accounting.energy.factors import Factors
from dashboard.accounting.energy.periods import Calendar
from data.base.units import GRAMS_PER_KILOGRAM, JOULES_PER_KWH, SECONDS_PER_HOUR
from data.facts.cluster_names import MAIN_CLUSTER, cluster_in
from data.facts.jobs import Job, JobState
from data.settings.all_settings import Settings
from data.store import StoreReader
from data.store.facts.energy_parts import NO_NAME, EnergyKey

USED, IDLE, SHARED, UNCLEAR = "used", "idle", "shared", "held, activity unknown"
FREE, UNATTRIBUTED = "free", "unattributed"
STATES = (USED, IDLE, SHARED, UNCLEAR, FREE, UNATTRIBUTED)

NAMES_OF_UNHELD = {FREE: "(not allocated)", UNATTRIBUTED: "(unattributed)"}
"""What stands for `NAMES` of what nobody held."""

NAMES = ("tenant", "application", "owner", "job", "outcome")
AMOUNTS = (
    "hours",
    "gpu_kwh",
    "site_kwh",
    "kgco2e",
    "unmeasured_hours",
    "unpriced_hours",
    "unread_hours",
    "gpu_cost",
    "use_cost",
    "listed_cost",
    "contracted_cost",
    "electricity_cost",
)
"""The columns of charges that add up; NaN is unknown.

use_cost is gpu_cost with shared boards by use, of which unread_hours are in equal parts.
"""
_CAUSES: Mapping[str, tuple[str, ...]] = {
    "out of memory": ("outofmemory", "oomkilled", "oom"),
    "time limit": ("timelimit", "timeout", "deadline"),
    "preempted": ("preempt", "evict"),
    "node failed": ("nodefail", "bootfail", "nodedown", "nodelost", "nodeshutdown"),
}
"""Causes of failures, and what Slurm's and Kubernetes' reasons for them have in common."""
_STATES: Mapping[JobState, str] = {
    JobState.FINISHED: "finished",
    JobState.CANCELLED: "cancelled",
    JobState.PENDING: "waits again",
    JobState.RUNNING: "not over",
    JobState.SUSPENDED: "not over",
}


def charges_of(
    reader: StoreReader,
    settings: Settings,
    *,
    start: datetime,
    end: datetime,
    calendar: Calendar,
    prices: PriceList,
    factors: Factors,
    cuts: Iterable[datetime] = (),
    key: EnergyKey = EnergyKey.JOB,
    takes: Callable[[str], bool] | None = None,
) -> pd.DataFrame:
    """Return the charges of [start, end): a row per period, stretch, holder, model and state.

    Columns start (of the period), at and until (of the stretch: none reaches over a change of price
    or one of `cuts`), holder, `NAMES`, model, state, kind (of the price, "" when unknown) and
    `AMOUNTS`.
    With key BOARD or CLUSTER, a column of that name in place of `NAMES`; with a name of jobs (what
    a tenant is), column tenant alone: a large fleet has few tenants and many jobs. With `takes`, of
    the jobs of these ids alone.
    """
    inside = {cut for cut in (*prices.changes(), *cuts) if start < cut < end}
    frames, uses = [], []
    for since, until in pairwise(sorted({start, end} | inside)):
        parts = read_parts(
            reader, since, until, key=key, calendar=calendar, factors=factors, since=start
        )
        if takes is not None:
            parts = parts[(parts["holder"] == "job") & parts["key"].map(takes).astype(bool)]
        frames.append(parts.assign(at=since, until=until))
        if parts["shared_seconds"].any():
            key_of = partial(_keys_of, reader=reader, key=key)
            used = parts_by_use(reader, since, until, calendar=calendar, since=start, key_of=key_of)
            uses.append(used.assign(at=since))
    parts = _split(pd.concat(frames, ignore_index=True), factors, prices)
    rows = _by_use(_priced(parts, settings, factors, prices), uses)
    names: tuple[str, ...] = NAMES
    if key is EnergyKey.JOB:
        rows = _with_names(rows, reader, settings)
    elif key in BOARD_GROUPS:
        rows, names = rows.rename(columns={"key": str(key)}), (str(key),)
    else:
        tenant = rows["holder"].map(NAMES_OF_UNHELD).fillna(rows["key"])
        rows, names = rows.assign(tenant=tenant), ("tenant",)
    keys = ["start", "at", "until", "holder", *names, "model", "state", "kind"]
    return rows.groupby(keys, sort=True)[list(AMOUNTS)].sum(min_count=1).reset_index()


def _keys_of(rows: pd.DataFrame, *, reader: StoreReader, key: EnergyKey) -> "pd.Series[str]":
    """Return the key of the part that each row of a job on a board belongs to."""
    if key in (EnergyKey.BOARD, EnergyKey.JOB):
        return rows["gpu_uuid" if key is EnergyKey.BOARD else "job_id"]
    if key is EnergyKey.CLUSTER:
        return rows["job_id"].map(lambda job_id: cluster_in(job_id) or MAIN_CLUSTER)
    jobs = reader.jobs_of(sorted(rows["job_id"].unique()))
    names = {job_id: job.tenant(key) or NO_NAME for job_id, job in jobs.items()}
    return rows["job_id"].map(names).fillna(NO_NAME)


def _by_use(rows: pd.DataFrame, uses: list[pd.DataFrame]) -> pd.DataFrame:
    """Add what boards cost by use: each price is of one model and stretch, as the parts are."""
    rows = rows.assign(use_cost=rows["gpu_cost"], unread_hours=0.0)
    if not uses:
        return rows
    columns = ["start", "at", "key", "model"]
    ratios = pd.concat(uses, ignore_index=True).set_index(columns)
    of_rows = ratios.reindex(pd.MultiIndex.from_frame(rows[columns]))
    shared = (rows["state"] == SHARED).to_numpy()
    ratio = of_rows["use_ratio"].where(shared).fillna(1.0).to_numpy()
    unread = of_rows["unread_ratio"].where(shared).fillna(0.0).to_numpy()
    return rows.assign(use_cost=rows["gpu_cost"] * ratio, unread_hours=rows["hours"] * unread)


def _split(parts: pd.DataFrame, factors: Factors, prices: PriceList) -> pd.DataFrame:
    """Return the parts by state: hours, energy, and how much of the time had none measured."""
    parts = parts.rename(columns={"gpu_model": "model"})
    seconds = _state_seconds(parts)
    joules = _state_joules(parts, seconds, prices)
    dark = 1 - (parts["measured_seconds"] / parts["board_seconds"]).clip(0, 1)
    frames = []
    for state in STATES:
        hours = seconds[state] / SECONDS_PER_HOUR
        part = parts[["start", "at", "until", "hour_of_day", "holder", "key", "model"]].assign(
            state=state,
            hours=hours,
            gpu_kwh=joules[state] / JOULES_PER_KWH,
            unmeasured_hours=hours * dark,
        )
        frames.append(part[hours > 0])
    rows = pd.concat(frames, ignore_index=True)
    return rows.assign(site_kwh=rows["gpu_kwh"] * factors.pue[1])


def _state_seconds(parts: pd.DataFrame) -> dict[str, "pd.Series[float]"]:
    """Return the board-time of each state; together they are the board-time of the part."""
    of_job = parts["holder"] == "job"
    total = parts["board_seconds"]

    def of_jobs(name: str) -> "pd.Series[float]":
        return parts[name].fillna(0.0).where(of_job, 0.0).clip(lower=0.0)

    shared, used, idle = map(
        of_jobs, ("shared_seconds", "alone_used_seconds", "alone_idle_seconds")
    )
    rest = (total.where(of_job, 0.0) - shared - used - idle).clip(lower=0.0)
    return {
        USED: used,
        IDLE: idle,
        SHARED: shared,
        # What rounding leaves of a fully known hour is no state of its own.
        UNCLEAR: rest.where(rest > 1e-6 * total, 0.0),
        FREE: total.where(parts["holder"] == FREE, 0.0),
        UNATTRIBUTED: total.where(parts["holder"] == UNATTRIBUTED, 0.0),
    }


def _state_joules(
    parts: pd.DataFrame, seconds: dict[str, "pd.Series[float]"], prices: PriceList
) -> dict[str, "pd.Series[float]"]:
    """Return the energy of each state, NaN where none was measured.

    Idle time has the idle power of the model, at most its share of what was measured; used time has
    the rest. Energy of a model that the catalogue does not know follows time.
    """
    joules = parts["joules"]
    alone = seconds[USED] + seconds[IDLE] + seconds[UNCLEAR]
    shared = parts["shared_joules"].where(alone > 0, joules)
    rest = joules - shared.where(seconds[SHARED] > 0, 0.0).fillna(0.0)
    unclear = rest * _ratio(seconds[UNCLEAR], alone)
    clear = rest - unclear
    by_time = clear * _ratio(seconds[IDLE], seconds[IDLE] + seconds[USED])
    watts = parts["model"].map(
        {
            name: model.idle_watts
            for name in parts["model"].unique()
            if (model := prices.catalogue.find(name)) is not None
        }
    )
    measured = _ratio(parts["measured_seconds"], parts["board_seconds"])
    at_rest = watts.astype("float64") * seconds[IDLE] * measured
    idle = by_time.where(~(at_rest < by_time), at_rest).where(seconds[USED] > 0, clear)
    of_job = parts["holder"] == "job"
    of_jobs = {USED: clear - idle, IDLE: idle, SHARED: shared, UNCLEAR: unclear}
    return {
        **{state: amount.where(of_job) for state, amount in of_jobs.items()},
        FREE: joules,
        UNATTRIBUTED: joules,
    }


def _ratio(part: "pd.Series[float]", total: "pd.Series[float]") -> "pd.Series[float]":
    return (part / total.where(total > 0)).fillna(0.0)


def _priced(
    rows: pd.DataFrame, settings: Settings, factors: Factors, prices: PriceList
) -> pd.DataFrame:
    """Add kind and cost of each row; what has no price has NaN and counts as unpriced."""
    pairs = rows[["model", "at"]].drop_duplicates()
    units = {
        (model, at): prices.find(model, at)
        for model, at in zip(pairs["model"], pairs["at"], strict=True)
    }
    of_rows = [units[pair] for pair in zip(rows["model"], rows["at"], strict=True)]
    table = rows.assign(kind=["" if unit is None else unit.kind for unit in of_rows])
    for column, name in (
        ("gpu_cost", "charged"),
        ("listed_cost", "listed"),
        ("contracted_cost", "contracted"),
    ):
        rates = [np.nan if unit is None else getattr(unit, name) for unit in of_rows]
        table[column] = table["hours"] * np.array(rates, dtype=np.float64)
    table["unpriced_hours"] = table["hours"].where(table["kind"] == "", 0.0)
    charged = 1.0 if settings.statement.charge_electricity else np.nan
    hour = table["hour_of_day"].to_numpy(dtype=np.int64)
    carbon = np.array(factors.carbon)[hour] / GRAMS_PER_KILOGRAM
    return table.assign(
        electricity_cost=table["site_kwh"] * np.array(factors.price)[hour] * charged,
        kgco2e=table["site_kwh"] * carbon,
    )


def _with_names(table: pd.DataFrame, reader: StoreReader, settings: Settings) -> pd.DataFrame:
    """Add whose each row is; what nobody held has the name of its state."""
    of_job = table["holder"] == "job"
    jobs = reader.jobs_of(sorted(set(table.loc[of_job, "key"])))
    by = tenant_key(settings)
    names = {key: _names_of(key, jobs.get(key), by) for key in table.loc[of_job, "key"].unique()}
    rows = [
        names[key] if holder == "job" else (NAMES_OF_UNHELD[holder],) * len(NAMES)
        for holder, key in zip(table["holder"], table["key"], strict=True)
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(NAMES)
    return table.assign(**dict(zip(NAMES, columns, strict=True)))


def _names_of(job_id: str, job: Job | None, by: str) -> tuple[str, ...]:
    outcome = outcome_of(job)
    if job is None:
        return (NO_NAME, NO_NAME, NO_NAME, job_id, outcome)
    return (job.tenant(by) or NO_NAME, application_of(job), job.owner or NO_NAME, job_id, outcome)


def outcome_of(job: Job | None) -> str:
    """Return the outcome of a job, such as finished or failed: time limit; unknown is said so.

    What a scheduler calls the end of a run is told apart by its words, in the order of `_CAUSES`.
    The hours are those of all runs of a job: of one that was requeued and finished none is lost.
    """
    if job is None or job.scheduler is None:
        return NO_NAME
    if job.scheduler.state is not JobState.FAILED:
        return _STATES.get(job.scheduler.state, NO_NAME)
    reason = re.sub(r"[^a-z]", "", job.scheduler.reason.lower())
    causes = (cause for cause, words in _CAUSES.items() if any(word in reason for word in words))
    return f"failed: {next(causes, 'its program')}"
