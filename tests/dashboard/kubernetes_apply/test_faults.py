"""What goes wrong between a look and a change: each ends as one stated outcome, none is resent."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
    account_kubeconfig,
    bind_in,
    carry_out,
    cutting_proxy,
    deployment,
    gpus,
    planned,
    pod_spec,
    proposal,
    rehearsed,
    replicated,
    rolled_out,
    room,
    settings_of,
    shrink,
    spec_of,
)
from beds.kubernetes_replay import kubeconfig

from dashboard.apply.contract.applier import NotingApplier
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.base.clock import utc_now
from data.base.errors import ApplyError, ChangeRefusedError, StalePlanError
from data.records.actions import Action
from data.records.changes import StepOutcome, VerificationResult

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

JSON_PATCH = {"Content-Type": "application/json-patch+json"}


@pytest.fixture(scope="module")
def serving(bed: KubernetesBed) -> Iterator[Callable[[], None]]:
    """A Deployment of two pods in `faults`; called, it makes it anew as it was."""
    at = room(bed, "faults", 8)
    document = deployment("faults", replicas=2, pod=pod_spec(1, **at))

    def anew() -> None:
        bed.answer("DELETE", "apis/apps/v1/namespaces/faults/deployments/serve")
        bed.apply(document)
        rolled_out(bed, "faults")

    anew()
    yield anew
    bed.answer("DELETE", "apis/apps/v1/namespaces/faults/deployments/serve")


def by_proxy(bed: KubernetesBed, url: str, **changes: Any) -> KubernetesApplier:
    """An applier behind a proxy."""
    path = account_kubeconfig(bed, "trimtab-applier", server=url)
    return KubernetesApplier(settings_of(path, **changes))


def is_change(method: str, path: str) -> bool:
    """Whether a request changes something."""
    return method == "PATCH" and "dryRun" not in path


@pytest.mark.usefixtures("serving")
def test_an_object_that_moves_between_look_and_patch_is_a_conflict(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """409: nothing has changed, and a fresh look decides whether it still may."""

    def touch(method: str, path: str) -> str:
        if is_change(method, path):
            bed.patch("Deployment", "serve", {"metadata": {"labels": {"touched": "yes"}}},
                      namespace="faults")  # fmt: skip
        return "pass"

    change = shrink(applier)
    with cutting_proxy(bed, touch) as url:
        result = by_proxy(bed, url).execute(change.steps[0], change)
    assert result.outcome is StepOutcome.BUSY
    assert "409" in result.detail
    assert spec_of(bed, "faults")["replicas"] == 2
    assert applier.read_back(change, done=1).seen is VerificationResult.UNTOUCHED
    assert applier.look_again(change).fingerprint == change.target.fingerprint


def test_an_answer_that_is_cut_is_unknown_until_it_is_read_back(
    bed: KubernetesBed, applier: KubernetesApplier, serving: Callable[[], None]
) -> None:
    """The patch was taken, its answer lost: sent once, and found by looking."""
    change = shrink(applier)
    sent = []

    def drop_answer(method: str, path: str) -> str:
        if is_change(method, path):
            sent.append(path)
            return "drop-answer"
        return "pass"

    with cutting_proxy(bed, drop_answer) as url:
        lost = by_proxy(bed, url)
        assert lost.execute(change.steps[0], change).outcome is StepOutcome.UNKNOWN
    assert len(sent) == 1
    rolled_out(bed, "faults")
    assert applier.read_back(change, done=1).seen is VerificationResult.AS_INTENDED
    # Sent again by mistake it is refused: the values are no longer those that it replaces.
    again = applier.execute(change.steps[0], change)
    assert again.outcome is StepOutcome.REFUSED
    assert "/spec/replicas is 1, not 2" in again.detail
    serving()


@pytest.mark.usefixtures("serving")
def test_a_request_that_is_lost_is_unknown_and_found_untouched(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """From here the two look alike; only the look tells them apart."""
    change = shrink(applier)
    with cutting_proxy(
        bed, lambda method, path: "drop-request" if is_change(method, path) else "pass"
    ) as url:
        result = by_proxy(bed, url).execute(change.steps[0], change)
    assert result.outcome is StepOutcome.UNKNOWN
    assert applier.read_back(change, done=1).seen is VerificationResult.UNTOUCHED


@pytest.mark.usefixtures("serving")
def test_a_server_that_is_gone_is_busy_and_nothing_was_sent(
    applier: KubernetesApplier, tmp_path: Path
) -> None:
    """Refused connections change nothing; a later try may do. Looks say that nothing answers."""
    change = shrink(applier)
    path = kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    nobody = KubernetesApplier(settings_of(path))
    assert nobody.execute(change.steps[0], change).outcome is StepOutcome.BUSY
    assert nobody.read_back(change, done=1).seen is VerificationResult.UNREADABLE
    with pytest.raises(ApplyError) as caught:
        nobody.look_again(change)
    assert type(caught.value) is ApplyError
    with pytest.raises(ApplyError):
        nobody.rehearse(change)
    assert "not sent" in nobody.note(change, actor="ada", outcome="applied")


def test_a_deleted_and_a_replaced_object_are_refused(
    bed: KubernetesBed, applier: KubernetesApplier, serving: Callable[[], None]
) -> None:
    """404, and another uid under the same name: what was approved is not there any more."""
    change = shrink(applier)
    bed.delete("Deployment", "serve", namespace="faults")
    assert applier.execute(change.steps[0], change).outcome is StepOutcome.REFUSED
    assert applier.read_back(change, done=1).seen is VerificationResult.GONE
    with pytest.raises(StalePlanError, match="404"):
        applier.look_again(change)
    with pytest.raises(StalePlanError):
        shrink(applier)
    serving()
    assert applier.execute(change.steps[0], change).outcome is StepOutcome.REFUSED
    assert applier.read_back(change, done=1).seen is VerificationResult.GONE
    with pytest.raises(StalePlanError, match="another object"):
        applier.look_again(change)
    assert spec_of(bed, "faults")["replicas"] == 2


@pytest.mark.usefixtures("serving")
def until_the_next_second() -> None:
    """Wait for it: the server tells whole seconds."""
    time.sleep(1.001 - time.time() % 1)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_an_object_made_after_the_plan_is_another(
    bed: KubernetesBed, applier: KubernetesApplier, kind: str
) -> None:
    """Of the same name, size and owner: what was approved was for the one before it."""
    namespace = f"anew-{kind.lower()}"
    bind_in(bed, namespace)
    document = replicated(kind, namespace, replicas=2, pod=pod_spec(1))
    bed.apply(document)
    until_the_next_second()
    job_id = f"{namespace}/{kind.lower()}/serve"
    recommendation = proposal(job_id, gpus(2), gpus(1), created_at=utc_now())
    assert planned(applier, recommendation).steps
    bed.delete(kind, "serve", namespace=namespace)
    path = bed.path(kind, namespace, "serve")
    bed.until("it is gone", lambda: not bed.answer("GET", path).ok)
    until_the_next_second()
    bed.apply(document)
    with pytest.raises(StalePlanError, match="it is another object"):
        planned(applier, recommendation)


def test_a_plan_of_other_gpus_is_stale(applier: KubernetesApplier) -> None:
    """The plan saw four GPUs, or slices: the workload asks for two boards."""
    for now in (gpus(4), gpus(1)):
        with pytest.raises(StalePlanError, match="now asks for 2 GPUs"):
            planned(applier, proposal("faults/deployment/serve", now, gpus(2)))


@pytest.mark.usefixtures("serving")
def test_an_event_names_who_changed_what_and_why(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """It is what `kubectl describe` shows; names that would break a line do not."""
    change = shrink(applier)
    assert isinstance(applier, NotingApplier)
    assert applier.note(change, actor="ada\nroot", outcome="applied") == ""
    bed.api_versions["Event"] = "v1"
    found = [
        entry
        for entry in bed.list("Event", namespace="faults")
        if entry["source"].get("component") == "trimtab"
    ]
    assert found[0]["involvedObject"]["uid"] == change.target.identity
    assert found[0]["message"] == (
        "ada root: applied. pods (1 GPUs): 2 -> 1 "
        f"(recommendation {change.recommendation_digest[:12]})"
    )


def test_a_job_that_cannot_be_resized_needs_recreating(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """This server changes no pod template of a Job: the manifest's difference is the answer."""
    at = room(bed, "jobs", 8)
    bed.apply(job("jobs", parallelism=2, pod=pod_spec(2, **at)))
    bed.until(
        "it runs",
        lambda: bed.get("Job", "serve", namespace="jobs")["status"].get("active") == 2,
    )
    before = spec_of(bed, "jobs", "Job")
    wish = (("gpus_per_pod", "1"),)
    with pytest.raises(ChangeRefusedError, match=r"needs recreate.*1\.20") as caught:
        planned(applier, proposal("jobs/job/serve", gpus(4), gpus(2), details=wish))
    assert "+            nvidia.com/gpu: '1'" in caught.value.hint
    # The real refusal (422), were it sent all the same.
    path = "/spec/template/spec/containers/1/resources/limits/nvidia.com~1gpu"
    patch = [{"op": "replace", "path": path, "value": "1"}]
    answer = bed.answer("PATCH", bed.path("Job", "jobs", "serve"), json=patch, headers=JSON_PATCH)
    assert answer.status_code == requests.codes.unprocessable
    for proposed, parallelism in ((gpus(2), 1), (gpus(0), 0)):
        change = planned(applier, proposal("jobs/job/serve", gpus(4), proposed))
        assert [note for note in change.notes if "deletes running pods" in note]
        assert carry_out(applier, change).seen is VerificationResult.AS_INTENDED
        assert spec_of(bed, "jobs", "Job") == before | {"parallelism": parallelism}
        back = applier.change_back(change, applier.look_again(change))
        assert carry_out(applier, back).seen is VerificationResult.AS_INTENDED
        assert spec_of(bed, "jobs", "Job") == before


@pytest.mark.parametrize("kind", ["Job", "CronJob"])
def test_a_job_of_so_many_completions_saves_nothing_by_fewer_pods(
    bed: KubernetesBed, applier: KubernetesApplier, kind: str
) -> None:
    """The controller runs each completion to its end all the same: as many pods, one by one."""
    namespace = f"rounds-{kind.lower()}"
    found = job(namespace, parallelism=4, completions=4, pod=pod_spec(1, **room(bed, namespace, 4)))
    if kind == "CronJob":
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": found["spec"]}}
        found |= {"apiVersion": "batch/v1beta1", "kind": kind, "spec": spec}
    bed.apply(found)
    target = f"{namespace}/{kind.lower()}/serve"
    with pytest.raises(ChangeRefusedError, match="each of its 4 completions needs a pod"):
        planned(applier, proposal(target, gpus(4), gpus(1)))
    change = planned(applier, proposal(target, gpus(4), gpus(0)))
    assert rehearsed(applier, change).refusals == ()
    if kind == "Job":
        more = planned(applier, proposal(target, gpus(4), gpus(8), action=Action.SCALE_OUT))
        assert not [note for note in more.notes if "deletes" in note]


def job(namespace: str, *, pod: Any, **spec: Any) -> dict[str, Any]:
    """A Job."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "serve", "namespace": namespace},
        "spec": {"template": {"spec": pod | {"restartPolicy": "Never"}}, **spec},
    }


def test_a_pod_that_telemetry_names_leads_to_its_workload(
    bed: KubernetesBed, applier: KubernetesApplier
) -> None:
    """Over the ReplicaSet to the Deployment; a pod without one has no field that could change."""
    at = room(bed, "upward", 4)
    bed.apply(deployment("upward", replicas=1, pod=pod_spec(2, **at)))
    rolled_out(bed, "upward")
    (pod,) = bed.list("Pod", namespace="upward")
    change = planned(applier, proposal(f"upward/{pod['metadata']['name']}", gpus(2), gpus(1)))
    assert (change.target.kind, change.target.name) == ("Deployment", "upward/serve")
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "namespace": "upward"}}
    bed.apply(bare | {"spec": pod_spec(1, **at)})
    with pytest.raises(ChangeRefusedError, match="no workload above it"):
        planned(applier, proposal("upward/bare", gpus(1), gpus(0)))
