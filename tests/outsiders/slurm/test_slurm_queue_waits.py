"""The wait in the queue that is forecast for a requeue, against waits of a real Slurm.

A stream of jobs keeps the GPUs of a small cluster full. Now and then one that runs is given up and
asks for as many GPUs again: what it waits is the truth. A second of the cluster counts as a minute.
"""

import random
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_apply import GPU_MODELS
from beds.slurm_files import BedNode
from outsiders.campaign import SEED, source_of
from reliability import Measured

from collectors.shared.collector import Window
from collectors.slurm.jobs import slurm_collector
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job, JobState
from data.facts.queue_waits import EXPECTED_START, QueueWait
from data.settings.sources import SlurmSettings
from forecasting.groups.queue_waits import places_in_line, queue_waits

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.slow_end]
NODES = (
    *(BedNode(name=f"h{n}", gpu_type="h100", gpus=4, cpus=8, features="h100") for n in (1, 2)),
    BedNode(name="c1", features="cpuonly"),
)
SCALE = 60
"""Seconds that one second of the cluster counts for."""
SIZES = (1, 1, 2, 4)
MEAN_SECONDS, GAP_SECONDS = 7.0, 2.0
"""Of a job's run, and between two that come: as much as eight GPUs can do."""
LEARNING_SECONDS, PROBING_SECONDS, WAITING_SECONDS = 90.0, 300.0, 60.0
PROBE_EVERY = 6.0
DRAWN, AT_FIRST, LATER_SECONDS, EMPTYING_SECONDS = 200, 100, 1.5, 300.0
"""Jobs in all, those that come at once, and the time between the others."""
MIN_IN_LINE_RATIO = 0.5
"""74 to 92 % were measured on three seeds (benchmarks/results/queue_waits.md). The goal is 0.75."""
LIMITS, PER_LOOK, MIN_GUESSES = (1, 1, 1, 2, 2), 6, 60
FINE = "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,bf_resolution=1"
"""Limits are minutes: rounded to the default of 60 s, expected starts would be twice as far."""
MIN_COVERED_RATIO = 0.6
"""Of a band that should hold 80 %: fifty waits say no more."""


@dataclass(frozen=True)
class Probe:
    """A job that was given up and asked for again, and the forecast of its wait."""

    job: str
    forecast: QueueWait


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """Eight GPUs."""
    with running_slurm(nodes=NODES) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def large_bed() -> Iterator[SlurmBed]:
    """Thirty-two GPUs."""
    nodes = [
        BedNode(name=f"h{n}", gpu_type="h100", gpus=4, cpus=8, features="h100") for n in range(8)
    ]
    with running_slurm(nodes=(*nodes, NODES[-1]), further=FINE) as cluster:
        yield cluster


def stretched(job: Job, since: datetime) -> Job:
    """Return a job as it would be if every second since then was a minute."""

    def at(moment: datetime | None) -> datetime | None:
        return None if moment is None else since + (moment - since) * SCALE

    facts = job.scheduler
    assert facts is not None
    return replace(
        job,
        first_seen_at=since + (job.first_seen_at - since) * SCALE,
        last_seen_at=since + (job.last_seen_at - since) * SCALE,
        scheduler=replace(
            facts,
            submitted_at=at(facts.submitted_at),
            started_at=at(facts.started_at),
            ended_at=at(facts.ended_at),
            time_limit_seconds=None
            if facts.time_limit_seconds is None
            else facts.time_limit_seconds * SCALE,
        ),
    )


@dataclass
class Stream:
    """The jobs of the cluster as the collector has seen them so far."""

    bed: SlurmBed
    source: random.Random
    since: datetime
    jobs: dict[str, Job]

    def submit(self, gpus: int) -> str:
        """Submit a job of so many GPUs and give its number."""
        seconds = max(2, min(40, round(self.source.expovariate(1 / MEAN_SECONDS))))
        return self.bed.submit(
            f"--gres=gpu:h100:{gpus}", "-N1", "-c1", "-t2", "--no-requeue", seconds=seconds
        )

    def look(self) -> datetime:
        """Ask the collector, and give the time."""
        now = utc_now()
        settings = SlurmSettings(
            mode="commands", conf_file=str(self.bed.conf), gpu_models=GPU_MODELS
        )
        found = slurm_collector(settings, load_gpu_catalogue()).collect(
            Window(start=self.since, end=now)
        )
        self.jobs |= {job.job_id: job for job in found.jobs}
        return now

    def probe(self) -> Probe | None:
        """Give up a running job and ask for its GPUs again; the forecast is made before."""
        now = self.look()
        held = [
            job
            for job in self.jobs.values()
            if job.scheduler is not None and job.scheduler.state is JobState.RUNNING
        ]
        if not held:
            return None
        job = self.source.choice(sorted(held, key=lambda name: name.job_id))
        stretched_now = self.since + (now - self.since) * SCALE
        known = [stretched(entry, self.since) for entry in self.jobs.values()]
        forecast = queue_waits(known, stretched_now)[job.job_id]
        self.bed.run("scancel", job.job_id.removeprefix("slurm:"))
        return Probe(job=self.submit(job.gpu_count), forecast=forecast)

    def wait_of(self, probe: Probe) -> timedelta:
        """Return what it waited, in stretched time."""
        facts = self.jobs[f"slurm:{probe.job}"].scheduler
        assert facts is not None
        assert facts.submitted_at is not None
        started = facts.started_at or self.look()
        return (started - facts.submitted_at) * SCALE


def streamed(stream: Stream) -> list[Probe]:
    """Let jobs come, first to learn from, then with probes among them."""
    begun = time.monotonic()
    probes: list[Probe] = []
    next_job, next_look = begun, begun
    next_probe = begun + LEARNING_SECONDS
    while (now := time.monotonic()) < begun + LEARNING_SECONDS + PROBING_SECONDS:
        if now >= next_job:
            stream.submit(stream.source.choice(SIZES))
            next_job += stream.source.expovariate(1 / GAP_SECONDS)
        if now >= next_look:
            stream.look()
            next_look = now + 2.0
        if now >= next_probe:
            probe = stream.probe()
            probes += [probe] if probe is not None else []
            next_probe = now + PROBE_EVERY
        time.sleep(0.05)
    ends = time.monotonic() + WAITING_SECONDS
    while time.monotonic() < ends and stream.bed.run("squeue", "-h", "-t", "PD"):
        stream.look()
        time.sleep(1.0)
    stream.look()
    return probes


def test_waits_fall_into_the_band(bed: SlurmBed, measured: Measured) -> None:
    """Four of five of them, and as many above the median as below within chance."""
    stream = Stream(bed, source_of("slurm waits", 0), utc_now().replace(microsecond=0), {})
    probes = streamed(stream)
    waits = [stream.wait_of(probe).total_seconds() for probe in probes]
    pairs = list(zip(probes, waits, strict=True))
    slack = SCALE * 2.0
    """Slurm keeps whole seconds, and looks at its queue once in one."""
    covered = sum(
        entry.forecast.low - slack <= wait <= entry.forecast.high + slack for entry, wait in pairs
    )
    above = sum(wait > entry.forecast.median for entry, wait in pairs)
    mean = sum(waits) / len(waits)
    line = (
        f"slurm waits: {len(pairs)} requeues, {covered} in the 80 % band, {above} above the median,"
        f" mean wait {mean / 60:.0f} min at a minute a second, seed {SEED}"
    )
    print(line)  # noqa: T201 shown with a failure and by `make test-all`
    measured(line)
    assert len(pairs) >= 30
    assert covered >= MIN_COVERED_RATIO * len(pairs), pairs


@dataclass(frozen=True)
class Guess:
    """The forecast of a job in line and its scheduler's expected start, as of `made_at`."""

    made_at: datetime
    wait: QueueWait
    expected_at: datetime | None


def guesses(stream: Stream, known: Collection[str]) -> dict[str, Guess]:
    """Return forecasts of a few jobs in line that have none yet."""
    now = stream.look()
    places = places_in_line(stream.jobs.values(), now)
    new = [place for place in places if place.wait is not None and place.job_id not in known]
    found = {}
    for place in stream.source.sample(new, min(PER_LOOK, len(new))):
        facts = stream.jobs[place.job_id].scheduler
        assert facts is not None
        assert place.wait is not None
        told = dict(facts.extra).get(EXPECTED_START)
        found[place.job_id] = Guess(now, place.wait, datetime.fromisoformat(told) if told else None)
    return found


def test_jobs_in_line_start_within_the_band(large_bed: SlurmBed, measured: Measured) -> None:
    """Of 200 jobs with backfill; and nearer to the median than to the start of `squeue --start`."""
    stream = Stream(large_bed, source_of("slurm starts", 0), utc_now().replace(microsecond=0), {})
    draw = stream.source
    made: dict[str, Guess] = {}
    begun = time.monotonic()
    for number in range(DRAWN):
        limit = draw.choice(LIMITS)
        seconds = max(2, round(60 * limit * draw.betavariate(1.2, 2.8)))
        gpus = draw.choice(SIZES)
        large_bed.submit(
            f"--gres=gpu:h100:{gpus}", "-N1", "-c1", f"-t{limit}", "--no-requeue", seconds=seconds
        )
        due = begun + max(0, number - AT_FIRST) * LATER_SECONDS
        while time.monotonic() < due:
            made |= guesses(stream, made) if number % 5 == 0 else {}
            time.sleep(0.2)
    ends = time.monotonic() + EMPTYING_SECONDS
    while time.monotonic() < ends and large_bed.run("squeue", "-h", "-t", "PD"):
        made |= guesses(stream, made)
        time.sleep(3.0)
    stream.look()
    inside, errors, theirs = 0, [], []
    for name, guess in made.items():
        facts = stream.jobs[name].scheduler
        assert facts is not None
        if facts.started_at is None:
            continue
        true = max(0.0, (facts.started_at - guess.made_at).total_seconds())
        inside += guess.wait.low - 2 <= true <= guess.wait.high + 2
        if guess.expected_at is not None:
            expected = max(0.0, (guess.expected_at - guess.made_at).total_seconds())
            errors.append(abs(guess.wait.median - true))
            theirs.append(abs(expected - true))
    line = (
        f"slurm starts: {len(made)} jobs in line, {inside} in the 80 % band, median error "
        f"{median(errors):.0f} s, of squeue --start {median(theirs):.0f} s ({len(theirs)}), "
        f"seed {SEED}"
    )
    print(line)  # noqa: T201 shown with a failure and by `make test-all`
    measured(line)
    assert len(theirs) >= MIN_GUESSES
    assert inside >= MIN_IN_LINE_RATIO * len(made)
    assert median(errors) < median(theirs)
