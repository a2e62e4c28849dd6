"""What an applier can make of a job by the facts that its scheduler told."""

import pytest
from factories import H100, make_job
from fleet_cases import pods_job, slurm_job

from data.facts.jobs import Job
from data.records.feasible_changes import (
    change_refusal,
    configuration_refusal,
    counts_below,
    unit_of,
)
from data.records.plans import Configuration

A100 = "A100-SXM4-80GB"


def offered(job: Job, *, model: str = H100) -> list[int]:
    """The smaller numbers of GPUs of a model, and the present one, that can be asked for."""
    counts = [*counts_below(job), *(() if model == job.gpu_model else (job.gpu_count,))]
    return [
        count
        for count in counts
        if not configuration_refusal(job, Configuration(gpu_model=model, gpu_count=count))
    ]


@pytest.mark.parametrize(
    ("kind", "pods", "each", "containers", "wanted"),
    [
        ("deployment", 2, 2, "1", [2]),
        ("deployment", 2, 2, "2", [2]),
        ("deployment", 1, 4, "1", [1, 2]),
        ("deployment", 1, 4, "2", []),
        ("deployment", 4, 1, "1", [1, 2]),
        ("statefulset", 3, 2, "1", [2, 4]),
        ("job", 2, 2, "1", [2]),
        ("job", 1, 4, "1", []),
        ("jobset", 4, 1, "1", []),
        ("cronjob", 4, 1, "1", [1, 2]),
        ("rayjob", 4, 1, "1", []),
    ],
)
def test_pods_alone_or_the_gpus_of_each_pod(
    kind: str, pods: int, each: int, containers: str, wanted: list[int]
) -> None:
    """Two pods of two GPUs have two, never one, which is no whole pod and no even share."""
    extra = {"gpus_per_pod": str(each), "gpu_containers": containers}
    job = pods_job("x", kind, gpu_count=pods * each, extra=extra)
    assert offered(job) == wanted
    assert unit_of(job) == each


@pytest.mark.parametrize(("kind", "wanted"), [("deployment", [4]), ("job", []), ("jobset", [])])
def test_another_model_comes_alone_and_only_where_pods_are_made_anew(
    kind: str, wanted: list[int]
) -> None:
    """Four pods on H100 go to four on A100, not to one."""
    assert offered(pods_job("x", kind, gpu_count=4), model=A100) == wanted


def test_pods_that_stay_get_no_other_gpus() -> None:
    """A paused Deployment still gets fewer pods."""
    extra = {"gpus_per_pod": "4", "gpu_containers": "1", "pods_stay": "it is paused"}
    assert offered(pods_job("x", "deployment", gpu_count=8, extra=extra)) == [4]
    assert offered(pods_job("x", "deployment", gpu_count=8, extra=extra), model=A100) == []


@pytest.mark.parametrize(
    ("named", "wanted"), [("4", [4]), ("2", [4]), ("1", [2, 4]), ("9", [2, 4])]
)
def test_pods_keep_the_gpus_that_their_command_names(named: str, wanted: list[int]) -> None:
    """Two pods of four each: fewer pods, or as many GPUs in each as it starts with.

    More than a pod has is no number of its GPUs.
    """
    extra = {"gpus_per_pod": "4", "gpu_containers": "1", "named_gpus": named}
    found = offered(pods_job("x", "deployment", gpu_count=8, extra=extra))
    assert [count for count in found if count < 8] == wanted


def test_an_elastic_job_stays_within_its_bounds() -> None:
    """A master and workers: the master stays, and the policy bounds the workers."""
    facts = {"gpus_per_unit": "1", "fixed_gpus": "1", "min_replicas": "2", "max_replicas": "8"}
    job = pods_job("x", "pytorchjob", gpu_count=9, extra=facts)
    assert offered(job) == [3, 4, 5, 8]
    assert offered(pods_job("x", "pytorchjob", gpu_count=9)) == []


@pytest.mark.parametrize(
    ("kind", "kept"), [("deployment", True), ("rayjob", True), ("pod", False), ("cronjob", True)]
)
def test_only_what_can_be_stopped_and_kept_is_reclaimed(kind: str, *, kept: bool) -> None:
    """A bare pod is gone for good."""
    none = Configuration(gpu_model=H100, gpu_count=0)
    assert (not configuration_refusal(pods_job("x", kind), none)) is kept


def asks(per: str, count: int, nodes: int = 1, **extra: str) -> Job:
    """A Slurm job that asks for its GPUs in one way."""
    facts = {"requeue": "yes", "gres_per": per, "nodes_requested": str(nodes)} | extra
    return slurm_job(7, gpu_count=count, extra=facts)


@pytest.mark.parametrize(
    ("job", "wanted"),
    [
        (asks("node", 8), [1, 2, 4]),
        (asks("node", 8, 2), [2, 4]),
        (asks("job", 8, 2), []),
        (asks("socket", 8), []),
        (asks("task", 8, requested_gpus="2"), []),
        (asks("task", 8, requested_gpus="2", slurm_release="24.11"), []),
        (asks("node", 8, array_job="7"), []),
        (asks("node", 8, het_job="7"), []),
        (asks("", 8), []),
    ],
)
def test_slurm_counts(job: Job, wanted: list[int]) -> None:
    """By node; by task from 24.11; neither in total nor by socket, no arrays, het jobs."""
    assert offered(job) == wanted


@pytest.mark.parametrize(
    ("extra", "wanted"),
    [
        ({"slurm_release": "24.11", "requested_gpu_type": "h100"}, [1, 2, 4]),
        ({"slurm_release": "25.05", "requested_gpu_type": "h100"}, [1, 2, 4]),
        ({"slurm_release": "22.05", "requested_gpu_type": "h100"}, []),
        ({"requested_gpu_type": "h100"}, []),
        ({"slurm_release": "24.11"}, []),
    ],
)
def test_slurm_types(extra: dict[str, str], wanted: list[int]) -> None:
    """A named type can become another from 24.11 on."""
    assert offered(asks("node", 4, **extra), model=A100) == wanted


def test_a_het_job_is_not_touched_and_a_job_of_nobody_is_not_judged() -> None:
    """What telemetry alone names is for a person to decide."""
    assert "heterogeneous" in change_refusal(asks("node", 4, het_job="7"))
    assert offered(make_job("a/job/x", gpu_count=4)) == [1, 2]
