"""What is shown is what is sent: one patch in change file, preview, Git and applier."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml
from beds.kubernetes_apply import GPU, gpus, planned, proposal
from beds.kubernetes_fake import FakeApi
from drawn_kubernetes import Drawn, Listed, cluster_of_three_models, owned_by, serve, spec_of
from planning_cases import A100, AS_OF

from collectors.kubernetes.client import Inventory
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.shared.collector import Window
from dashboard.apply.git.steps import live_plan
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.kubernetes.change.steps import command_of
from dashboard.apply.worker.change_file import change_for
from data.base.errors import ApplyError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.gpu_resources import SHARED_GPU
from data.facts.identifiers import canonical_json
from data.facts.jobs import Job
from data.records.actions import ACTIONS, Action
from data.records.changes import StepOutcome
from data.records.recommendations import SHARE_RESOURCE, Recommendation

POD_SHAPES = ("main", "second", "first", "bare", "init")
CHANGES = ("fewer-pods", "fewer-each", "more-pods", "model", "slice", "stop", "share")
ACTION_OF = {
    "fewer-pods": Action.FEWER_GPUS, "fewer-each": Action.FEWER_GPUS, "model": Action.SMALLER_GPU,
    "more-pods": Action.SCALE_OUT, "slice": Action.MIG_SLICE, "stop": Action.RECLAIM,
    "share": Action.TAKE_SHARE,
}  # fmt: skip
OTHER_WAYS = {
    Action.POWER_CAP, Action.TIME_LIMIT, Action.SHIFT_IN_TIME, Action.MIG_LAYOUT,
    Action.OFFER_SHARES,
}  # fmt: skip
"""Actions of other targets, and layouts, whose file is for a person who waits between its steps."""
KINDS = (
    "Deployment", "StatefulSet", "Job", "CronJob", "PyTorchJob", "MPIJob", "JobSet", "RayCluster",
    "RayService", "RayJob", "LeaderWorkerSet",
)  # fmt: skip
SCALED = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "serve"}}


def pod_spec(shape: str, count: int) -> dict[str, Any]:
    """A pod whose GPUs are not always those of its first container, nor always requested."""
    asked = {GPU: str(count)}
    resources = {"limits": asked} | ({} if shape == "bare" else {"requests": asked})
    main = {"name": "main", "image": "example/serve:1", "resources": resources}
    beside = {"name": "proxy", "image": "example/proxy:1"}
    containers = {"second": [beside, main], "first": [main, beside]}.get(shape, [main])
    warm = [{"name": "warm", "image": "example/warm:1", "resources": resources}]
    init = {"initContainers": warm} if shape == "init" else {}
    return {"containers": containers, "nodeSelector": {"pool": "gpu"}, **init}


def spec(kind: str, pods: int, pod: dict[str, Any]) -> Any:
    """The spec of a workload with so many pods."""
    template = {"spec": pod}
    job = {"parallelism": pods, "template": {"spec": pod | {"restartPolicy": "Never"}}}
    ray = {
        "headGroupSpec": {"template": {"spec": {"containers": [{"name": "head", "image": "h"}]}}},
        "workerGroupSpecs": [{"groupName": "w", "replicas": pods, "template": template}],
    }
    worker = {"Worker": {"replicas": pods, "template": template}}
    launcher = {"containers": [{"name": "l", "image": "l", "command": ["horovodrun", "--min-np"]}]}
    special: dict[str, Any] = {
        "Job": job | {"suspend": False},
        "CronJob": {"schedule": "0 * * * *", "jobTemplate": {"spec": job}},
        "PyTorchJob": {
            "pytorchReplicaSpecs": worker,
            "elasticPolicy": {"minReplicas": 1, "maxReplicas": 8},
        },
        "MPIJob": {
            "mpiReplicaSpecs": worker | {"Launcher": {"template": {"spec": launcher}}},
        },
        "RayCluster": ray,
        "RayService": {"rayClusterConfig": ray},
        "RayJob": {"rayClusterSpec": ray},
    }
    found = special.get(kind) or spec_of(kind, pods, pod, elastic=False)
    if kind == "Deployment":
        rolling = {"maxSurge": "25%", "maxUnavailable": "25%"}
        found |= {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}
    return found | ({"serviceName": "serve"} if kind == "StatefulSet" else {})


def cluster(kind: str, pods: int, each: int, shape: str) -> Drawn:
    """A cluster of three models with one running workload on its H100 boards."""
    drawn = cluster_of_three_models()
    pod = pod_spec(shape, each)
    marks = {"trimtab/elastic": "true"} if kind == "JobSet" else {}
    top = drawn.add(kind, "serve", spec(kind, pods, pod), annotations=marks)
    for number in range(pods):
        one = drawn.add("Pod", f"serve-{number}", dict(pod), ownerReferences=owned_by(top))
        one["spec"] = {**one["spec"], "nodeName": "node-0"}
        one["status"] = {"phase": "Running", "startTime": (AS_OF - timedelta(days=1)).isoformat()}
    for node in drawn.objects["Node"]:
        node["status"]["allocatable"] |= {"nvidia.com/mig-3g.40gb": "2", SHARED_GPU: "8"}
        node["metadata"]["labels"]["pool"] = "gpu"  # with room for a rollout's one more pod
    return drawn


def stored(drawn: Drawn) -> Job:
    """The workload as a collection leaves it in the store."""
    inventory = Inventory(objects=drawn.objects, version="1.36")
    collector = KubernetesCollector(Listed(inventory), load_gpu_catalogue())
    (job,) = collector.collect(Window(start=AS_OF - timedelta(hours=1), end=AS_OF)).jobs
    return job


def proposed(job: Job, change: str, pods: int, each: int) -> Recommendation:
    """A recommendation of a change."""
    now = gpus(pods * each)
    then = {
        "fewer-pods": gpus((pods - 1) * each),
        "fewer-each": gpus(pods * each // 2),
        "more-pods": gpus((pods + 1) * each),
        "model": gpus(pods * each, model=A100),
        "slice": replace(now, mig_profile="3g.40gb"),
        "stop": gpus(0),
        "share": replace(now, boards=0.5),
    }[change]
    details = {
        "fewer-each": (("gpus_per_pod", str(each // 2)),),
        "share": ((SHARE_RESOURCE, SHARED_GPU), ("gpus_per_pod", "1")),
    }.get(change, ())
    return proposal(job.job_id, now, then, action=ACTION_OF[change], details=details)


def shown(one: Recommendation, job: Job | None) -> list[bytes] | None:
    """The patches of the change file, None where it is refused."""
    try:
        text = change_for(one, (), job).text
    except ApplyError:
        return None
    return [canonical_json(patch).encode() for patch in yaml.safe_load_all(text)]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_file_the_preview_git_and_the_server_get_the_same_bytes(
    fake: FakeApi, newer: KubernetesApplier, kind: str, change: str
) -> None:
    """Which container, which fields and which tests: of every kind and change, or all refuse."""
    pods, each = 3, 2
    shape = POD_SHAPES[(KINDS.index(kind) + CHANGES.index(change)) % len(POD_SHAPES)]
    drawn = cluster(kind, pods, each, shape)
    job = stored(drawn)
    serve(fake, drawn)
    one = proposed(job, change, pods, each)
    file = shown(one, job)
    try:
        applied = planned(newer, one)
    except ApplyError:
        assert file is None
        return
    patches = [command_of(step).operations for step in applied.steps]
    assert file == [canonical_json(patch).encode() for patch in patches]
    for step, patch in zip(applied.steps, patches, strict=True):
        assert f"-p '{json.dumps(patch, separators=(',', ':'))}'" in step.text
    if len(patches) == 1:
        live = command_of(live_plan(one, applied.target).steps[0]).operations
        assert canonical_json(live).encode() == file[0]
    assert newer.execute(applied.steps[0], applied).outcome is StepOutcome.DONE
    (_query, sent) = fake.sent[-1]
    about = ["/metadata/uid", "/metadata/resourceVersion"]
    assert [entry["path"] for entry in sent[:2]] == about
    assert canonical_json(sent[2:]).encode() == file[0]


@pytest.mark.parametrize("holder", ["HorizontalPodAutoscaler", "ScaledObject"])
@pytest.mark.parametrize("action", [Action.LOWER_MINIMUM, Action.RAISE_MAXIMUM])
def test_a_bound_is_shown_as_it_is_sent(
    fake: FakeApi, newer: KubernetesApplier, holder: str, action: Action
) -> None:
    """With the test of what the autoscaler scales."""
    drawn = cluster("Deployment", 3, 1, "main")
    bounds = {"minReplicas": 2, "maxReplicas": 6}
    about: dict[str, Any] = {}
    name = "horizontalpodautoscaler.autoscaling/serve"
    if holder == "ScaledObject":
        counts = {"minReplicaCount": 2, "maxReplicaCount": 6}
        top = drawn.add("ScaledObject", "serve", {**counts, "scaleTargetRef": {"name": "serve"}})
        about, name = {"ownerReferences": owned_by(top)}, "scaledobject.keda.sh/serve"
    drawn.add("HorizontalPodAutoscaler", "serve", SCALED | bounds, **about)
    fake.lists["apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers"] = drawn.objects[
        "HorizontalPodAutoscaler"
    ]
    job = stored(drawn)
    serve(fake, drawn)
    low = action is Action.LOWER_MINIMUM
    moved = {"bound_now": "2", "bound_proposed": "1"} if low else {"bound_now": "6"}
    details = tuple(({"autoscaler": name, "bound_proposed": "8"} | moved).items())
    one = proposal(job.job_id, gpus(3), gpus(3), action=action, details=details)
    (step,) = planned(newer, one).steps
    assert shown(one, job) == [canonical_json(command_of(step).operations).encode()]


def test_a_cordon_is_shown_as_it_is_sent(fake: FakeApi, newer: KubernetesApplier) -> None:
    """The script holds the command of the step."""
    drawn = cluster_of_three_models()
    serve(fake, drawn)
    one = proposal("", gpus(8), gpus(0), action=Action.CONSOLIDATE, details=(("node", "node-1"),))
    (step,) = planned(newer, one).steps
    assert step.text in change_for(one, (), None).text.splitlines()


def test_every_action_that_is_made_in_kubernetes_is_compared_here() -> None:
    """A new one has to be shown as it is sent, too."""
    resized = {action for action, row in ACTIONS.items() if row.resizes}
    compared = {
        Action.RECLAIM, Action.CONSOLIDATE, Action.LOWER_MINIMUM, Action.RAISE_MAXIMUM,
        Action.TAKE_SHARE,
    }  # fmt: skip
    made = {action for action, row in ACTIONS.items() if row.appliers}
    assert made - OTHER_WAYS == resized | compared
