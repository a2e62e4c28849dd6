"""Reading for pages: what many jobs come to, and answers kept until something is written."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from beds.stores import filled
from factories import NOW, make_collected, make_job, make_plan, make_samples
from planning_cases import forecast_of

from data.facts.job_pages import JobFilter
from data.facts.jobs import JobState, SchedulerFacts
from data.records.forecasts import DemandForecast, ForecastSkipped, Quantity
from data.store import Store, StoreReader, open_store
from data.store.handles.cached_reader import CachedReader

WINDOW = {
    "start": NOW - timedelta(days=1),
    "end": NOW,
    "running_since": NOW - timedelta(hours=1),
}
IDLE, BUSY, OLD = "search/idle", "search/busy", "vision/old"


def fill(store: Store) -> None:
    """Keep an idle and a busy job of search, and one of vision that ended without telemetry."""
    facts = SchedulerFacts(state=JobState.FINISHED, user="ann", account="eyes")
    jobs = (
        make_job(IDLE),
        make_job(BUSY),
        make_job(OLD, owner="Vision", last_seen_at=NOW - timedelta(days=3), scheduler=facts),
    )
    store.keep(
        make_collected(make_samples(job_id=IDLE, utilization_ratio=0.0), jobs),
        make_collected(make_samples(job_id=BUSY, gpu_uuid="GPU-b", utilization_ratio=1.0), ()),
    )


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store of these jobs."""
    with filled(store_url, fill) as opened:
        yield opened


def ids(store: Store, wanted: JobFilter, **changes: object) -> list[str]:
    """The jobs of a page, in order."""
    asked = WINDOW | {"order": "waste", "most": 10} | changes
    return [row.job.job_id for row in store.reader.job_page(wanted, **asked).rows]


def test_the_most_wasteful_job_comes_first(store: Store) -> None:
    """Sorted by idle GPU-hours; a job that nothing is known of comes last, not as zero."""
    assert ids(store, JobFilter()) == [IDLE, BUSY, OLD]
    last = store.reader.job_page(JobFilter(), **WINDOW, order="waste", most=10).rows[-1]
    assert last.idle_gpu_hours is None


@pytest.mark.parametrize("known", [0, 12, 30, 60])
@pytest.mark.parametrize("at_work", [0.0, 0.25, 1.0])
def test_utilization_is_that_of_the_time_that_is_known(
    store_url: str, known: int, at_work: float
) -> None:
    """A job that is idle whenever it was read is no job at half work for the rest of the hour."""
    samples = make_samples(job_id=BUSY, utilization_ratio=at_work, memory_used_mib=700.0)
    samples.loc[samples.index[known:], "utilization_ratio"] = float("nan")
    with open_store(store_url) as store:
        store.keep(make_collected(samples, (make_job(BUSY),)))
        (row,) = store.reader.job_page(JobFilter(), **WINDOW, order="waste", most=1).rows
    assert row.utilization_ratio == (pytest.approx(at_work) if known else None)
    assert row.memory_mib == pytest.approx(700.0)
    assert row.memory_total_mib == samples["memory_total_mib"].max()


def test_sums_are_over_all_pages(store: Store) -> None:
    """A page of one row still tells what all jobs found come to."""
    page = store.reader.job_page(JobFilter(), **WINDOW, order="waste", most=1)
    assert (len(page.rows), page.found, page.running) == (1, 3, 2)
    # 59 intervals of a minute on each of two boards; one of the boards did nothing.
    assert page.gpu_hours == pytest.approx(2 * 59 / 60)
    assert page.idle_gpu_hours == pytest.approx(59 / 60)


def test_pages_follow_one_another(store: Store) -> None:
    """Every job is on exactly one page."""
    pages = [ids(store, JobFilter(), most=1, skipped=at) for at in range(4)]
    assert pages == [[IDLE], [BUSY], [OLD], []]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (JobFilter(fields=(("namespace", "vision"),)), [OLD]),
        (JobFilter(fields=(("user", "ann"), ("team", "eyes"))), [OLD]),
        (JobFilter(fields=(("state", "finished"),)), [OLD]),
        (JobFilter(fields=(("state", "unknown"), ("kind", "inference"))), [IDLE, BUSY]),
        (JobFilter(fields=(("owner", "nobody' OR '1'='1"),)), []),
        (JobFilter(search="BUS"), [BUSY]),
        (JobFilter(search="100%_"), []),
        (JobFilter(running=True), [IDLE, BUSY]),
    ],
)
def test_filters_choose(store: Store, wanted: JobFilter, expected: list[str]) -> None:
    """By field, by a part of the name in any case, by running; values are never SQL."""
    assert ids(store, wanted) == expected


@pytest.mark.parametrize("state", JobState)
def test_what_waits_or_is_over_does_not_run(store_url: str, state: JobState) -> None:
    """However lately its scheduler told of it; where none tells, what is seen runs."""
    with open_store(store_url) as store:
        job = make_job(scheduler=SchedulerFacts(state=state), last_seen_at=NOW)
        store.keep(make_collected(make_samples(), (job,)))
        runs = state in (JobState.RUNNING, JobState.UNKNOWN)
        page = store.reader.job_page(JobFilter(running=True), **WINDOW, order="name", most=9)
        assert [row.job.job_id for row in page.rows] == [job.job_id] * runs
        assert (page.found, page.running) == (runs, runs)
        assert store.reader.job_page(JobFilter(), **WINDOW, order="name", most=9).running == runs


def test_choices_are_the_values_that_jobs_have(store: Store) -> None:
    """Without the empty one; a job without a scheduler has the state unknown."""
    choices = store.reader.job_choices()
    assert (choices["team"], choices["state"]) == (("eyes",), ("finished", "unknown"))


def test_a_foreign_filter_is_refused(store: Store) -> None:
    """What is no filter and no order never reaches SQL."""
    with pytest.raises(KeyError):
        ids(store, JobFilter(fields=(("record) --", "x"),)))
    with pytest.raises(KeyError):
        store.reader.job_page(JobFilter(), **WINDOW, order="job_id; --", most=1)


def alone(store: Store) -> CachedReader:
    """A reader in the only process that writes."""
    return store.reader_for_pages()


def beside_others(store: Store) -> CachedReader:
    """A reader that does not know when others write."""
    return CachedReader(store._engine)


each_reader = pytest.mark.parametrize("reader_of", [alone, beside_others])


@each_reader
def test_answers_are_kept_until_something_is_written(
    store: Store, monkeypatch: pytest.MonkeyPatch, reader_of: Callable[[Store], CachedReader]
) -> None:
    """Asked twice the store is read once; a new batch or cycle makes the answer anew."""
    reads = []
    read = StoreReader._frame

    def counted(self: StoreReader, query: str, **named: object) -> object:
        reads.append(query)
        return read(self, query, **named)

    monkeypatch.setattr(StoreReader, "_frame", counted)
    reader = reader_of(store)
    window = {"start": NOW - timedelta(hours=1), "end": NOW}
    first = reader.boards(**window)
    first["node"] = "changed by a page"
    assert set(reader.boards(**window)["node"]) == {"node-1"}
    assert len(reads) == 1
    later = make_samples(gpu_uuid="GPU-c", job_id=BUSY)
    store.keep(replace(make_collected(later, ()), batch_id="later"))
    assert len(reader.boards(**window)) == 3
    keep_cycle(store)
    reader.boards(**window)
    assert len(reads) == 3


def keep_cycle(store: Store, *forecasts: DemandForecast | ForecastSkipped) -> None:
    """Keep the thoughts of a cycle that forecast this and planned nothing."""
    store.keep_cycle(
        cycle_id="c",
        started_at=NOW,
        finished_at=NOW,
        forecasts=forecasts,
        plan=make_plan(),
        recommendations=(),
    )


@each_reader
def test_a_decision_makes_states_anew(
    store: Store, reader_of: Callable[[Store], CachedReader]
) -> None:
    """What was decided a moment ago is seen at once, though no fact has changed."""
    reader = reader_of(store)
    facts, before = reader.version(), reader.version(decisions=True)
    store.append_audit(at=NOW, actor="ann", event="approved", digest="", detail="")
    assert reader.version() == facts
    assert reader.version(decisions=True) != before


@each_reader
def test_the_kill_switch_makes_the_record_anew_and_no_finding(
    store: Store, reader_of: Callable[[Store], CachedReader]
) -> None:
    """A switch that is thrown each second leaves what rests on facts and decisions as it was."""
    reader, made = reader_of(store), []
    for event in ("stopped", "resumed", "stop-asked", "resume-asked"):
        before = reader.version(record=True)
        reader.remember("findings", lambda: made.append(1), decisions=True)
        store.append_audit(at=NOW, actor="ann", event=event, digest="", detail="")
        assert reader.version(record=True) != before
    assert len(made) == 1


def test_the_only_process_that_writes_asks_once_after_each_of_its_commits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read to know that nothing was written, unless other processes may write."""
    reader, asked = alone(store), []
    read = StoreReader._rows
    monkeypatch.setattr(StoreReader, "_rows", lambda *given: asked.append(1) or read(*given))
    for _ in range(3):
        reader.version(decisions=True)
    assert len(asked) == (3 if store.is_shared else 1)
    store.append_audit(at=NOW, actor="ann", event="stopped", digest="", detail="")
    reader.version()
    reader.version(decisions=True)
    assert len(asked) == (5 if store.is_shared else 2)


def test_demand_is_added_up(store: Store) -> None:
    """The sum of the jobs' paths; skipped jobs add nothing, none at all is unknown."""
    assert store.reader.demand_total() is None
    skipped = ForecastSkipped(job_id=OLD, reason="ended", samples=1, history_slots=1, known_slots=1)
    one = forecast_of(make_job(IDLE), [1.0, 2.0], 1024.0, None)
    other = forecast_of(make_job(BUSY), [3.0, 3.0], 1024.0, None)
    keep_cycle(store, one, skipped, other)
    total = store.reader.demand_total()
    assert total is not None
    assert total[0] == one.slot_starts
    assert total[1].q50 == (4.0, 5.0)
    assert store.reader.forecast_counts() == (2, 1)
    assert store.reader.forecast_jobs() == ((IDLE, False), (OLD, True), (BUSY, False))


def test_jobs_can_be_those_seen_lately(store: Store) -> None:
    """A job that was last seen before is left out; without a time none is."""
    lately = store.reader.jobs(seen_since=NOW - timedelta(days=1))
    assert {job.job_id for job in lately} == {IDLE, BUSY}
    assert {job.job_id for job in store.reader.jobs()} == {IDLE, BUSY, OLD}


def test_forecasts_are_read_one_by_one_and_by_quantity(store: Store) -> None:
    """One job's forecast is the one kept; of one quantity the other paths are left out."""
    one = forecast_of(make_job(IDLE), [1.0, 2.0], 1024.0, 300.0)
    keep_cycle(store, one)
    assert store.reader.forecast(IDLE) == one
    assert store.reader.forecast(BUSY) is None
    (memory,) = store.reader.forecasts_of(Quantity.MEMORY)
    assert [path.quantity for path in memory.paths] == [Quantity.MEMORY]
    assert memory.path(Quantity.MEMORY) == one.path(Quantity.MEMORY)
