"""Quantities that an applier does not understand: neither free nor used up, and told."""

from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes_apply import (
    GPU,
    gpus,
    planned,
    pod_spec,
    proposal,
    rehearsed,
    replicated,
    settings_of,
)
from beds.kubernetes_fake import FakeApi
from beds.kubernetes_replay import kubeconfig

from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.kubernetes.change.observe import pods_on
from dashboard.apply.kubernetes.state.free_capacity import fitting_pods, room_for
from dashboard.apply.kubernetes.state.quotas import (
    doubts,
    limit_doubts,
    limit_refusal,
    refusal,
)
from dashboard.common.kubernetes_writer import KubernetesWriter
from data.records.actions import Action

ODD = ["eight", "1.5", -1, True, [8], "8 GPUs"]


def node(free: Any) -> dict[str, Any]:
    """A node with GPUs."""
    return {"metadata": {"name": "a"}, "spec": {}, "status": {"allocatable": {GPU: free}}}


def holding(count: Any) -> dict[str, Any]:
    """A pod of the node that asks for GPUs."""
    containers = [{"name": "main", "resources": {"limits": {GPU: count}}}]
    return {
        "metadata": {"namespace": "ml", "name": "p"},
        "spec": {"nodeName": "a", "containers": containers},
        "status": {"phase": "Running"},
    }


def quota(limit: Any, used: Any, **spec: Any) -> dict[str, Any]:
    """A quota of GPUs; without `used` nobody has counted yet."""
    name = f"requests.{GPU}"
    status = {"hard": {name: limit}} | ({} if used is None else {"used": {name: used}})
    return {"metadata": {"name": "q"}, "spec": spec, "status": status}


@pytest.mark.parametrize("odd", ODD)
def test_room_is_unknown_where_a_number_that_decides_is_not_read(odd: Any) -> None:
    """Neither full, which replaces pods one by one, nor free, which lets a rollout wait."""
    spec = pod_spec(2)
    assert room_for(spec, [node(odd)], []) == "unknown"
    assert room_for(spec, [node("4")], [holding(odd)]) == "unknown"
    assert room_for(holding(odd)["spec"], [node("4")], []) == "unknown"
    assert fitting_pods(spec, [node("4")], [holding(odd)], most=3) == (0, 2)
    # What decides nothing is not asked for.
    assert room_for(spec, [node(odd), node("4")], []) == "yes"
    assert room_for(spec, [node("1")], [holding(odd)]) == "no"


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    ("limit", "used", "extra", "refuses"),
    [
        ("odd", "1", 1, None),
        ("4", "odd", 3, None),
        ("4", None, 3, None),
        ("4", "odd", 5, True),
        ("4", "1", 3, False),
        ("4", "2", 3, True),
    ],
)
def test_a_quota_that_is_not_read_is_told(
    odd: Any, limit: str, used: str | None, extra: int, refuses: bool | None
) -> None:
    """Its limit, or what is in use of it; None where nobody can say."""
    told = [quota(odd if limit == "odd" else limit, odd if used == "odd" else used)]
    more = {GPU: extra}
    assert bool(refusal(told, more)) is (refuses is True)
    assert bool(list(doubts(told, more))) is (refuses is None)


@pytest.mark.parametrize("spec", [{"scopes": ["BestEffort"]}, {"scopeSelector": {"a": 1}}])
def test_a_quota_with_scopes_may_refuse(spec: dict[str, Any]) -> None:
    """Nobody here tells which pods it is for."""
    told = [quota("4", "2", **spec)]
    assert not refusal(told, {GPU: 3})
    assert ["its scopes are not read" in text for text in doubts(told, {GPU: 3})] == [True]
    assert not list(doubts(told, {GPU: 2}))


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("end", ["min", "max"])
@pytest.mark.parametrize("of_pod", [True, False])
@pytest.mark.parametrize("per", ["Container", "Pod"])
def test_a_limit_range_that_is_not_read_is_told(odd: Any, end: str, of_pod: bool, per: str) -> None:
    """A number that is not understood, of the pod or of the range, is above and below no bound."""
    rule = {"type": per, end: {GPU: "2" if of_pod else odd}}
    spec = holding(odd if of_pod else "2")["spec"]
    ranges = [{"metadata": {"name": "r"}, "spec": {"limits": [rule]}}]
    assert not limit_refusal(ranges, spec)
    assert len(list(limit_doubts(ranges, spec))) == 1


def test_lists_that_may_not_be_read_are_told() -> None:
    """Of more pods or GPUs; fewer need no room."""
    assert list(doubts(None, {GPU: 1}))
    assert not list(doubts(None, {GPU: -1}))
    assert list(limit_doubts(None, {}))


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        (holding("2"), "ml/p (2)"),
        (holding("0"), ""),
        *((holding(odd), "ml/p (?)") for odd in ODD),
        (holding("0") | {"spec": {"resourceClaims": [{"resourceClaimName": "c"}]}}, "ml/p (?)"),
    ],
)
def test_a_pod_that_may_hold_gpus_is_on_its_node(
    fake: FakeApi, tmp_path: Path, pod: dict[str, Any], text: str
) -> None:
    """Else its node would be cut as free."""
    fake.lists["api/v1/pods"] = [pod]
    settings = settings_of(kubeconfig(tmp_path / "kubeconfig", fake.url))
    assert pods_on(KubernetesWriter(settings), "a") == text


def test_a_rehearsal_tells_what_it_could_not_read(fake: FakeApi, newer: KubernetesApplier) -> None:
    """Quotas that may not be listed are no quotas without a limit."""
    fake.known -= {"resourcequotas", "limitranges"}
    path = "apis/apps/v1/namespaces/ml/deployments/serve"
    fake.put(path, replicated("Deployment", "ml", replicas=1, pod=pod_spec(2)))
    wish = proposal("ml/deployment/serve", gpus(2), gpus(4), action=Action.SCALE_OUT)
    warnings = " ".join(rehearsed(newer, planned(newer, wish)).warnings)
    assert "Whether a quota admits more is unknown" in warnings
    assert "Whether a limit range keeps new pods out is unknown" in warnings
