"""What keeps a change out although its kind allows it: policies, webhooks, quotas, budgets."""

import json
from typing import Any

import pytest
from beds.kubernetes_apply import gpus, planned, pod_spec, proposal, rehearsed, replicated
from beds.kubernetes_fake import FakeApi

from dashboard.apply.kubernetes.applier import KubernetesApplier

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
