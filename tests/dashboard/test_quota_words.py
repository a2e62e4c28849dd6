"""For which quota a job waits, in words."""

from dataclasses import replace
from typing import Any

import pytest
from factories import make_collected, make_job, make_quota

from dashboard.common.quota_words import quota_words
from dashboard.resources.queue_rows import queue_rows
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts
from data.facts.quotas import QuotaKind
from data.store import Store

QOS = {"kind": QuotaKind.QOS}
QUOTAS = (
    make_quota("high", **QOS, nominal=3.0, used=2.0),
    make_quota("high", **QOS, nominal=2.0, used=None, per="user"),
    make_quota("high", **QOS, nominal=1.0, used=None, per="job"),
    make_quota("low", **QOS, nominal=1.0, used=1.0),
    make_quota("vision", nominal=8.0, used=1.0, parent="ml"),
    make_quota("ml", nominal=4.0, used=4.0, parent="root"),
    make_quota("ml", nominal=9.0, used=9.0, source="another cluster"),
    make_quota("vision/ann", kind=QuotaKind.USER, nominal=5.0, used=0.0, parent="vision"),
)
CLUSTER = make_quota(
    "research",
    kind=QuotaKind.CLUSTER_QUEUE,
    resource="nvidia.com/gpu",
    flavor="h100",
    nominal=16.0,
    used=18.0,
    borrowing_limit=None,
    pending=3,
)
LOCAL = make_quota("search/train", kind=QuotaKind.LOCAL_QUEUE, parent="research")


def waiting(reason: str, **facts: Any) -> Job:
    """A job of Slurm that waits for two GPUs."""
    told = {"qos": "high", "account": "vision", "user": "ann"} | facts
    return make_job(
        "slurm:1",
        platform=Platform.SLURM,
        gpu_count=2,
        scheduler=SchedulerFacts(state=JobState.PENDING, reason=reason, **told),
    )


def on_kueue(**facts: str) -> Job:
    """A job of Kubernetes that waits, with these further facts."""
    told = SchedulerFacts(state=JobState.PENDING, extra=tuple(facts.items()))
    return make_job("search/ranker", scheduler=told)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("QOSGrpGRES", "qos high: 2 of 3 gres/gpu in use"),
        ("QOSMaxGRESPerUser", "qos high: at most 2 gres/gpu for each user"),
        ("QOSMaxGRESPerJob", "qos high: at most 1 gres/gpu for each job"),
        ("QOSMaxGRESPerAccount", "a limit of QOS high that was not read"),
        ("QOSGrpCpuLimit", "a limit of QOS high that is not on GPUs"),
        ("AssocGrpGRES", "account ml: 4 of 4 gres/gpu in use"),
        ("AssocMaxGRESPerJob", "a limit of account vision that was not read"),
        ("Resources", ""),
        ("Priority", ""),
        ("QOSNotAllowed", ""),
    ],
)
def test_slurms_reasons_name_the_limit(reason: str, words: str) -> None:
    """Its own cluster's; of an account that has room, the one above it that has not."""
    assert quota_words(waiting(reason), QUOTAS) == words


def test_parents_that_go_round_end() -> None:
    """Answers of others are not believed to be a tree."""
    round_ = (make_quota("vision", parent="ml"), make_quota("ml", parent="vision"))
    assert "account vision" in quota_words(waiting("AssocGrpGRES"), round_)


def test_what_kueue_has_not_admitted_waits_for_its_cluster_queue() -> None:
    """Through its local queue; an admitted one waits for something else."""
    said = {"queue": "train", "kueue": "insufficient unused quota, priority 7"}
    assert quota_words(on_kueue(**said), (LOCAL, CLUSTER)) == (
        "cluster queue research, flavor h100: 18 of 16 nvidia.com/gpu in use, may borrow what "
        "others lend, 3 workloads waiting"
    )
    assert quota_words(on_kueue(**said), ()) == "a quota that was not read"
    assert quota_words(on_kueue(queue="train", kueue="admitted"), (LOCAL, CLUSTER)) == ""
    assert quota_words(on_kueue(), (LOCAL, CLUSTER)) == ""


def test_the_queue_tells_it(store: Store) -> None:
    """Beside the scheduler's own reason."""
    store.keep(make_collected(jobs=(waiting("QOSGrpGRES"),), quotas=QUOTAS[:5]))
    assert [(row.reason, row.quota) for row in queue_rows(store.reader)] == [
        ("QOSGrpGRES", "qos high: 2 of 3 gres/gpu in use")
    ]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"nominal": 4.0, "borrowing_limit": 4.0, "used": 7.5, "pending": 2},
         "queue ml: 7.5 of 4 nvidia.com/gpu in use, may borrow 4, 2 workloads waiting"),
        ({"nominal": 4.0, "borrowing_limit": 4.0, "used": 7.0}, ""),
        ({"nominal": 4.0, "borrowing_limit": None, "used": 9.0}, ""),
        ({"nominal": None, "borrowing_limit": 4.0, "used": 9.0}, ""),
        ({"nominal": 4.0, "borrowing_limit": 0.0, "used": None}, ""),
    ],
)  # fmt: skip
def test_a_queue_of_kai_or_volcano_is_named_where_it_has_no_room(
    limits: dict[str, Any], words: str
) -> None:
    """By what it may hold at most; below it the wait has another reason, or none is known."""
    row = make_quota("ml", kind=QuotaKind.QUEUE, resource="nvidia.com/gpu", **limits)
    assert quota_words(on_kueue(scheduler_queue="ml"), (row,)) == words
    assert quota_words(on_kueue(scheduler_queue="other"), (row,)) == ""


@pytest.mark.parametrize(
    ("facts", "limits", "said"),
    [
        ({}, {}, True),
        ({}, {"nominal": 9.0}, False),
        ({}, {"used": None}, False),
        ({}, {"resource": "nvidia.com/mig-1g.10gb"}, False),
        ({"pending_pods": "2"}, {}, False),  # they are counted in it, and wait for something else
        ({"kueue": "admitted"}, {}, True),
    ],
)
@pytest.mark.parametrize("namespace", ["search", "team-7"])
def test_a_resource_quota_is_named_where_it_refuses_pods(
    namespace: str, facts: dict[str, str], limits: dict[str, Any], said: bool
) -> None:
    """Of the job's own namespace, in the resource that it asks for."""
    told = {"nominal": 4.0, "used": 4.0, "resource": "nvidia.com/gpu"} | limits
    kind = QuotaKind.RESOURCE_QUOTA
    row = make_quota(f"{namespace}/gpus", kind=kind, **told)
    other = make_quota("else/gpus", kind=kind, resource="nvidia.com/gpu", nominal=0.0, used=0.0)
    job = replace(on_kueue(**facts), namespace=namespace)
    words = f"resource quota {namespace}/gpus: 4 of 4 nvidia.com/gpu in use"
    assert quota_words(job, (row, other)) == (words if said else "")
