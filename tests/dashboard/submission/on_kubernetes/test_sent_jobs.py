"""A real Kubernetes API: a job that names no GPU arrives with GPUs, is followed, is sent again."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from beds.kubernetes import KubernetesBed
from beds.kubernetes_submission import delete_job, followed, name_of, pods_of, settings_of
from beds.submission import proposal_of, sent, target_of
from submission_cases import job_table, make_job

from collectors.shared.json_parts import quantity
from dashboard.submission.job.job_file import JobFile
from dashboard.submission.submit.submit import submit
from dashboard.submission.submit.watch import watch_all
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError, SourceRefusedError
from data.records.submissions import Submission, SubmissionState
from data.settings.all_settings import Settings
from data.store import Store

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
SUBMITTER = Path(__file__).parents[4] / "deploy" / "kubernetes-submitter.yaml"


def of_two_nodes() -> JobFile:
    """A job that needs four A100, hence two nodes."""
    table = job_table()
    recipe = table["training"] | {"optimizer": "adamw8bit"}
    return make_job(model={"name": "llama3-8b"}, training=recipe)


def end_pods(bed: KubernetesBed, submission: Submission, **terminated: Any) -> None:
    """Call all its pods failed, as a kubelet would whose container ended so."""
    for pod in pods_of(bed, submission):
        container = {
            "name": "pytorch",
            "image": "x",
            "imageID": "x",
            "ready": False,
            "restartCount": 0,
            "state": {"running": None, "terminated": {"exitCode": 1, **terminated}},
        }
        bed.patch_status(
            "Pod",
            pod["metadata"]["name"],
            {"phase": "Failed", "containerStatuses": [container]},
        )


def sent_again(bed: KubernetesBed, store: Store, settings: Settings) -> Submission:
    """The only submission, when its second attempt is under way."""

    def reached() -> bool:
        looks = watch_all(store, settings, now=utc_now())
        assert not [look.error for look in looks if look.error]
        return len(store.reader.submissions()[0].attempts) == 2

    bed.until("a second attempt is sent", reached)
    return store.reader.submissions()[0]


def test_a_job_without_gpus_arrives_with_the_right_resources(
    bed: KubernetesBed, store: Store
) -> None:
    """TinyLlama becomes a Job on A100 nodes, the smallest GPU that takes it, and runs."""
    settings = settings_of(bed)
    submission = sent(make_job(), settings, store)
    job = bed.get("Job", name_of(submission))
    container = job["spec"]["template"]["spec"]["containers"][0]
    plan = submission.latest.plan
    assert plan.gpu_type == "A100-SXM4-40GB"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(plan.gpus_per_node)
    assert job["spec"]["completions"] == plan.nodes
    bed.until("its pods run", lambda: [
        pod["status"]["phase"] for pod in pods_of(bed, submission)
    ] == ["Running"] * plan.nodes)  # fmt: skip
    assert {pod["spec"]["nodeName"] for pod in pods_of(bed, submission)} <= {
        "gpu-a100-1",
        "gpu-a100-2",
    }
    followed(bed, store, settings, SubmissionState.RUNNING)


def test_what_an_old_server_would_drop_is_refused(bed: KubernetesBed, store: Store) -> None:
    """Kubernetes 1.20 knows no indexed Jobs: a job of two nodes is refused, and none is made."""
    settings = settings_of(bed)
    bed.patch("Node", "gpu-h100", {"spec": {"unschedulable": True}})
    try:
        with pytest.raises(ChangeRefusedError, match=r"would drop \.spec\.completionMode"):
            sent(of_two_nodes(), settings, store)
    finally:
        bed.patch("Node", "gpu-h100", {"spec": {"unschedulable": False}})
    assert bed.list("Job", namespace="default") == []
    assert store.reader.submissions()[0].state is SubmissionState.REFUSED


def test_a_preview_is_tried_by_the_server_and_changes_nothing(
    bed: KubernetesBed, store: Store
) -> None:
    """A dry run reaches validation of the API, and no Job is there afterwards."""
    settings = settings_of(bed)
    proposal = proposal_of(make_job(), settings, store)
    assert "dryRun=All" in target_of(settings).check(proposal.manifest)
    assert bed.list("Job", namespace="default") == []
    assert store.reader.audit() == ()


def test_who_may_not_create_jobs_is_told_the_right(bed: KubernetesBed, store: Store) -> None:
    """The account that reads cannot submit; the submission stays unconfirmed and says why."""
    settings = settings_of(bed, user="reader")
    with pytest.raises(SourceRefusedError, match="kubernetes-submitter"):
        sent(make_job(), settings, store)
    assert store.reader.submissions()[0].state is SubmissionState.SENDING
    assert bed.list("Job", namespace="default") == []


def test_a_kind_that_is_not_installed_is_named(bed: KubernetesBed, store: Store) -> None:
    """A PyTorchJob on a cluster without the operator is refused, and nothing waits for it."""
    with pytest.raises(ChangeRefusedError, match="PyTorchJob installed"):
        sent(make_job(), settings_of(bed, kubernetes_kind="pytorchjob"), store)
    assert store.reader.submissions()[0].state is SubmissionState.REFUSED


def definition(kind: str, plural: str, group: str, version: str) -> dict[str, Any]:
    """A definition of custom resources that keeps whatever it is given."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }


def test_a_job_set_is_created_and_followed(bed: KubernetesBed, store: Store) -> None:
    """Two nodes of A100 as a JobSet, whose condition Completed ends the submission."""
    bed.apply(definition("JobSet", "jobsets", "jobset.x-k8s.io", "v1alpha2"))
    settings = settings_of(bed, kubernetes_kind="jobset")
    bed.patch("Node", "gpu-h100", {"spec": {"unschedulable": True}})
    try:
        submission = sent(of_two_nodes(), settings, store)
    finally:
        bed.patch("Node", "gpu-h100", {"spec": {"unschedulable": False}})
    assert submission.latest.job_id == f"default/jobset/{name_of(submission)}"
    job = bed.get("JobSet", name_of(submission))["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (job["completions"], job["completionMode"]) == (submission.latest.plan.nodes, "Indexed")
    (container,) = job["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    done = {"type": "Completed", "status": "True"}
    bed.patch_status("JobSet", name_of(submission), {"conditions": [done]})
    followed(bed, store, settings, SubmissionState.FINISHED)


def test_hostile_words_stay_words(bed: KubernetesBed, store: Store) -> None:
    """References to variables, YAML and quotes of the author arrive doubled or quoted."""
    evil = ["$(RANK)", "$$(X)", "{a: b}", "- x\t", "'\"`;#", "&anchor *alias", "!!python/name:os"]
    settings = settings_of(bed)
    evil[3] = "- x"
    submission = sent(
        make_job(command=["train.py", *evil], environment={"E": "$(HOME)"}), settings, store
    )
    container = bed.get("Job", name_of(submission))["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][-len(evil) :] == [word.replace("$", "$$") for word in evil]
    assert {"name": "E", "value": "$$(HOME)"} in container["env"]


def test_cuda_out_of_memory_is_sent_again_on_more(bed: KubernetesBed, store: Store) -> None:
    """The end of the log in the pod's status tells; the second attempt has a larger share."""
    settings = settings_of(bed)
    job = make_job(on_out_of_memory={"resubmit": True, "retries": 1})
    submission = sent(job, settings, store)
    bed.until("its pods run", lambda: any(
        pod["status"]["phase"] == "Running" for pod in pods_of(bed, submission)
    ))  # fmt: skip
    end_pods(bed, submission, message="RuntimeError: CUDA out of memory. Tried to allocate 2 GiB")
    again = sent_again(bed, store, settings)
    assert again.attempts[0].state is SubmissionState.OUT_OF_GPU_MEMORY
    assert again.latest.raised > 1
    assert bed.get("Job", name_of(again))["metadata"]["annotations"]["trimtab/attempt"].endswith(
        ":2"
    )


def test_an_oom_kill_is_host_memory(bed: KubernetesBed, store: Store) -> None:
    """OOMKilled raises the memory that the job states for its host, and no GPU estimate."""
    settings = settings_of(bed)
    job = make_job(
        host={"memory_gib_per_gpu": 4}, on_out_of_memory={"resubmit": True, "retries": 1}
    )
    submission = sent(job, settings, store)
    bed.until("its pods run", lambda: any(
        pod["status"]["phase"] == "Running" for pod in pods_of(bed, submission)
    ))  # fmt: skip
    end_pods(bed, submission, reason="OOMKilled", exitCode=137)
    again = sent_again(bed, store, settings)
    assert again.attempts[0].state is SubmissionState.OUT_OF_HOST_MEMORY
    assert (again.latest.raised, again.latest.host_raised) == (1.0, 1.5)
    container = bed.get("Job", name_of(again))["spec"]["template"]["spec"]["containers"][0]
    each = again.latest.plan.gpus_per_node
    assert container["resources"]["limits"]["memory"] == f"{6 * each}Gi"


def test_sending_twice_makes_one_job(bed: KubernetesBed, store: Store) -> None:
    """A second call with the same mark finds the first Job, a foreign one of that name does not."""
    settings = settings_of(bed)
    proposal = proposal_of(make_job(), settings, store)
    target = target_of(settings)
    assert target.send(proposal.manifest) == target.send(proposal.manifest)
    assert len(bed.list("Job", namespace="default")) == 1
    bed.patch(
        "Job", proposal.manifest.name, {"metadata": {"annotations": {"trimtab/attempt": "other"}}}
    )
    with pytest.raises(ChangeRefusedError, match="not ours"):
        target.send(proposal.manifest)


def test_a_deleted_job_is_lost_only_after_a_while(bed: KubernetesBed, store: Store) -> None:
    """A job that the cluster does not show counts as lost five minutes after it was sent."""
    settings = settings_of(bed)
    submission = sent(make_job(), settings, store)
    delete_job(bed, name_of(submission))
    bed.until("it is gone", lambda: not bed.list("Job", namespace="default"))
    (early,) = watch_all(store, settings, now=submission.latest.sent_at)
    assert early.submission.state is SubmissionState.PENDING
    late = submission.latest.sent_at.replace(year=submission.latest.sent_at.year + 1)
    (gone,) = watch_all(store, settings, now=late)
    assert gone.submission.state is SubmissionState.LOST


def test_the_submitter_s_role_suffices(bed: KubernetesBed, store: Store) -> None:
    """An account with deploy/kubernetes-submitter.yaml's rights submits, follows, and is done."""
    bed.apply(SUBMITTER.read_text(encoding="utf-8"))
    group = "rbac.authorization.k8s.io"
    user = [{"kind": "User", "name": "nobody", "apiGroup": group}]
    for kind, role, more in (
        ("RoleBinding", ("Role", "trimtab-submitter"), {"namespace": "default"}),
        ("ClusterRoleBinding", ("ClusterRole", "trimtab-reader"), {}),
    ):
        bed.apply(
            {
                "apiVersion": f"{group}/v1",
                "kind": kind,
                "metadata": {"name": "nobody-submits", **more},
                "roleRef": {"apiGroup": group, "kind": role[0], "name": role[1]},
                "subjects": user,
            }
        )
    settings = settings_of(bed, user="nobody")
    submission = sent(make_job(), settings, store)
    followed(bed, store, settings, SubmissionState.RUNNING)
    assert bed.get("Job", name_of(submission))["metadata"]["labels"]["trimtab/submission"]


def test_cpu_and_memory_are_nine_tenths_of_the_share(bed: KubernetesBed, store: Store) -> None:
    """What pods without GPUs ask for is taken off first; stated figures are taken as they are."""
    daemon = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "daemon", "namespace": "default"},
        "spec": {
            "nodeName": "gpu-a100-1",
            "containers": [
                {
                    "name": "a",
                    "image": "x",
                    "resources": {"requests": {"cpu": "3500m", "memory": "2Gi"}},
                }
            ],
        },
    }
    bed.apply(daemon)
    settings = settings_of(bed)
    proposal = proposal_of(make_job(), settings, store)
    each = proposal.placement.gpus_per_node
    submission = submit(
        proposal, target_of(settings), store, settings=settings, by="ada", now=utc_now()
    )
    container = bed.get("Job", name_of(submission))["spec"]["template"]["spec"]["containers"][0]
    asked = container["resources"]["requests"]
    assert float(quantity(asked["cpu"]) or 0) == pytest.approx(
        0.9 * (64 - 3.5) * each / 2, abs=0.002
    )
    assert float(quantity(asked["memory"]) or 0) == pytest.approx(
        0.9 * 510 * 2**30 * each / 2, rel=1e-3
    )
    assert set(container["resources"]["limits"]) == {"nvidia.com/gpu"}
    followed(bed, store, settings, SubmissionState.RUNNING)


def test_a_finished_job_is_asked_to_be_deleted(bed: KubernetesBed, store: Store) -> None:
    """The manifest says how long; a server without that feature keeps the job, and that is said."""
    settings, seconds = settings_of(bed), 7 * 86_400
    proposal = proposal_of(make_job(), settings, store)
    (job,) = yaml.safe_load_all(proposal.manifest.text)
    assert job["spec"].get("ttlSecondsAfterFinished") == seconds
    said = target_of(settings).check(proposal.manifest)
    kept = sent(make_job(), settings, store)
    stored = bed.get("Job", name_of(kept))["spec"].get("ttlSecondsAfterFinished")
    assert stored in (seconds, None)
    assert ("finished jobs stay" in said) is (stored is None)
