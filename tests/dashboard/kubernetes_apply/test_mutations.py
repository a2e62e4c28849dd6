"""A target that is not as it was approved is always refused: every mutation, every way in."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from beds.kubernetes_apply import deployment, gpus, planned, pod_spec, proposal
from beds.kubernetes_fake import FakeApi

from collectors.kubernetes.kinds import excerpt
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.kubernetes.change.steps import command_of
from dashboard.apply.kubernetes.state.json_patch import as_text, leaves, names_of, value_at
from data.base.errors import ApplyError
from data.records.changes import Change, StepOutcome
from data.records.recommendations import Recommendation

APPS, RAY = "apis/apps/v1/namespaces/ml/deployments", "apis/ray.io/v1/namespaces/ml/rayclusters"
PYTORCH = "apis/kubeflow.org/v1/namespaces/ml/pytorchjobs"
BATCH = "apis/batch/v1/namespaces/ml/jobs"
OWNERS: list[dict[str, Any]] = [
    {"labels": {"app.kubernetes.io/managed-by": "Helm"}},
    {"annotations": {"meta.helm.sh/release-name": "r"}},
    {"annotations": {"argocd.argoproj.io/instance": "a"}},
    {"labels": {"helm.toolkit.fluxcd.io/name": "a"}},
    {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
    {
        "ownerReferences": [
            {"apiVersion": "x/v1", "kind": "Model", "name": "m", "uid": "u", "controller": True}
        ]
    },
    {"managedFields": [{"manager": "helm", "operation": "Apply", "fieldsV1": {"f:spec": {}}}]},
]

ROLLING = {
    "type": "RollingUpdate",
    "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
}


def work(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return an object of a kind."""
    about = {"name": "work", "namespace": "ml"}
    return {"apiVersion": version, "kind": kind, "metadata": about, "spec": spec}


def cases() -> list[tuple[str, dict[str, Any], Recommendation]]:
    """Objects of several kinds, and what was approved for them."""
    wish = {"details": (("gpus_per_pod", "1"),)}
    roles = {
        "Master": {"replicas": 1, "template": {"spec": pod_spec(2)}},
        "Worker": {"replicas": 3, "template": {"spec": pod_spec(2)}},
    }
    elastic = {"pytorchReplicaSpecs": roles, "elasticPolicy": {"minReplicas": 1, "maxReplicas": 4}}
    group = {"groupName": "g", "replicas": 3, "minReplicas": 1, "maxReplicas": 3}
    ray = {"workerGroupSpecs": [group | {"template": {"spec": pod_spec(2)}}]}
    job = {"parallelism": 2, "suspend": False, "template": {"spec": pod_spec(2)}}
    serve = deployment("ml", replicas=2, pod=pod_spec(2), strategy=ROLLING)
    return [
        (f"{APPS}/serve", serve, proposal("ml/deployment/serve", gpus(4), gpus(2), **wish)),
        (f"{APPS}/serve", serve, proposal("ml/deployment/serve", gpus(4), gpus(2))),
        (f"{APPS}/serve", serve, proposal("ml/deployment/serve", gpus(4), gpus(0))),
        (f"{PYTORCH}/work", work("kubeflow.org/v1", "PyTorchJob", elastic),
         proposal("ml/pytorchjob/work", gpus(8), gpus(4))),
        (f"{RAY}/work", work("ray.io/v1", "RayCluster", ray),
         proposal("ml/raycluster/work", gpus(6), gpus(4))),
        (f"{BATCH}/work", work("batch/v1", "Job", job),
         proposal("ml/job/work", gpus(4), gpus(2), **wish)),
    ]  # fmt: skip


def mutated(document: dict[str, Any], at: str, chance: random.Random) -> dict[str, Any]:
    """The object with another value at a pointer, or none."""
    found = copy.deepcopy(document)
    *above, last = names_of(at)
    inside = found
    for name in above:
        inside = inside[int(name)] if isinstance(inside, list) else inside[name]
    old = inside[last]
    if chance.random() < 0.2:
        del inside[last]
    elif isinstance(old, bool):
        inside[last] = not old
    elif isinstance(old, int):
        inside[last] = old + chance.choice((-1, 1, 2, 100))
    elif isinstance(old, str):
        inside[last] = chance.choice((f"{old}0", f"x{old}", ""))
    else:
        inside[last] = {"other": "1"}
    return found


def other_uid(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Another object of the same name."""
    found = copy.deepcopy(document)
    found["metadata"]["uid"] = f"uid-{chance.getrandbits(64):x}"
    return found


def other_owner(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The object with somebody who would undo a change."""
    found = copy.deepcopy(document)
    found["metadata"] |= copy.deepcopy(chance.choice(OWNERS))
    return found


def accepts(newer: KubernetesApplier, change: Change) -> bool:
    """Whether a look finds the target as it was approved."""
    try:
        return newer.look_again(change).fingerprint == change.target.fingerprint
    except ApplyError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("case", range(6))
def test_a_mutated_target_is_always_refused(
    fake: FakeApi, newer: KubernetesApplier, case: int
) -> None:
    """Of 1,200 mutations none is taken for the approved target.

    None of a touched field, the uid or the owner lets the step be sent.
    """
    chance = random.Random(case)  # noqa: S311 # mutations, no secrets
    path, document, recommendation = cases()[case]
    kept = fake.put(path, copy.deepcopy(document))
    change = planned(newer, recommendation)
    step = change.steps[0]
    assert accepts(newer, change)
    depends = [at for at, text in leaves(excerpt(kept)) if text not in ("{}", "[]")]
    first = [at for at in command_of(step).edits if value_at(kept, at) is not None]
    makers: list[Callable[[], tuple[dict[str, Any], bool]]] = [
        lambda: (mutated(kept, chance.choice(depends), chance), False),
        lambda: (mutated(kept, chance.choice(first), chance), True),
        lambda: (other_uid(kept, chance), True),
        lambda: (other_owner(kept, chance), True),
    ]
    for index in range(200):
        found, decisive = makers[index % len(makers)]()
        assert as_text(found) != as_text(kept)
        fake.objects[path] = found
        assert not accepts(newer, change), json.dumps(found)
        if decisive:
            sent = len(fake.sent)
            assert newer.execute(step, change).outcome is StepOutcome.REFUSED
            assert len(fake.sent) == sent
        fake.objects[path] = kept
    assert accepts(newer, change)


@pytest.mark.parametrize("case", range(6))
def test_the_server_itself_refuses_a_target_that_moves_after_the_look(
    fake: FakeApi, newer: KubernetesApplier, case: int
) -> None:
    """Between our look and the patch there is no gap: the patch tests what it replaces."""
    chance = random.Random(case)  # noqa: S311 # mutations, no secrets
    path, document, recommendation = cases()[case]
    kept = fake.put(path, copy.deepcopy(document))
    change = planned(newer, recommendation)
    step = change.steps[0]
    touched = [at for at in command_of(step).edits if value_at(kept, at) is not None]
    for index in range(40):
        found = (
            other_uid(kept, chance) if index % 2 else mutated(kept, chance.choice(touched), chance)
        )

        def move(_query: str, found: dict[str, Any] = found) -> None:
            fake.objects[path] = found

        fake.instead = move
        assert newer.execute(step, change).outcome is StepOutcome.REFUSED
        assert as_text(fake.objects[path]) == as_text(found)
        fake.instead = lambda _query: None
        fake.objects[path] = kept


def test_an_autoscaler_that_came_since_is_refused(fake: FakeApi, newer: KubernetesApplier) -> None:
    """It stands in no field of the object."""
    path, document, recommendation = cases()[1]
    fake.put(path, document)
    change = planned(newer, recommendation)
    target = {"kind": "Deployment", "name": "serve"}
    scaler = {"metadata": {"namespace": "ml", "name": "s"}, "spec": {"scaleTargetRef": target}}
    fake.lists["apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers"] = [scaler]
    assert not accepts(newer, change)
