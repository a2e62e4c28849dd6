"""A free node is cut by its MIG manager, given back, and never left half-way without a word."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
    account_kubeconfig,
    bind_cordon,
    bind_in,
    gpus,
    planned,
    proposal,
    rehearsed,
    settings_of,
)
from beds.kubernetes_worker import Play
from beds.mig_manager import LABEL, OFFERS, StandInMigManager, install_layouts, set_layouts
from beds.steps import send_step

from dashboard.apply.contract.applier import Remains
from dashboard.apply.kubernetes.change import applier
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.kubernetes.change.change_text import kubernetes_change
from data.base.errors import ApplyError
from data.records.actions import Action
from data.records.changes import Change, StepOutcome
from data.records.recommendations import Recommendation
from data.store import Store, open_store

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
SOURCE = "gpu-operator/default-mig-parted-config"
TWO = [
    {"devices": [0, 1], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}},
    {"devices": [2, 3, 4, 5, 6, 7], "mig-enabled": False},
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of one engine: what differs between engines is not asked here."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as opened:
        yield opened


@pytest.fixture
def cutter(bed: KubernetesBed) -> Iterator[KubernetesApplier]:
    """An applier that may cut nodes, with the rights of deploy/ for it; managers get a minute."""
    bind_cordon(bed)
    install_layouts(bed)
    path = account_kubeconfig(bed, "trimtab-applier")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(applier, "CUT_SECONDS", 60.0)
        yield KubernetesApplier(settings_of(path, cut_nodes=True))
    bed.api_versions["ClusterRoleBinding"] = "rbac.authorization.k8s.io/v1"
    bed.delete("ClusterRoleBinding", "trimtab-applier-cordon")


@pytest.fixture
def managed(bed: KubernetesBed) -> Iterator[Callable[..., StandInMigManager]]:
    """Nodes with a manager, for a test alone: others count what the cluster offers."""
    made: list[StandInMigManager] = []

    def make(name: str, **more: Any) -> StandInMigManager:
        bind_in(bed, name)
        made.append(StandInMigManager(bed=bed, node=f"node-{name}", **more))
        return made[-1]

    yield make
    for manager in made:
        bed.delete("Node", manager.node)


def advice(node: str, layout: str = "all-1g.10gb") -> dict[str, Any]:
    """What the planner says of a node to cut."""
    told, whole = ("56 × 1g.10gb", 0) if layout == "all-1g.10gb" else ("14 × 1g.10gb", 6)
    return {
        "action": Action.MIG_LAYOUT,
        "now": gpus(8),
        "proposed": gpus(whole),
        "change": f"MIG layout {layout}: {told}",
        "details": (("node", node), ("mig_layout", layout), ("mig_layouts_of", SOURCE)),
    }


def advised(node: str, **more: Any) -> Recommendation:
    """The recommendation to cut a node."""
    return proposal("", **(advice(node) | more))


def play_of(
    manager: StandInMigManager,
    cutter: KubernetesApplier,
    store: Store,
    folder: Path,
    layout: str = "all-1g.10gb",
) -> Play:
    """The cut of a node, recommended."""
    return Play(
        bed=manager.bed,
        store=store,
        applier=cutter,
        folder=folder,
        namespace=manager.node.removeprefix("node-"),
        job_id="",
        advice=advice(manager.node, layout),
    )


def state_of(manager: StandInMigManager) -> tuple[str | None, bool, dict[str, int]]:
    """Label, whether it is cordoned, and what the node offers."""
    node = manager.bed.get("Node", manager.node)
    offered = {
        name: int(count)
        for name, count in node["status"]["allocatable"].items()
        if name.startswith("nvidia.com/") and count != "0"
    }
    cordoned = node["spec"].get("unschedulable") is True
    return node["metadata"]["labels"].get(LABEL), cordoned, offered


def holding(manager: StandInMigManager, resource: str) -> dict[str, Any]:
    """A pod that holds one device of the node."""
    limits = {"limits": {resource: "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "holder", "namespace": manager.node.removeprefix("node-")},
        "spec": {
            "nodeName": manager.node,
            "containers": [{"name": "main", "image": "example/w:1", "resources": limits}],
        },
    }


@pytest.mark.parametrize("layout", ["all-1g.10gb", "site-two-cut"])
def test_a_node_is_cut_and_given_back(
    managed: Callable[..., StandInMigManager],
    cutter: KubernetesApplier,
    store: Store,
    tmp_path: Path,
    layout: str,
) -> None:
    """It is cordoned while its manager works, both ways, and takes pods again after."""
    manager = managed(f"cut-{layout[:3]}")
    play = play_of(manager, cutter, store, tmp_path, layout)
    play.ask()
    assert play.settle(manager.work) == "applied", play.said
    assert state_of(manager) == (layout, False, OFFERS[layout])
    play.undo()
    assert play.settle(manager.work) == "rolled-back", play.said
    assert state_of(manager) == ("all-disabled", False, OFFERS["all-disabled"])
    assert manager.cordoned == [True, True]


@pytest.mark.parametrize(
    ("fate", "outcome", "cordoned", "said"),
    [
        ("fails", "refused", False, "says failed"),
        ("is silent", "refused", False, "says success, and the node offers nvidia.com/gpu 8"),
        ("stays pending", "applied-differently", True, "stays cordoned (kubectl uncordon"),
    ],
)
def test_a_cut_that_fails_or_never_ends_is_taken_back(
    managed: Callable[..., StandInMigManager],
    cutter: KubernetesApplier,
    store: Store,
    tmp_path: Path,
    fate: str,
    outcome: str,
    cordoned: bool,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old layout is named again; a node that does not come back stays cordoned, as is said."""
    manager = managed(fate.replace(" ", "-"), fate=fate)
    if fate == "stays pending":  # its limit is counted by the server's clock
        path = account_kubeconfig(manager.bed, "trimtab-applier")
        monkeypatch.setattr(applier, "CUT_SECONDS", 2.0)
        cutter = KubernetesApplier(settings_of(path, cut_nodes=True))
    play = play_of(manager, cutter, store, tmp_path)
    play.ask()
    assert play.settle(manager.work) == outcome, play.said
    assert said in play.said
    assert state_of(manager)[:2] == ("all-disabled", cordoned)
    for _look in range(3):  # what was taken back was not put back by others
        play.at += timedelta(hours=1)
        play.worker.work_once()
    assert play.state == outcome, play.said


def test_a_node_whose_slices_are_held_is_not_given_back(
    managed: Callable[..., StandInMigManager],
    cutter: KubernetesApplier,
    store: Store,
    tmp_path: Path,
) -> None:
    """The pods are named; the cut stands as it was."""
    manager = managed("held")
    play = play_of(manager, cutter, store, tmp_path)
    play.ask()
    assert play.settle(manager.work) == "applied", play.said
    manager.bed.apply(holding(manager, "nvidia.com/mig-1g.10gb"))
    play.undo()
    assert play.settle(manager.work) == "rollback-refused", play.said
    assert "held/holder (1)" in play.said
    assert state_of(manager) == ("all-1g.10gb", False, OFFERS["all-1g.10gb"])


def test_a_pod_that_lands_before_the_cordon_stops_the_cut(
    managed: Callable[..., StandInMigManager], cutter: KubernetesApplier
) -> None:
    """No layout is named then, and the node takes pods again."""
    manager = managed("landing")
    change = planned(cutter, advised(manager.node))
    cordon, name, _uncordon = change.steps
    assert rehearsed(cutter, change).refusals == ()
    assert send_step(cutter, cordon, change).outcome is StepOutcome.DONE
    manager.bed.apply(holding(manager, "nvidia.com/gpu"))
    refused = cutter.execute(name, change)
    assert (refused.outcome, "landing/holder (1)" in refused.detail) == (StepOutcome.REFUSED, True)
    assert "kubectl uncordon node-landing" in cutter.between_steps(change, sent=2)
    lefts = [cutter.close(change, sent=2).left for _call in range(2)]
    assert lefts == [Remains.UNKNOWN, Remains.NOTHING]
    assert state_of(manager)[:2] == ("all-disabled", False)


def test_a_node_that_somebody_uncordons_is_not_cut(
    managed: Callable[..., StandInMigManager], cutter: KubernetesApplier
) -> None:
    """Between cordon and layout: pods could land while the manager works."""
    manager = managed("opened")
    change = planned(cutter, advised(manager.node))
    cordon, name, _uncordon = change.steps
    assert send_step(cutter, cordon, change).outcome is StepOutcome.DONE
    manager.bed.patch("Node", manager.node, {"spec": {"unschedulable": None}})
    assert cutter.execute(name, change).outcome is not StepOutcome.DONE
    assert state_of(manager)[:2] == ("all-disabled", False)


def test_a_cut_is_not_taken_back_under_pods(
    managed: Callable[..., StandInMigManager], cutter: KubernetesApplier
) -> None:
    """A node that somebody uncordoned and uses keeps its slices, and the pods are named."""
    manager = managed("used")
    change = planned(cutter, advised(manager.node))
    for step in change.steps[:2]:
        assert send_step(cutter, step, change).outcome is StepOutcome.DONE
    manager.work()
    manager.bed.patch("Node", manager.node, {"spec": {"unschedulable": None}})
    manager.bed.apply(holding(manager, "nvidia.com/mig-1g.10gb"))
    closed = cutter.close(change, sent=2)
    assert (closed.left, "used/holder (1)" in closed.detail) == (Remains.PART, True)
    assert state_of(manager)[0] == "all-1g.10gb"


def test_a_node_uncordoned_on_the_way_back_is_as_before_once_it_offers_that(
    managed: Callable[..., StandInMigManager], cutter: KubernetesApplier
) -> None:
    """The old layout in the label is not enough while the manager still works."""
    manager = managed("hasty")
    change = planned(cutter, advised(manager.node))
    for step in change.steps[:2]:
        assert send_step(cutter, step, change).outcome is StepOutcome.DONE
    for _call in range(2):
        manager.work()
    assert cutter.close(change, sent=2).left is Remains.UNKNOWN
    manager.bed.patch("Node", manager.node, {"spec": {"unschedulable": None}})
    closed = cutter.close(change, sent=2)
    assert (closed.left, "waits for the old layout" in closed.detail) == (Remains.UNKNOWN, True)
    for _call in range(2):
        manager.work()
    assert cutter.close(change, sent=2).left is Remains.NOTHING


def test_a_cut_of_which_the_cordon_alone_was_sent_leaves_nothing_to_wait_for(
    managed: Callable[..., StandInMigManager], cutter: KubernetesApplier
) -> None:
    """Whatever the node offers meanwhile: its layout was never named."""
    manager = managed("broken")
    change = planned(cutter, advised(manager.node))
    assert send_step(cutter, change.steps[0], change).outcome is StepOutcome.DONE
    manager.offer({"nvidia.com/gpu": 7})
    lefts = [cutter.close(change, sent=1).left for _call in range(2)]
    assert lefts == [Remains.UNKNOWN, Remains.NOTHING]


def has_moved(cutter: KubernetesApplier, change: Change) -> bool:
    """Say whether what was approved would be refused now."""
    try:
        return cutter.look_again(change).fingerprint != change.target.fingerprint
    except ApplyError:
        return True


def hold(manager: StandInMigManager) -> None:
    """Have a pod on the node."""
    manager.bed.apply(holding(manager, "nvidia.com/gpu"))


@pytest.mark.parametrize(
    ("name", "move", "said"),
    [
        ("pod", hold, "pod"),
        ("cordoned", lambda m: m.bed.patch("Node", m.node, {"spec": {"unschedulable": True}}),
         "is cordoned"),
        ("working", lambda m: m.say("pending"), "says pending"),
        ("failed", lambda m: m.say("failed"), "says failed"),
        ("single", lambda m: m.label(**{"nvidia.com/mig.strategy": "single"}), "strategy single"),
        ("unlabelled", lambda m: m.label(**{LABEL: None}), "no way back"),
        ("fewer", lambda m: m.offer({"nvidia.com/gpu": 7}), "offers"),
        ("redefined", lambda m: set_layouts(m.bed, **{"all-1g.10gb": TWO}), "3g.40gb now"),
        ("withdrawn", lambda m: set_layouts(m.bed, **{"all-1g.10gb": None}), "not offered now"),
    ],
)  # fmt: skip
def test_a_node_that_is_not_as_planned_is_not_cut(
    managed: Callable[..., StandInMigManager],
    cutter: KubernetesApplier,
    name: str,
    move: Callable[[StandInMigManager], None],
    said: str,
) -> None:
    """It was possible before; what has changed since is named, before and after the approval."""
    manager = managed(f"moved-{name}")
    change = planned(cutter, advised(manager.node))
    assert not has_moved(cutter, change)
    move(manager)
    with pytest.raises(ApplyError, match=said):
        planned(cutter, advised(manager.node))
    assert has_moved(cutter, change)


def test_nodes_are_cut_one_at_a_time(
    managed: Callable[..., StandInMigManager], cutter: KubernetesApplier
) -> None:
    """While one is being cut, no other is."""
    first, second = managed("first"), managed("second")
    assert planned(cutter, advised(second.node)).steps
    first.say("rebooting")
    with pytest.raises(ApplyError, match="node-first is being cut"):
        planned(cutter, advised(second.node))


def test_cutting_needs_its_own_switch_and_right(
    bed: KubernetesBed, cutter: KubernetesApplier, managed: Callable[..., StandInMigManager]
) -> None:
    """Without the switch it is for a person to run; without the right the refusal names it."""
    manager = managed("rights")
    found = advised(manager.node)
    other = KubernetesApplier(settings_of(account_kubeconfig(bed, "trimtab-applier")))
    assert (cutter.covers(found), other.covers(found)) == (True, False)
    text = kubernetes_change(found, None).text
    assert "kubectl label node node-rights --overwrite nvidia.com/mig.config=all-1g.10gb" in text
    elsewhere = advised(manager.node, details=(*found.details[:2], ("mig_layouts_of", "rights/x")))
    with pytest.raises(ApplyError, match=r'resources: \["configmaps"\]'):
        planned(cutter, elsewhere)
