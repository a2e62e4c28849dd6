"""What may be done to a job is read from what schedulers tell, and unknown is rigid."""

import pytest
from factories import make_job

from data.facts.jobs import Job, Platform, SchedulerFacts, WorkloadKind
from data.settings.all_settings import PlanningSettings
from planner.jobs.elasticity import Elasticity, standing_of

PLANNING = PlanningSettings()


def slurm_job(*extra: tuple[str, str]) -> Job:
    """A Slurm job with these further facts."""
    return make_job(
        "slurm:7",
        namespace="gpu",
        platform=Platform.SLURM,
        kind=WorkloadKind.UNKNOWN,
        scheduler=SchedulerFacts(extra=extra),
    )


@pytest.mark.parametrize(
    ("job_id", "kind", "wanted"),
    [
        ("a/deployment/x", WorkloadKind.UNKNOWN, Elasticity.SERVICE),
        ("a/inferenceservice.serving.kserve.io/x", WorkloadKind.UNKNOWN, Elasticity.SERVICE),
        ("a/job/x", WorkloadKind.TRAINING, Elasticity.RESTARTABLE),
        ("a/pytorchjob/x", WorkloadKind.TRAINING, Elasticity.RESTARTABLE),
        ("a/pod", WorkloadKind.INFERENCE, Elasticity.SERVICE),
        ("a/pod", WorkloadKind.TRAINING, Elasticity.RIGID),
        ("a/notebook/x", WorkloadKind.UNKNOWN, Elasticity.RIGID),
    ],
)
def test_the_kind_of_workload_tells(job_id: str, kind: WorkloadKind, wanted: Elasticity) -> None:
    """A Deployment serves, a Job can be suspended, of a lone pod only its kind is known."""
    found = standing_of(make_job(job_id, kind=kind), PLANNING)
    assert found.elasticity is wanted
    assert found.reason


def test_bounds_make_a_training_job_elastic() -> None:
    """A PyTorchJob with an elastic policy changes its workers; each has two GPUs here."""
    facts = SchedulerFacts(extra=(("gpus_per_pod", "2"), ("max_replicas", "4")))
    job = make_job("a/pytorchjob/x", kind=WorkloadKind.TRAINING, scheduler=facts)
    found = standing_of(job, PLANNING)
    assert (found.elasticity, found.step, found.most) == (Elasticity.ELASTIC, 2, 8)


@pytest.mark.parametrize(
    ("extra", "wanted"),
    [
        ((("requeue", "yes"),), Elasticity.RESTARTABLE),
        ((("restarts", "1"),), Elasticity.RESTARTABLE),
        ((("restarts", "1"), ("requeue", "no")), Elasticity.RIGID),
        ((("requeue", "yes"), ("batch", "no")), Elasticity.RIGID),
        ((("requeue", "no"),), Elasticity.RIGID),
        ((), Elasticity.RIGID),
    ],
)
def test_slurm_says_whether_it_requeues(
    extra: tuple[tuple[str, str], ...], wanted: Elasticity
) -> None:
    """The flag of the queue, or that it has happened before."""
    assert standing_of(slurm_job(*extra), PLANNING).elasticity is wanted


def test_who_scales_a_job_is_named() -> None:
    """An autoscaler would undo a change of its replicas."""
    facts = SchedulerFacts(managed_by=("Helm", "HorizontalPodAutoscaler"))
    found = standing_of(make_job("a/deployment/x", scheduler=facts), PLANNING)
    assert found.scaled_by == "HorizontalPodAutoscaler"


@pytest.mark.parametrize("pattern", ["search", "search/*", "none, search/rank*"])
def test_patterns_protect_jobs_by_id_or_namespace(pattern: str) -> None:
    """Any of the comma-separated patterns will do, and the one that fits is named."""
    found = standing_of(make_job(), PlanningSettings(protected_jobs=pattern))
    assert found.protected == pattern.split(",")[-1].strip()


def test_other_jobs_are_not_protected() -> None:
    """A pattern of another namespace leaves a job open."""
    assert standing_of(make_job(), PlanningSettings(protected_jobs="prod/*")).protected == ""
