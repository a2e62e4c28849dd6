"""How long ended runs of the same recurring job took."""

from datetime import timedelta

from factories import NOW, make_job

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts
from forecasting.power.cap_laws import learned_cap_laws
from forecasting.power.model import PowerModel
from forecasting.series.past_runs import past_run_seconds


def run(number: int, hours: float | None, state: JobState = JobState.FINISHED) -> Job:
    """One run of train-bert; still running without hours."""
    start = NOW - timedelta(days=number)
    return make_job(
        f"slurm:{number}",
        name=f"train-bert-{number}",
        namespace="gpu",
        platform=Platform.SLURM,
        scheduler=SchedulerFacts(
            state=JobState.RUNNING if hours is None else state,
            started_at=start,
            ended_at=None if hours is None else start + timedelta(hours=hours),
        ),
    )


def test_a_running_job_has_the_lengths_of_its_finished_runs() -> None:
    """Failed and cancelled runs say nothing of the length."""
    jobs = [
        run(1, None),
        run(2, 2.0),
        run(3, 3.0),
        run(4, 0.1, JobState.FAILED),
        run(5, 9.0, JobState.CANCELLED),
    ]
    assert past_run_seconds(jobs) == {"slurm:1": (7200.0, 10_800.0)}


def test_other_jobs_do_not_lend_their_lengths() -> None:
    """Another name is another job; without runs there is no entry."""
    other = make_job("slurm:9", name="eval", platform=Platform.SLURM)
    assert "slurm:9" not in past_run_seconds([other, run(2, 2.0)])


def test_a_learned_reach_replaces_the_published_one() -> None:
    """Boards that settle at 99 % of a cap; their slowdown stays that of the generation."""
    model = PowerModel(
        gpu_model="V100-SXM2-32GB",
        signal="sm_active",
        floor_watts=40.0,
        idle_watts=45.0,
        tdp_watts=300.0,
        cap_reach=0.97,
        lowered_cap_reach=0.99,
        fits=(),
    )
    catalogue = load_gpu_catalogue()
    law = learned_cap_laws([model], catalogue)["V100-SXM2-32GB"]
    known = catalogue.get("V100-SXM2-32GB").cap_law
    assert law.reach == 0.99
    assert (law.slowdown, law.source) == (known.slowdown, known.source)
