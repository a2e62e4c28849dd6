"""Suspend, resize, resume: what servers from 1.35 on let a Job do, and older ones refuse."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from beds.kubernetes_apply import gpus, planned, pod_spec, proposal
from beds.kubernetes_fake import FakeApi
from factories import make_job

from collectors.kubernetes.kinds import excerpt_text
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.kubernetes.change.change_text import kubernetes_change
from dashboard.apply.kubernetes.change.steps import StepWait, command_of
from data.base.errors import ChangeRefusedError
from data.facts.jobs import Platform, SchedulerFacts
from data.records.changes import Change, StepOutcome, VerificationResult
from data.records.feasible_changes import configuration_refusal

PATH = "apis/batch/v1/namespaces/ml/jobs/train"
WISH = (("gpus_per_pod", "1"),)


def job(**spec: Any) -> dict[str, Any]:
    """A running Job of two pods with two GPUs each, as a newer server gives it."""
    values = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "NonIndexed",
        "suspend": False,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
        "template": {"spec": pod_spec(2)},
    }
    about = {"name": "train", "namespace": "ml"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": about,
        "spec": values | spec,
        "status": {"active": 2},
    }


def running(fake: FakeApi, count: int, each: int) -> None:
    """Let the Job have so many pods: what its controller and the scheduler would do."""
    fake.objects[PATH]["status"] = {"active": count} if count else {}
    pod = {"metadata": {"name": "p"}, "spec": pod_spec(each), "status": {"phase": "Running"}}
    fake.lists["api/v1/namespaces/ml/pods"] = [pod] * count


def resize(newer: KubernetesApplier) -> Change:
    """The approved change: one GPU a pod instead of two."""
    return planned(newer, proposal("ml/job/train", gpus(4), gpus(2), details=WISH))


def test_a_job_is_suspended_resized_and_resumed(fake: FakeApi, newer: KubernetesApplier) -> None:
    """Each step waits for its turn by itself, and the way back goes the same way."""
    before = fake.put(PATH, job())["spec"]
    running(fake, 2, 2)
    change = resize(newer)
    assert [entry.field for entry in change.steps] == [
        "suspend",
        "nvidia.com/gpu of container main",
        "suspend",
    ]
    rehearsal = newer.rehearse(change)
    assert rehearsal.refusals == ()
    assert len(rehearsal.warnings) == 2
    suspend, shrink, resume = change.steps
    assert newer.execute(suspend, change).outcome is StepOutcome.DONE
    assert newer.read_back(change, done=1).seen is VerificationResult.NOT_YET
    early = newer.execute(shrink, change)
    assert early.outcome is StepOutcome.BUSY
    assert early.wait_within_seconds == 7.5
    running(fake, 0, 0)
    assert newer.read_back(change, done=1).seen is VerificationResult.AS_INTENDED
    assert newer.execute(shrink, change).outcome is StepOutcome.DONE
    assert newer.execute(resume, change).outcome is StepOutcome.DONE
    running(fake, 2, 1)
    assert newer.read_back(change, done=3).seen is VerificationResult.AS_INTENDED
    back = newer.change_back(change, newer.look_again(change))
    assert newer.execute(back.steps[0], back).outcome is StepOutcome.DONE
    running(fake, 0, 0)
    for step in back.steps[1:]:
        assert newer.execute(step, back).outcome is StepOutcome.DONE
    assert fake.objects[PATH]["spec"] == before


def test_a_job_left_suspended_half_way_is_resumed_by_the_way_back(
    fake: FakeApi, newer: KubernetesApplier
) -> None:
    """The resize was refused after the suspend: only what was touched is restored."""
    before = fake.put(PATH, job())["spec"]
    running(fake, 2, 2)
    change = resize(newer)
    assert newer.execute(change.steps[0], change).outcome is StepOutcome.DONE
    running(fake, 0, 0)
    back = newer.change_back(change, newer.look_again(change))
    assert [step.field for step in back.steps] == ["suspend"]
    assert newer.execute(back.steps[0], back).outcome is StepOutcome.DONE
    assert fake.objects[PATH]["spec"] == before


def test_a_resized_but_suspended_job_gets_its_gpus_back_before_it_resumes(
    fake: FakeApi, newer: KubernetesApplier
) -> None:
    """The template can only move while it is suspended."""
    before = fake.put(PATH, job())["spec"]
    running(fake, 2, 2)
    change = resize(newer)
    newer.execute(change.steps[0], change)
    running(fake, 0, 0)
    assert newer.execute(change.steps[1], change).outcome is StepOutcome.DONE
    back = newer.change_back(change, newer.look_again(change))
    assert [entry.field for entry in back.steps] == ["nvidia.com/gpu", "suspend"]
    for step in back.steps:
        assert newer.execute(step, back).outcome is StepOutcome.DONE
    assert fake.objects[PATH]["spec"] == before


def test_a_resize_that_is_refused_in_its_turn_changes_nothing(
    fake: FakeApi, newer: KubernetesApplier
) -> None:
    """What could not be rehearsed before is rehearsed when its turn has come."""
    fake.put(PATH, job())
    running(fake, 2, 2)
    change = resize(newer)
    newer.execute(change.steps[0], change)
    running(fake, 0, 0)
    refusal = b'{"kind": "Status", "message": "field is immutable"}'
    fake.instead = lambda query: (422, refusal, {}) if "dryRun" in query else None
    sent = len(fake.sent)
    result = newer.execute(change.steps[1], change)
    assert result.outcome is StepOutcome.REFUSED
    assert [query for query, _operations in fake.sent[sent:] if "dryRun" not in query] == []


@pytest.mark.parametrize("minor", ["20", "34"])
def test_an_older_server_is_not_asked_to_suspend(
    fake: FakeApi, newer: KubernetesApplier, minor: str
) -> None:
    """A Job that could not be resized would have been stopped for nothing."""
    fake.version = ("1", minor)
    fake.put(PATH, job())
    with pytest.raises(ChangeRefusedError, match="needs recreate"):
        resize(newer)
    assert fake.sent == []


@pytest.mark.parametrize(
    "mark", [{}, {"trimtab/elastic": "no"}, {"kueue.x-k8s.io/elastic-job": "true"}]
)
def test_no_completion_is_dropped_without_its_owners_mark(
    fake: FakeApi, newer: KubernetesApplier, mark: dict[str, str]
) -> None:
    """As many completions as pods may be shards of one piece of work: each runs to its end."""
    fake.version = ("1", "34")
    fake.put(PATH, job(completionMode="Indexed"))["metadata"]["annotations"] = mark
    with pytest.raises(ChangeRefusedError, match="each of its 2 completions") as refusal:
        planned(newer, proposal("ml/job/train", gpus(4), gpus(2)))
    assert "+++" not in str(refusal.value), "no manifest that drops them is shown either"
    assert fake.sent == []


def test_a_job_that_its_owner_marked_moves_its_completions_along(
    fake: FakeApi, newer: KubernetesApplier
) -> None:
    """Its pods share the work: as many as run are to complete; what is shown is what is sent."""
    elastic = {"trimtab/elastic": "true"}
    fake.put(PATH, job(completionMode="Indexed"))["metadata"]["annotations"] = elastic
    change = planned(newer, proposal("ml/job/train", gpus(4), gpus(2)))
    (step,) = change.steps
    assert (step.before, step.after) == ("2; 2", "1; 1")
    assert newer.execute(step, change).outcome is StepOutcome.DONE
    spec = fake.objects[PATH]["spec"]
    assert (spec["parallelism"], spec["completions"]) == (1, 1)
    told = (
        ("pods", "2"),
        ("gpus_per_pod", "2"),
        ("elastic", "yes"),
        ("excerpt", excerpt_text(job(completionMode="Indexed"))),
        ("server_version", "1.36"),
    )
    stored = make_job("ml/job/train", gpu_count=4, scheduler=SchedulerFacts(extra=told))
    shown = kubernetes_change(proposal("ml/job/train", gpus(4), gpus(2)), stored).text
    both = [
        [entry for entry in patch if entry["op"] == "replace" and entry["path"].startswith("/spec")]
        for patch in (yaml.safe_load(shown), fake.sent[-1][1])
    ]
    assert both[0] == both[1]
    assert len(both[0]) == 2
    fake.version = ("1", "26")
    fake.put(PATH, job(completionMode="Indexed"))["metadata"]["annotations"] = elastic
    with pytest.raises(ChangeRefusedError, match="completions of an indexed Job"):
        planned(newer, proposal("ml/job/train", gpus(4), gpus(2)))


def test_where_the_server_lets_it_the_pods_of_a_job_get_fewer_gpus_and_none_is_dropped(
    fake: FakeApi, newer: KubernetesApplier
) -> None:
    """Planned, shown and sent alike: suspend, resize, resume; the planner asks for the release."""
    fake.put(PATH, job(completionMode="Indexed"))
    running(fake, 2, 2)
    change = planned(newer, proposal("ml/job/train", gpus(4), gpus(2)))
    fields = [step.field for step in change.steps]
    assert fields == ["suspend", "nvidia.com/gpu of container main", "suspend"]
    told = {
        "pods": "2", "gpus_per_pod": "2", "gpus_per_unit": "2", "gpu_containers": "1",
        "fixed_work": "each of its 2 completions needs a pod", "server_version": "1.36",
    }  # fmt: skip
    stored = make_job(
        "ml/job/train",
        gpu_count=4,
        gpu_model=gpus(4).gpu_model,
        platform=Platform.KUBERNETES,
        scheduler=SchedulerFacts(extra=tuple(told.items())),
    )
    assert configuration_refusal(stored, gpus(2)) == ""
    assert configuration_refusal(stored, gpus(3)) != ""
    shown = yaml.safe_load_all(
        kubernetes_change(proposal("ml/job/train", gpus(4), gpus(2)), stored).text
    )
    assert [[entry["path"] for entry in patch if entry["op"] != "test"] for patch in shown] == [
        ["/spec/suspend"],
        ["/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu"],
        ["/spec/suspend"],
    ]
    for version in ("1.35", "1.34", "", "x"):
        older = tuple((told | {"server_version": version}).items())
        assert (
            configuration_refusal(replace(stored, scheduler=SchedulerFacts(extra=older)), gpus(2))
            != ""
        )


def test_a_job_near_its_end_is_not_as_the_plan_saw_it(
    fake: FakeApi, newer: KubernetesApplier
) -> None:
    """One of two pods has completed: it holds two GPUs, not four."""
    fake.put(PATH, job())["status"] = {"active": 1, "succeeded": 1}
    assert planned(newer, proposal("ml/job/train", gpus(2), gpus(0))).steps
    with pytest.raises(Exception, match="now asks for 2 GPUs"):
        planned(newer, proposal("ml/job/train", gpus(4), gpus(0)))


def test_the_second_step_waits_until_the_pods_are_gone(
    fake: FakeApi, newer: KubernetesApplier
) -> None:
    """The Job is suspended, changed when it has no pod, and resumed."""
    fake.put(PATH, job())
    waits = [command_of(step).wait for step in resize(newer).steps]
    assert waits.index(StepWait.NO_PODS) == 1
    assert waits.count(StepWait.NO_PODS) == 1
    assert len(waits) == 3
