"""What keeps a change out although its kind allows it: policies, webhooks, quotas, budgets."""

import json
from typing import Any

import pytest
from beds.kubernetes_apply import gpus, planned, pod_spec, proposal, rehearsed, replicated
from beds.kubernetes_fake import FakeApi
from drawn_kubernetes import PRODUCTS, cluster_of_three_models, serve
from planning_cases import A100, H100

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from data.records.changes import StepOutcome

PATH = "apis/apps/v1/namespaces/ml/deployments/serve"
BUDGETS = "apis/policy/v1/namespaces/ml/poddisruptionbudgets"


def serving(fake: FakeApi) -> None:
    """A Deployment of four pods with one GPU each."""
    fake.put(PATH, replicated("Deployment", "ml", replicas=4, pod=pod_spec(1)))


@pytest.mark.parametrize(
    ("code", "message", "who"),
    [
        (422, "ValidatingAdmissionPolicy 'two' with binding 'all' denied request: at least 2",
         "a policy of the cluster"),
        (403, "admission webhook \"keep.example.org\" denied the request: at least 2",
         "an admission webhook"),
        (400, "admission webhook \"keep.example.org\" denied the request: at least 2",
         "an admission webhook"),
        (403, "exceeded quota: gpus, requested: 1, used: 4, limited: 4; at least 2",
         "a quota of the namespace"),
    ],
)  # fmt: skip
def test_a_refusal_of_admission_is_told_in_its_own_words(
    fake: FakeApi, newer: KubernetesApplier, code: int, message: str, who: str
) -> None:
    """The manifest that it refuses is no way out, nor is a right of the account."""
    serving(fake)
    text = f'deployments.apps "serve" is forbidden: {message}'
    body = {"kind": "Status", "code": code, "message": text}
    fake.instead = lambda _query: (code, json.dumps(body).encode(), {})
    (refusal,) = rehearsed(
        newer, planned(newer, proposal("ml/deployment/serve", gpus(4), gpus(1)))
    ).refusals
    assert who in refusal
    assert "at least 2" in refusal
    assert "recreate" not in refusal
    assert "role of the applying" not in refusal


@pytest.mark.parametrize(("least", "left", "may"), [(3, 1, False), (3, 3, True), (1, 0, False)])
def test_no_change_leaves_fewer_pods_than_a_budget_wants(
    fake: FakeApi, newer: KubernetesApplier, least: int, left: int, may: bool
) -> None:
    """Its owner said how many are to be available; more pods are no matter of it."""
    serving(fake)
    labels: dict[str, Any] = fake.objects[PATH]["spec"]["template"]["metadata"]["labels"]
    fake.lists[BUDGETS] = [
        {
            "metadata": {"name": "keep", "namespace": "ml"},
            "spec": {"minAvailable": least, "selector": {"matchLabels": labels}},
            "status": {"expectedPods": 4},
        }
    ]
    found = rehearsed(newer, planned(newer, proposal("ml/deployment/serve", gpus(4), gpus(left))))
    assert ["PodDisruptionBudget keep" in text for text in found.refusals] == [True] * (not may)


def on_boards(name: str, count: int, node: str = "node-0", **spec: Any) -> dict[str, Any]:
    """A pod with so many GPUs: on a node, or waiting for one where that is ''."""
    placed = {"nodeName": node} if node else {}
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}"},
        "spec": pod_spec(count) | placed | spec,
        "status": {"phase": "Running" if node else "Pending"},
    }


H100S, A100S = ({"nvidia.com/gpu.product": PRODUCTS[model]} for model in (H100, A100))


def full(fake: FakeApi, *others: dict[str, Any], replicas: int = 4) -> None:
    """Four pods of two GPUs fill a node of H100; the other nodes are full as well."""
    drawn = cluster_of_three_models()
    drawn.objects["Deployment"] = [
        replicated("Deployment", "ml", replicas=replicas, pod=pod_spec(2))
    ]
    serve(fake, drawn)
    own = [on_boards(f"serve-{number}", 2) for number in range(replicas)]
    elsewhere = [on_boards(f"busy-{number}", 8, f"node-{number}") for number in range(1, 6)]
    fake.lists["api/v1/namespaces/ml/pods"] = own
    fake.lists["api/v1/pods"] = [*own, *elsewhere, *others]


@pytest.mark.parametrize(
    ("waiting", "takes"),
    [
        (on_boards("next", 2, "", nodeSelector=H100S), True),
        (on_boards("next", 4, "", nodeSelector=H100S), True),
        (on_boards("next", 2, ""), True),
        (on_boards("next", 8, "", nodeSelector=H100S), False),
        (on_boards("next", 2, "", nodeSelector=A100S), False),
        (on_boards("next", 2, "", schedulingGates=[{"name": "kueue"}]), False),
        (on_boards("next", 0, ""), False),
        (on_boards("next", 2, "node-0"), False),
    ],
)
def test_pods_that_would_take_what_is_freed_are_named_before_the_approval(
    fake: FakeApi, newer: KubernetesApplier, waiting: dict[str, Any], takes: bool
) -> None:
    """Those that the scheduler would bind to just these GPUs; the way back would wait for them."""
    full(fake, waiting)
    change = planned(newer, proposal("ml/deployment/serve", gpus(8), gpus(2)))
    warnings = rehearsed(newer, change).warnings
    assert [text.startswith("ml/next waits for such GPUs") for text in warnings] == [True] * takes


@pytest.mark.parametrize("limit", [0, 7, 8])
def test_a_way_back_that_has_no_room_or_no_quota_says_so_before_it_is_sent(
    fake: FakeApi, newer: KubernetesApplier, limit: int
) -> None:
    """A quota refuses it, by its name; GPUs that others took are a wait, with their number."""
    full(fake)
    change = planned(newer, proposal("ml/deployment/serve", gpus(8), gpus(2)))
    assert newer.execute(change.steps[0], change).outcome is StepOutcome.DONE
    # What they freed is others' now.
    fake.lists["api/v1/pods"] = [on_boards("serve-0", 2), on_boards("next", 4)]
    for number in range(1, 6):
        fake.lists["api/v1/pods"].append(on_boards(f"busy-{number}", 8, f"node-{number}"))
    if limit:
        fake.lists["api/v1/namespaces/ml/resourcequotas"] = [
            {
                "metadata": {"name": "team", "namespace": "ml"},
                "spec": {"hard": {"requests.nvidia.com/gpu": str(limit)}},
                "status": {
                    "hard": {"requests.nvidia.com/gpu": str(limit)},
                    "used": {"requests.nvidia.com/gpu": "2"},
                },
            }
        ]
    back = newer.change_back(change, newer.look_again(change))
    found = rehearsed(newer, back)
    refused = limit == 7
    assert ["the quota team allows 7" in text for text in found.refusals] == [True] * refused
    assert "Nodes have room for 1 of 3 more pods now" in found.warnings[0]
