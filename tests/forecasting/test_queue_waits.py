"""The forecast of waits in the queue against an event simulator of queues: FIFO and backfill."""

import copy
import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from beds.slurm_queue import BOARDS, DEPTH, NODES, Look, QueueJob, jobs_of_users
from beds.slurm_queue import simulate as simulate_nodes
from factories import make_job
from hypothesis import given
from hypothesis import strategies as st

from data.facts.jobs import Job, JobState, JobWait, Platform, SchedulerFacts
from data.facts.queue_waits import EXPECTED_START, PlaceInLine, QueueWait
from forecasting.groups.queue_waits import places_in_line, queue_waits
from forecasting.groups.sooner_starts import SoonerStart, sooner_starts

START = datetime(2026, 1, 5, tzinfo=UTC)
AS_OF = START + timedelta(days=7)
WEEK, MINUTE = 7 * 86_400.0, 60.0
SEED = 9000


@dataclass
class Run:
    """One job of the simulated queue; times in s from START."""

    number: int
    came: float
    gpus: int
    length: float
    limit: float
    started: float = np.inf

    @property
    def ended(self) -> float:
        """When it gives its GPUs back."""
        return self.started + self.length


def drawn(seed: int, *, load: float, boards: int) -> list[Run]:
    """Return two weeks of jobs that come in bursts and by day, at a mean load of the boards."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 1, 2, 4, 8], 200_000)
    lengths = rng.lognormal(np.log(3600), 1.2, 200_000).clip(60, 48 * 3600)
    work = float((sizes * lengths).mean())
    gap = work / (load * boards)
    runs, now = [], 0.0
    while now < 2 * WEEK:
        by_day = 1.4 if 8 <= now / 3600 % 24 < 20 else 0.6
        now += rng.exponential(gap / by_day * 3)
        for _ in range(rng.poisson(3)):
            number = len(runs)
            length = float(lengths[number])
            limit = length * float(rng.uniform(1.0, 3.0))
            runs.append(Run(number, now, int(sizes[number]), length, limit))
    return runs


def simulate(runs: list[Run], boards: int, *, backfill: bool) -> None:
    """Start the runs in order of arrival; with `backfill` others pass where they delay no first."""
    free, waiting, running = boards, list[Run](), list[tuple[float, int, Run]]()
    arrivals = sorted(runs, key=lambda run: (run.came, run.number))
    at = 0
    while at < len(arrivals) or waiting:
        coming = arrivals[at].came if at < len(arrivals) else np.inf
        now = min(coming, running[0][0] if running else np.inf)
        while running and running[0][0] <= now:
            free += heapq.heappop(running)[2].gpus
        while at < len(arrivals) and arrivals[at].came <= now:
            waiting.append(arrivals[at])
            at += 1
        for run in _startable(waiting, running, free, now, backfill=backfill):
            waiting.remove(run)
            run.started = now
            free -= run.gpus
            heapq.heappush(running, (run.ended, run.number, run))


def _startable(
    waiting: list[Run],
    running: list[tuple[float, int, Run]],
    free: int,
    now: float,
    *,
    backfill: bool,
) -> list[Run]:
    found, left = list[Run](), list(waiting)
    while left and left[0].gpus <= free:
        found.append(left.pop(0))
        free -= found[-1].gpus
    if not backfill or not left:
        return found
    room, shadow, spare = free, np.inf, 0
    holding = [(run.started + run.limit, run.gpus) for _end, _number, run in running]
    holding += [(now + run.limit, run.gpus) for run in found]
    for end, gpus in sorted(holding):
        room += gpus
        if room >= left[0].gpus:
            shadow, spare = end, room - left[0].gpus
            break
    for run in left[1:]:
        ends_before = now + run.limit <= shadow
        if run.gpus <= free and (ends_before or run.gpus <= spare):
            found.append(run)
            free -= run.gpus
            spare -= 0 if ends_before else run.gpus
    return found


def seen(run: Run, as_of: float) -> Job:
    """Return what Slurm tells of a run at a time."""

    def moment(seconds: float) -> datetime | None:
        return START + timedelta(seconds=seconds) if seconds <= as_of else None

    state = JobState.PENDING if run.started > as_of else JobState.RUNNING
    return make_job(
        f"slurm:{run.number}",
        platform=Platform.SLURM,
        namespace="gpu",
        gpu_count=run.gpus,
        first_seen_at=START + timedelta(seconds=run.came),
        last_seen_at=START + timedelta(seconds=min(as_of, run.ended)),
        source="slurm",
        scheduler=SchedulerFacts(
            state=JobState.FINISHED if run.ended <= as_of else state,
            submitted_at=START + timedelta(seconds=run.came),
            started_at=moment(run.started),
            ended_at=moment(run.ended),
        ),
    )


def waited(
    seed: int, *, load: float, boards: int, backfill: bool
) -> tuple[QueueWait, float] | None:
    """Return the forecast for a job that is requeued after a week, and how long it then waits."""
    runs = drawn(seed, load=load, boards=boards)
    simulate(runs, boards, backfill=backfill)
    running = [run for run in runs if run.started <= WEEK < run.ended]
    if not running:
        return None
    chosen = running[int(np.random.default_rng(seed).integers(len(running)))]
    known = [seen(run, WEEK) for run in runs if run.came <= WEEK]
    forecast = queue_waits(known, AS_OF)[f"slurm:{chosen.number}"]
    again = replace(chosen, came=WEEK + 1e-3, started=np.inf, length=chosen.ended - WEEK)
    # What ran up to now ran as it did: the queue goes on from here without the requeued job.
    rest = [
        replace(run, started=np.inf, came=max(run.came, WEEK)) for run in runs if run.started > WEEK
    ]
    held = [
        replace(run, came=WEEK - 1, started=np.inf, length=run.ended - WEEK, number=-1)
        for run in running
        if run is not chosen
    ]
    for run in held:
        run.limit = max(run.length, run.limit - (WEEK - run.came))
    simulate([*held, again, *rest], boards, backfill=backfill)
    return forecast, again.started - again.came


@pytest.mark.parametrize("backfill", [False, True], ids=["fifo", "backfill"])
def test_waits_lie_within_the_band(backfill: bool) -> None:
    """Four in five on draws that it was not tuned on; more where half of all waits are zero."""
    inside, above, moved, count = 0, 0, 0, 0
    for seed, load in itertools.product(range(5000, 5030), (0.6, 0.85, 0.97)):
        found = waited(seed, load=load, boards=32, backfill=backfill)
        if found is None:
            continue
        forecast, wait = found
        assert forecast.known
        assert forecast.low <= forecast.median <= forecast.high
        inside += forecast.low - MINUTE <= wait <= forecast.high + MINUTE
        above += wait > forecast.high + MINUTE
        moved += forecast.median > MINUTE
        count += 1
    assert count >= 80
    assert inside / count >= 0.75
    assert above / count <= 0.15
    assert moved / count >= 0.4


@pytest.mark.parametrize("backfill", [False, True], ids=["fifo", "backfill"])
def test_jobs_that_wait_already_start_within_the_band(backfill: bool) -> None:
    """Of the jobs in line after a week, four of each draw: when they started in the end."""
    inside, above, errors, waits = 0, 0, list[float](), list[float]()
    for seed, load in itertools.product(range(5000, 5030), (0.85, 0.97)):
        runs = drawn(seed, load=load, boards=32)
        simulate(runs, 32, backfill=backfill)
        known = [seen(run, WEEK) for run in runs if run.came <= WEEK]
        places = {place.job_id: place for place in places_in_line(known, AS_OF)}
        in_line = sorted(
            (run for run in runs if run.came <= WEEK < run.started),
            key=lambda run: (run.came, run.number),
        )
        assert set(places) == {f"slurm:{run.number}" for run in in_line}
        rng = np.random.default_rng(seed)
        for index in rng.choice(len(in_line), min(4, len(in_line)), replace=False):
            run = in_line[index]
            place = places[f"slurm:{run.number}"]
            assert place.jobs_ahead == index
            assert place.gpus_ahead == sum(before.gpus for before in in_line[:index])
            assert place.wait is not None
            wait = run.started - WEEK
            inside += place.wait.low - MINUTE <= wait <= place.wait.high + MINUTE
            above += wait > place.wait.high + MINUTE
            errors.append(abs(place.wait.median - wait))
            waits.append(wait)
    count = len(waits)
    print(  # noqa: T201 a figure of docs/internals/recommendations.md; shown by -rP
        f"{inside / count:.0%} of {count} within the band; median error "
        f"{np.median(errors) / 60:.0f} min of {np.median(waits) / 60:.0f}"
    )
    assert count >= 150
    assert inside / count >= 0.75
    assert above / count <= 0.2
    assert sum(errors) < sum(waits), "better than to say that the wait is over"


def placed(job: QueueJob, look: Look, *, told: bool) -> Job:
    """Return what Slurm tells of a job with a limit, and of its expected start where asked."""
    plain = seen(Run(job.number, job.came, job.gpus, job.length, job.limit, job.started), look.at)
    assert plain.scheduler is not None
    expected = look.expected.get(job.number, np.inf)
    return replace(
        plain,
        scheduler=replace(
            plain.scheduler,
            user=job.user,
            nodes=(f"n{job.node}",) if job.started <= look.at else (),
            time_limit_seconds=job.limit,
            extra=((EXPECTED_START, (START + timedelta(seconds=expected)).isoformat()),)
            if told and np.isfinite(expected)
            else (),
        ),
    )


@pytest.mark.slow
def test_with_limits_the_band_is_right_and_nearer_than_the_scheduler() -> None:
    """Of ten jobs in line of each queue, over all ratios of runs to their limits and users.

    No run is known from before: ratios are learned from the few that ended and from those that run.
    In every other queue Slurm tells the starts that it expects.
    """
    rows: list[tuple[float, ...]] = []
    for seed, ratio in enumerate((0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0), start=SEED):
        rng = np.random.default_rng(seed)
        told = seed % 2 == 1
        jobs = jobs_of_users(rng, ratio=ratio, users=(1, 6)[seed % 3 > 0], count=120)
        looks: list[tuple[Look, dict[str, PlaceInLine]]] = []

        def see(look: Look, jobs: Any = jobs, looks: Any = looks, told: bool = told) -> None:
            known = [placed(job, look, told=told) for job in jobs if job.came <= look.at]
            places = places_in_line(known, START + timedelta(seconds=look.at))
            looks.append((look, {place.job_id: place for place in places}))

        work = sum(job.length * job.gpus for job in jobs) / (NODES * BOARDS)
        simulate_nodes(jobs, [float(rng.uniform(0.05, 0.6)) * work], see)
        ((look, places),) = looks
        for at in rng.choice(min(DEPTH, len(look.line)), min(10, len(look.line)), replace=False):
            job = look.line[at]
            wait = places[f"slurm:{job.number}"].wait
            assert wait is not None
            assert ("expected start" in wait.basis) == told
            rows.append((wait.low, wait.median, wait.high, job.started, look.expected[job.number]))
            rows[-1] = (*rows[-1][:3], *(moment - look.at for moment in rows[-1][3:]))
    low, median, high, true, theirs = np.array(rows).T
    inside = np.mean((low - MINUTE <= true) & (true <= high + MINUTE))
    print(  # noqa: T201 a figure of docs/internals/recommendations.md; shown by -rP
        f"{inside:.0%} of {len(rows)} within the band; median error "
        f"{np.median(abs(median - true)) / 60:.0f} min, of the scheduler's start "
        f"{np.median(abs(theirs - true)) / 60:.0f}"
    )
    assert len(rows) >= 60
    assert inside >= 0.6, "jobs of one queue are early or late together"
    assert np.median(abs(median - true)) < np.median(abs(theirs - true))


def start_of(
    jobs: list[QueueJob], at: float, number: int, change: Callable[[QueueJob], None]
) -> float:
    """The start of a job that is changed while it waits, in a queue that is the same before."""
    jobs = copy.deepcopy(jobs)
    job = jobs[number]
    simulate_nodes(jobs, [at], lambda _look: change(job))
    return job.started


def carried_out(start: SoonerStart, job: QueueJob) -> bool:
    """Change the job as the words say; False where it would not end within its limit."""
    words = start.change.split()
    if "GPU" in words[1]:
        job.gpus = int(words[0])
    else:
        job.limit = float(words[words.index("h") - 1]) * 3600
    return job.length <= job.limit


def drawn_line(seed: int) -> tuple[list[QueueJob], float]:
    """Jobs of a queue, and a time at which many of them wait."""
    rng = np.random.default_rng(seed)
    jobs = jobs_of_users(rng, ratio=float(rng.uniform(0.3, 0.9)), users=4, count=120)
    work = sum(job.length * job.gpus for job in jobs) / (NODES * BOARDS)
    return jobs, float(rng.uniform(0.1, 0.5)) * work


@pytest.mark.slow
def test_most_changes_start_the_job_sooner() -> None:
    """A limit that its work does not keep is left out: the words say so."""
    changes, sooner, inside = 0, 0, 0
    for seed in range(SEED, SEED + 6):
        jobs, at = drawn_line(seed)
        played, starts = copy.deepcopy(jobs), dict[int, Sequence[SoonerStart]]()

        def see(look: Look, played: Any = played, starts: Any = starts, seed: int = seed) -> None:
            known = [placed(job, look, told=False) for job in played if job.came <= look.at]
            line, now = look.line[:DEPTH], START + timedelta(seconds=look.at)
            for job in np.random.default_rng(seed).choice(np.array(line), 4, replace=False):
                starts[job.number] = sooner_starts(known, f"slurm:{job.number}", now)

        simulate_nodes(played, [at], see)
        for number, changed in starts.items():
            before = start_of(jobs, at, number, lambda _job: None)
            for start in changed:
                fits: list[bool] = []
                then = start_of(
                    jobs, at, number, lambda job, s=start, f=fits: f.append(carried_out(s, job))
                )
                if all(fits):
                    changes += 1
                    sooner += then < before
                    inside += start.wait.low - MINUTE <= then - at <= start.wait.high + MINUTE
    print(  # noqa: T201 a figure of benchmarks/results/queue_waits.md; shown by -rP
        f"{sooner} of {changes} changes start the job sooner, {inside} within the interval"
    )
    assert changes >= 10
    assert sooner >= 0.8 * changes


def test_a_change_is_measured_by_the_start_that_the_scheduler_expects() -> None:
    """It expects the job twice as late as we do: the changed job too."""
    jobs, at = drawn_line(SEED)
    waits: list[list[float]] = []

    def see(look: Look) -> None:
        job = next(job for job in look.line if job.gpus == BOARDS)
        now = START + timedelta(seconds=look.at)
        for late in (1, 2):
            known = [placed(other, look, told=False) for other in jobs if other.came <= look.at]
            start = now + timedelta(seconds=late * (look.expected[job.number] - look.at))
            known = [
                replace(
                    other,
                    scheduler=replace(
                        other.scheduling, extra=((EXPECTED_START, start.isoformat()),)
                    ),
                )
                if other.job_id == f"slurm:{job.number}"
                else other
                for other in known
            ]
            found = sooner_starts(known, f"slurm:{job.number}", now)
            waits.append([start.wait.median for start in found if "GPU" in start.change])

    simulate_nodes(jobs, [at], see)
    assert waits[0]
    assert waits[1] == pytest.approx([2 * wait for wait in waits[0]])


@pytest.mark.parametrize("platform", [Platform.SLURM, Platform.KUBERNETES])
def test_another_queue_is_named_where_nobody_waits(platform: Platform) -> None:
    """A partition on nodes of its own, or a model with as much memory; none with shared nodes."""
    of_slurm = platform is Platform.SLURM
    waits = seen(Run(2, WEEK - 600, 4, 60, 60), WEEK)
    rest = []
    for number, (queue, node, model) in enumerate(
        [("gpu", "a1", "H100-SXM5-80GB"), ("spare", "b1", "A100-SXM4-80GB"),
         ("small", "a1", "L40S-48GB")]
    ):  # fmt: skip
        for run in range(3):
            job = seen(Run(10 * number + run + 10, run, 4, 60.0, 60.0, float(run)), WEEK)
            rest.append(
                replace(
                    job,
                    gpu_model="H100-SXM5-80GB" if of_slurm else model,
                    namespace=queue if of_slurm else "search",
                    scheduler=replace(
                        job.scheduling,
                        nodes=(node,),
                        state=JobState.RUNNING,
                        ended_at=None,
                        submitted_at=AS_OF - timedelta(hours=8),
                        started_at=AS_OF - timedelta(hours=8 - 7 * (queue == "gpu")),
                    ),
                    last_seen_at=AS_OF,
                )
            )
    jobs = [
        replace(job, platform=platform, gpu_model=job.gpu_model)
        for job in (replace(waits, gpu_model="H100-SXM5-80GB"), *rest)
    ]
    changes = [start.change for start in sooner_starts(jobs, "slurm:2", AS_OF)]
    other = "partition spare instead of gpu"
    assert (other in changes) is of_slurm
    assert not any("small" in change or "L40S" in change for change in changes)


@pytest.mark.parametrize(
    ("reason", "in_line"),
    [("Resources", True), ("Priority", True), ("", True), ("QOSMaxGRESPerUser", False),
     ("JobHeldUser", False), ("Dependency", False), ("BeginTime", False),
     ("JobHoldMaxRequeue", False), ("JobArrayTaskLimit", False), ("QOSMinGRES", False),
     ("ReqNodeNotAvail,_UnavailableNodes:h7", False), ("NodeDown", False)],
)  # fmt: skip
def test_a_job_that_does_not_wait_for_room_has_no_forecast_and_is_ahead_of_nobody(
    reason: str, in_line: bool
) -> None:
    """A held job starts when somebody lets it; who came after it does not wait for it."""
    first = seen(Run(2, WEEK - 600, 4, 60, 60), WEEK)
    assert first.scheduler is not None
    first = replace(first, scheduler=replace(first.scheduler, reason=reason))
    second = seen(Run(3, WEEK - 300, 2, 60, 60), WEEK)
    gone = replace(
        seen(Run(4, WEEK - 900, 2, 60, 60), WEEK), last_seen_at=AS_OF - timedelta(days=1)
    )
    places = places_in_line([second, gone, running(1), first], AS_OF)
    assert [(place.job_id, place.jobs_ahead, place.gpus_ahead) for place in places] == [
        ("slurm:2", 0, 0),
        ("slurm:3", int(in_line), 4 * in_line),
    ]
    assert (places[0].wait is not None) is in_line
    assert places[1].wait is not None
    assert places[1].wait.known


def running(number: int, **changes: object) -> Job:
    """Return a job of Slurm that runs since an hour before AS_OF and was submitted right then."""
    run = Run(number, WEEK - 3600, 1, 7200, 7200, started=WEEK - 3600)
    return replace(seen(run, WEEK), **changes)  # type: ignore[arg-type]


def test_without_any_start_in_a_week_nothing_is_known() -> None:
    """The job that runs since before, those that never started or whose submission is unknown."""
    run = Run(1, -9 * 86_400, 1, 3e6, 3e6, started=-9 * 86_400)
    pending = Run(2, WEEK - 60, 1, 60, 60)
    unnamed = running(3, scheduler=SchedulerFacts(started_at=START))
    found = queue_waits([seen(run, WEEK), seen(pending, WEEK), unnamed], AS_OF)
    assert list(found) == ["slurm:1"]
    assert not found["slurm:1"].known
    assert found["slurm:1"].describe() == "unknown: no start was seen in the last 7 d"


def test_few_starts_are_drawn_towards_the_prior() -> None:
    """One start at once leaves the band wide; a hundred leave none."""
    few = queue_waits([running(0)], AS_OF)["slurm:0"]
    many = queue_waits([running(number) for number in range(100)], AS_OF)["slurm:0"]
    assert few.high > 600
    assert few.describe().endswith("from 1 start in the last 7 d")
    assert (many.low, many.median, many.high) == (0, 0, 0)
    assert many.describe() == "0 (0–0) min, from 100 starts in the last 7 d"


def test_a_longer_queue_means_a_longer_wait() -> None:
    """Of the same past, with hundreds of GPUs waiting instead of none."""
    runs = drawn(3, load=0.9, boards=32)
    simulate(runs, 32, backfill=False)
    known = [seen(run, WEEK) for run in runs if run.started <= WEEK]
    waiting = [seen(Run(10**6 + number, WEEK - 60, 8, 60, 60), WEEK) for number in range(50)]
    chosen = next(f"slurm:{run.number}" for run in runs if run.started <= WEEK < run.ended)
    short, long = (queue_waits(jobs, AS_OF)[chosen] for jobs in (known, known + waiting))
    assert long.median > short.median
    assert long.mean > short.mean


def test_queues_are_apart_and_jobs_without_a_scheduler_have_none() -> None:
    """Another partition, another source, and what telemetry alone names."""
    here, there = running(1), running(2, namespace="other")
    elsewhere, nobody = running(3, source="slurm of others"), running(4, scheduler=None)
    found = queue_waits([here, there, elsewhere, nobody], AS_OF)
    assert {job_id: wait.starts for job_id, wait in found.items()} == {
        "slurm:1": 1,
        "slurm:2": 1,
        "slurm:3": 1,
    }


def test_requeued_runs_are_no_starts() -> None:
    """They hold GPUs as runs of other jobs do, and ask for what they gave back themselves."""
    runs = [
        Run(number, WEEK - hours * 3600, 2 * number + 1, 7200, 7200, started=WEEK - start * 3600)
        for number, (hours, start) in enumerate(((60, 12), (10, 9), (8, 1.5)))
    ]
    others = [
        replace(run, length=runs[at + 1].came - run.started) for at, run in enumerate(runs[:-1])
    ]
    last = seen(runs[-1], WEEK)
    assert last.scheduler is not None
    waits = tuple(
        JobWait(
            submitted_at=START + timedelta(seconds=run.came),
            started_at=START + timedelta(seconds=run.started),
            gpu_count=run.gpus,
            gpu_model=last.gpu_model,
        )
        for run in others
    )
    requeued = replace(last, scheduler=replace(last.scheduler, earlier_waits=waits))
    assert queue_waits([*(seen(run, WEEK) for run in others), last], AS_OF)[last.job_id].starts == 3
    assert queue_waits([requeued], AS_OF)[last.job_id].starts == 1
    restarted = replace(last, scheduler=replace(last.scheduler, extra=(("restarts", "1"),)))
    assert not queue_waits([restarted], AS_OF)[last.job_id].known


AT_ONCE = [
    seen(Run(number, WEEK - 60, 1, 7200, 7200, started=WEEK - 60), WEEK)
    for number in range(500, 900)
]


@given(
    past_hours=st.lists(st.floats(0, 60), max_size=30),
    waited_hours=st.floats(4, 60),
)
def test_what_is_left_of_a_long_wait_is_the_rest_of_those_as_long(
    past_hours: list[float], waited_hours: float
) -> None:
    """Against the plain conditional quantile; hours beyond the prior, boards enough for all.

    Nine in ten start at once, so hours of waiting are more than any job could expect.
    """
    past = [
        seen(Run(at, WEEK - 60 - hours * 3600, 1, 7200, 7200, started=WEEK - 60), WEEK)
        for at, hours in enumerate(past_hours)
    ]
    large = seen(Run(1000, WEEK - 6 * 86_400, 1000, 60, 60, started=WEEK - 6 * 86_400), WEEK)
    waited = round(waited_hours * 3600)
    pending = seen(Run(1001, WEEK - waited, 1, 60, 60), WEEK)
    (place,) = places_in_line([*past, *AT_ONCE, large, pending], AS_OF)
    rests = [
        rest
        for job in past
        if job.wait is not None
        and (rest := (job.wait.started_at - job.wait.submitted_at).total_seconds() - waited) >= 0
    ]
    assert place.wait is not None
    assert place.wait.known is (len(rests) >= 3)
    if place.wait.known:
        assert [place.wait.low, place.wait.median, place.wait.high] == pytest.approx(
            np.quantile(rests, [0.1, 0.5, 0.9], method="inverted_cdf"), abs=1e-3
        )
        assert place.wait.mean == pytest.approx(np.mean(rests), abs=1e-3)
    else:
        assert place.wait.basis.startswith("unknown: ")
        assert f" that waited {waited / 3600:.1f} h or longer" in place.wait.basis
