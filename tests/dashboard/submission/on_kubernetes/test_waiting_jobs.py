"""A real Kubernetes API: why a job waits or cannot run: claims, events, taints."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from beds.kubernetes import KubernetesBed
from beds.kubernetes_submission import followed, name_of, settings_of
from beds.submission import proposal_of, sent, target_of
from submission_cases import make_job

from dashboard.submission.submit.watch import watch_all
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError, ImpossibleProblemError, SourceRefusedError
from data.records.submissions import SubmissionState
from data.settings.all_settings import Settings
from data.store import Store

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]


def volume_claim(name: str) -> dict[str, Any]:
    """A claim that nothing has bound yet."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def test_a_claim_that_does_not_exist_is_refused(bed: KubernetesBed, store: Store) -> None:
    """Nothing is created for a job whose data has no claim; with the claim it is."""
    settings, claim = settings_of(bed), f"of-math-{uuid4().hex[:8]}"
    job = make_job(data={"path": "/data", "claim": claim})
    with pytest.raises(ChangeRefusedError, match="does not exist in namespace default"):
        sent(job, settings, store)
    assert bed.list("Job", namespace="default") == []
    bed.apply(volume_claim(claim))
    assert "claim" not in target_of(settings).check(proposal_of(job, settings, store).manifest)


def test_a_quota_that_refuses_the_job_is_no_missing_right(bed: KubernetesBed, store: Store) -> None:
    """The words of the quota, and what can be done; without the right, the role that has it."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "no-jobs", "namespace": "default"},
        "spec": {"hard": {"count/jobs.batch": "0"}},
    }
    bed.api_versions["ResourceQuota"] = "v1"
    bed.apply(quota)
    bed.until("the quota counts", lambda: "hard" in bed.get("ResourceQuota", "no-jobs")["status"])
    try:
        with pytest.raises(ChangeRefusedError, match="exceeded quota: no-jobs") as refused:
            sent(make_job(), settings_of(bed), store)
    finally:
        bed.delete("ResourceQuota", "no-jobs", namespace="default")
    assert "wait until its quota has room" in refused.value.hint
    settings = settings_of(bed, user="reader")
    proposal = proposal_of(make_job(), settings, store)
    with pytest.raises(SourceRefusedError, match="cannot create resource") as lacking:
        target_of(settings).check(proposal.manifest)
    assert "deploy/kubernetes-submitter.yaml" in lacking.value.hint


def test_a_claim_that_may_not_be_read_is_unknown(bed: KubernetesBed, store: Store) -> None:
    """Without the right to read claims the dry run says so instead of passing it."""
    bed.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "jobs-alone", "namespace": "default"},
            "rules": [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "jobs-alone", "namespace": "default"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "jobs-alone",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}
            ],
        },
    )
    settings = settings_of(bed, user="reader")
    job = make_job(data={"path": "/data", "claim": "unseen"})
    said = target_of(settings).check(proposal_of(job, settings, store).manifest)
    assert "whether the claim unseen exists is not known" in said


def reason_of(bed: KubernetesBed, store: Store, settings: Settings) -> str:
    """Why the only submission waits, as soon as the cluster says it."""

    def said() -> bool:
        looks = watch_all(store, settings, now=utc_now())
        assert not [look.error for look in looks if look.error]
        return bool(store.reader.submissions()[0].latest.reason)

    bed.until("the reason is kept", said)
    (submission,) = store.reader.submissions()
    assert submission.state is SubmissionState.PENDING
    return submission.latest.reason


def test_why_a_pod_waits_stands_in_the_submission(bed: KubernetesBed, store: Store) -> None:
    """The scheduler's words of a pending pod are kept, although the state stays pending."""
    settings, claim = settings_of(bed), f"unbound-{uuid4().hex[:8]}"
    bed.apply(volume_claim(claim))
    sent(make_job(data={"path": "/data", "claim": claim}), settings, store)
    assert "unbound immediate PersistentVolumeClaims" in reason_of(bed, store, settings)


def test_why_no_pod_is_made_stands_in_the_submission(bed: KubernetesBed, store: Store) -> None:
    """Where a limit range forbids the pods the event of the Job is the reason."""
    settings = settings_of(bed)
    limits = [{"type": "Container", "max": {"cpu": "1"}}]
    bed.apply(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "tiny", "namespace": "default"},
            "spec": {"limits": limits},
        }
    )
    try:
        sent(make_job(host={"cpus_per_gpu": 8}), settings, store)
        assert "FailedCreate" in reason_of(bed, store, settings)
    finally:
        bed.delete("LimitRange", "tiny")


@pytest.fixture
def tainted(bed: KubernetesBed) -> Iterator[None]:
    """Both A100 nodes are tainted, each in its own way; the H100 node by what no job tolerates."""
    taints = {
        "gpu-a100-1": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        "gpu-a100-2": [
            {"key": "nvidia.com/gpu", "effect": "NoExecute"},
            {"key": "spot", "value": "yes", "effect": "PreferNoSchedule"},
        ],
        "gpu-h100": [{"key": "team", "value": "vision", "effect": "NoSchedule"}],
    }
    for name, marks in taints.items():
        bed.patch("Node", name, {"spec": {"taints": marks}})
    yield
    for name in taints:
        bed.patch("Node", name, {"spec": {"taints": None}})


@pytest.mark.usefixtures("tainted")
def test_a_job_tolerates_the_taints_of_its_gpu_nodes_alone(
    bed: KubernetesBed, store: Store
) -> None:
    """The pod tolerates key, value and effect of these nodes, and the real scheduler binds it."""
    settings = settings_of(bed)
    submission = sent(make_job(), settings, store)
    pod = bed.get("Job", name_of(submission))["spec"]["template"]["spec"]
    assert submission.latest.plan.gpu_type == "A100-SXM4-40GB"
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "effect": "NoExecute"},
        {
            "key": "nvidia.com/gpu",
            "operator": "Equal",
            "value": "present",
            "effect": "NoSchedule",
        },
    ]
    followed(bed, store, settings, SubmissionState.RUNNING)


@pytest.mark.usefixtures("tainted")
def test_only_taints_of_the_settings_are_tolerated(bed: KubernetesBed, store: Store) -> None:
    """With other keys allowed the job goes to the node that bears one of them, and nowhere else."""
    settings = settings_of(bed, tolerate="team")
    submission = sent(make_job(), settings, store)
    assert submission.latest.plan.gpu_type == "H100-SXM5-80GB"
    followed(bed, store, settings, SubmissionState.RUNNING)
    with pytest.raises(ImpossibleProblemError, match="no node that takes jobs"):
        proposal_of(make_job(), settings_of(bed, tolerate=""), store)
