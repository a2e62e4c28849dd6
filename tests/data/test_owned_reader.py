"""Through an owner's reader: their rows of every kind, and not a word of another tenant."""

import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa
from beds.stores import ENGINES, Stores
from beds.two_tenants import MINE, TENANTS, THEIRS, fill
from drawn import examples
from factories import make_collected, make_job
from hypothesis import given, settings
from hypothesis import strategies as st

from data.base.clock import utc_now
from data.facts.job_pages import JobFilter
from data.facts.jobs import OwnNames, SchedulerFacts
from data.records.forecasts import Quantity
from data.store import Store, StoreReader, open_store
from data.store.facts.energy_parts import EnergyKey, Periods
from data.store.facts.job_sql import TENANT_NAMES
from data.store.facts.samples_sql import ENERGY_KEYS
from data.store.facts.traced_reader import TracedRange
from data.store.handles.cached_reader import CachedReader
from data.store.handles.tenant_reader import _OWNER_CONDITIONS, CLOSED, OPEN, OwnedReader

Read = Callable[[StoreReader], object]
DAY = timedelta(days=1)
WHOLE = frozenset({
    "clock", "version", "remember", "counts", "free_mib", "observed_until", "latest_sample_at",
    "recording", "collected_until", "boards_since", "forecast_counts", "last_cycle", "owned_jobs",
    "count_readings", "count_slots", "workloads_made_at",
})  # fmt: skip
"""What answers by numbers and times alone."""
FOR_THE_FLEET = frozenset({
    "nodes", "group_forecasts", "tokens", "token_of", "signed_in", "measured_peaks",
    "power_readings",
    "submission", "submissions", "verify_audit", "proposed_again", "command", "asked_after",
})  # fmt: skip
"""What an owner's pages and resources do not ask, or what is empty here."""


@pytest.fixture(scope="module", params=ENGINES)
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, datetime]]:
    """Two tenants with rows of every kind, on both engines."""
    stores = Stores(engine=request.param, server=lambda: request.getfixturevalue("postgres"))
    with (
        stores.empty(tmp_path_factory.mktemp("tenants")) as url,
        open_store(url, create=True) as store,
    ):
        end = fill(store, utc_now())
        yield store, end


def questions(whole: StoreReader, end: datetime) -> dict[str, list[Read]]:
    """Every question that is asked of a reader, by its name."""
    span = {"start": end - DAY, "end": end + timedelta(minutes=5)}
    digests = {
        tenant: [
            recommendation.recommendation.digest
            for recommendation in whole.recommendations(now=end)
            if recommendation.recommendation.namespace == tenant
        ]
        for tenant in TENANTS
    }
    job = {tenant: whole.job(f"{tenant}/chat") for tenant in TENANTS}
    page = {"running_since": end - DAY, "order": "waste", "most": 9}
    slots = {"slot_seconds": 900}
    asked: dict[str, list[Read]] = {
        "energy": [
            lambda r, by=by: r.energy(**span, by=by)  # type: ignore[misc]
            for by in ENERGY_KEYS
        ],
        "energy_parts": [
            lambda r, key=key: r.energy_parts(  # type: ignore[misc]
                **span, key=key, periods=Periods(), hour_shift=None
            )
            for key in EnergyKey
        ],
        "job_choices": [lambda r: r.job_choices()],
        "job_page": [
            lambda r: r.job_page(JobFilter(), **span, **page),
            lambda r: r.job_page(JobFilter(search=THEIRS), **span, **page),
            lambda r: r.job_page(
                JobFilter(fields=(("owner", THEIRS),), running=True), **span, **page
            ),
        ],
        "job_names": [lambda r, name=name: r.job_names(name) for name in TENANT_NAMES],  # type: ignore[misc]
        "findings": [lambda r: r.findings()],
        "jobs": [lambda r: r.jobs()],
        "jobs_lately": [lambda r: r.jobs_lately()],
        "job_holders": [lambda r: r.job_holders(seen_since=end - DAY)],
        "job_history": [lambda r: r.job_history("", **span, **slots)],
        "fleet_history": [lambda r: r.fleet_history(**span, **slots)],
        "group_history": [lambda r: r.group_history(**span, slot_seconds=3600)],
        "node_power": [lambda r: r.node_power(**span)],
        "boards": [lambda r: r.boards(**span)],
        "silent_boards": [lambda r: r.silent_boards(**span, since=end + DAY)],
        "gpus": [lambda r: r.gpus(), lambda r: r.gpus(**span)],
        "services": [lambda r: list(r.services(**span, within=DAY))],
        "service": [
            lambda r: r.service(f"{THEIRS}/chat", "", **span),
            lambda r: r.service("", f"{THEIRS}-other", **span),
        ],
        "job_activity": [lambda r: r.job_activity(**span)],
        "job_progress": [
            lambda r, tenant=tenant: r.job_progress(f"{tenant}/chat", end=end + DAY)  # type: ignore[misc]
            for tenant in TENANTS
        ],
        "replica_starts": [lambda r: r.replica_starts(**span)],
        "silent_replicas": [lambda r: r.silent_replicas(**span)],
        "served_boards": [lambda r: r.served_boards(**span)],
        "served_tokens": [lambda r: r.served_tokens(**span)],
        "sharing_hours": [lambda r: r.sharing_hours(**span, periods=Periods())],
        "board_xids": [lambda r: r.board_xids(since=end - DAY)],
        "contradicted_counters": [lambda r: r.contradicted_counters(end=end)],
        "contradicted_jobs": [lambda r: r.contradicted_jobs(end=end)],
        "contradicted_hours": [lambda r: r.contradicted_hours(**span)],
        "signals": [lambda r: r.signals(start=end - DAY, end=end, seen_since=end - DAY)],
        "energy_disagreements": [lambda r: r.energy_disagreements(**span)],
        "planning_view": [lambda r: r.planning_view(end, slot_seconds=900, history_days=1)],
        "forecasts_of": [lambda r: r.forecasts_of(Quantity.EFFECTIVE_GPUS)],
        "forecast_jobs": [lambda r: r.forecast_jobs()],
        "entries": [lambda r: r.entries(("approved", "applied"))],
        "spoken_of_since": [lambda r: r.spoken_of_since(end - DAY, now=end)],
        "recommendations": [lambda r: r.recommendations(now=end)],
        "current_recommendations": [lambda r: r.current_recommendations(now=end)],
        "plan": [lambda r: r.plan(f"{1:064d}")],
        "changes_proposed": [lambda r: r.changes_proposed(f"{1:064d}")],
        "prepared_since": [lambda r: r.prepared_since(end - DAY)],
    }
    plain = (
        "source_reports", "latest_plan", "forecasts", "memory_outlook", "states", "commands",
        "serving_outlook", "slow_work", "quotas",
        "journal", "audit", "finding_events", "skipped_forecasts", "forecast_tests",
        "demand_total", "forecast_summary", "workload_forecasts",
    )  # fmt: skip
    asked |= {name: [lambda r, name=name: getattr(r, name)()] for name in plain}  # type: ignore[misc]
    for tenant in TENANTS:
        named = f"{tenant}/chat"
        asked.setdefault("job", []).append(lambda r, n=named: r.job(n))  # type: ignore[misc]
        asked.setdefault("jobs_of", []).append(lambda r, n=named: r.jobs_of([n]))  # type: ignore[misc]
        asked.setdefault("forecast", []).append(lambda r, n=named: r.forecast(n))  # type: ignore[misc]
        asked.setdefault("latest_plan", []).append(
            lambda r, n=named: r.latest_plan(job_id=n)  # type: ignore[misc]
        )
        asked.setdefault("workload_forecast", []).append(
            lambda r, n=named: r.workload_forecast(n)  # type: ignore[misc]
        )
        asked.setdefault("job_holdings", []).append(
            lambda r, n=named: r.job_holdings((n,), **span)  # type: ignore[misc]
        )
        asked.setdefault("job_hours", []).append(
            lambda r, n=named: r.job_hours((n,), start=end - DAY)  # type: ignore[misc]
        )
        asked.setdefault("unwell_boards", []).append(
            lambda r: r.unwell_boards(**span, throttled=0.0, hot=0.0, hot_memory=0.0)  # type: ignore[misc]
        )
        traced = TracedRange(**span, gpu_uuid=f"GPU-{tenant}-0")
        of_a_job = TracedRange(**span, job_id=named)
        for kind in ("readings", "slots"):
            asked.setdefault(kind, []).append(
                lambda r, k=kind, t=traced: getattr(r, k)(t, most=99)  # type: ignore[misc]
            )
        asked["slots"].append(lambda r, t=of_a_job: r.slots(t, most=99))  # type: ignore[misc]
        asked.setdefault("board_history", []).append(
            lambda r, n=tenant: r.board_history(f"GPU-{n}-0", **span, **slots)  # type: ignore[misc]
        )
        asked.setdefault("similar_jobs", []).append(
            lambda r, entry=job[tenant]: r.similar_jobs(entry, most=9)  # type: ignore[misc]
        )
        for digest in digests[tenant]:
            asked.setdefault("recommendation", []).append(
                lambda r, d=digest: _or_none(lambda: r.recommendation(d, now=end))  # type: ignore[misc]
            )
            asked.setdefault("kept_recommendation", []).append(
                lambda r, d=digest: _or_none(lambda: r.kept_recommendation(d))  # type: ignore[misc]
            )
            asked.setdefault("recommendations_of", []).append(
                lambda r, d=digest: _or_none(lambda: r.recommendations_of([d], now=end))  # type: ignore[misc]
            )
            asked.setdefault("finding_about", []).append(lambda r, d=digest: r.finding_about(d))  # type: ignore[misc]
            asked.setdefault("approval_row", []).append(lambda r, d=digest: r.approval_row(d))  # type: ignore[misc]
            asked.setdefault("finding_number", []).append(
                lambda r, d=digest: _or_none(lambda: r.finding_number(d))  # type: ignore[misc]
            )
    asked["entries_about"] = [lambda r, n=n: r.entries_about(n) for n in (1, 2, 3, 4)]  # type: ignore[misc]
    return asked


def _or_none(ask: Callable[[], object]) -> object:
    from data.base.errors import NotKnownError

    try:
        return ask()
    except NotKnownError:
        return None


def said(answer: object) -> str:
    """All that an answer holds."""
    text = answer.to_csv() if hasattr(answer, "to_csv") else repr(answer)  # type: ignore[attr-defined]
    return str(text)


def owned(store: Store, tenant: str) -> OwnedReader:
    """The reader of a tenant's owner."""
    names = OwnNames(owners=frozenset({tenant}), users=frozenset({tenant}))
    return OwnedReader(store.reader_for_pages(), names)


def test_no_question_tells_of_others_and_each_tells_of_ones_own(
    filled: tuple[Store, datetime],
) -> None:
    """Word for word, of every question that a reader answers."""
    store, end = filled
    whole = store.reader_for_pages()
    mine = owned(store, MINE)
    silent = set()
    for name, ways in questions(whole, end).items():
        everything = " ".join(said(ask(whole)) for ask in ways)
        shown = " ".join(said(ask(mine)) for ask in ways)
        assert THEIRS not in shown, name
        if MINE in everything and MINE not in shown:
            silent.add(name)
    assert silent == set()


def test_every_question_is_looked_at(filled: tuple[Store, datetime]) -> None:
    """Whoever adds one says here what it tells an owner."""
    store, end = filled
    every = {
        name
        for name, found in inspect.getmembers(CachedReader)
        if callable(found) and not name.startswith("_")
    }
    asked = set(questions(store.reader_for_pages(), end))
    assert every - asked - WHOLE - FOR_THE_FLEET == set()


def test_every_table_is_open_cut_down_or_closed(filled: tuple[Store, datetime]) -> None:
    """A new table that nobody thought of would be read whole. Partitions count as one."""
    store, _end = filled
    rows = store.reader._rows(
        sa.text(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema IN ('main', 'public') AND table_type = 'BASE TABLE'"
        )
    )
    names = {re.sub(r"_\d+$", "", row.table_name) for row in rows}
    assert names <= OPEN | CLOSED | set(_OWNER_CONDITIONS)


WORDS = ("", "ann", "Ann", "team", "o'brien", "a:b", "é", "%", ":x", "x y")


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CachedReader]:
    """A job of every pair of an owner and a user."""
    folder = tmp_path_factory.mktemp("named")
    jobs = tuple(
        make_job(f"{owner}|{user}", owner=owner, scheduler=SchedulerFacts(user=user))
        for owner, user in itertools.product(WORDS, WORDS)
    )
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        store.keep(make_collected(jobs=(*jobs, make_job("bare", owner="ann"))))
        yield store.reader_for_pages()


@given(
    owners=st.frozensets(st.sampled_from(WORDS[1:])),
    users=st.frozensets(st.sampled_from(WORDS[1:])),
)
@settings(max_examples=examples(30))
def test_whose_a_job_is_is_one_answer(
    named: CachedReader, owners: frozenset[str], users: frozenset[str]
) -> None:
    """By the store's condition and by the one under which people decide."""
    names = OwnNames(owners=owners, users=users)
    found = OwnedReader(named, names).owned_jobs()
    assert found == {job.job_id for job in named.jobs() if names.hold(job)}
    assert {job.job_id for job in OwnedReader(named, names).jobs()} == found
