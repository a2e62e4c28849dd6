"""A free node offers its boards in shares, a service takes one, and both go back as they were."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from beds.kubernetes import KubernetesBed
from beds.kubernetes_apply import (
    account_kubeconfig,
    bind_cordon,
    bind_in,
    carry_out,
    deployment,
    gpus,
    planned,
    pod_spec,
    proposal,
    rehearsed,
    rolled_out,
    settings_of,
    spec_of,
)
from beds.kubernetes_worker import Play
from beds.mig_manager import install_layouts

from dashboard.apply.kubernetes.change import applier
from dashboard.apply.kubernetes.change.applier import KubernetesApplier
from dashboard.apply.kubernetes.change.change_text import kubernetes_change
from data.base.errors import ApplyError
from data.records.actions import Action
from data.records.changes import VerificationResult
from data.records.recommendations import Recommendation
from data.store import open_store

pytestmark = pytest.mark.kubernetes
LABEL, WHOLE, SHARED = "nvidia.com/device-plugin.config", "nvidia.com/gpu", "nvidia.com/gpu.shared"
SOURCE = "gpu-operator/device-plugin-configs"
SLICING = {
    "renameByDefault": True,
    "failRequestsGreaterThanOne": True,
    "resources": [{"name": WHOLE, "replicas": 4}],
}


def set_config(bed: KubernetesBed, slicing: Any = SLICING, **sharing: Any) -> None:
    """Write the ConfigMap of the device plugin."""
    text = yaml.safe_dump({"version": "v1", "sharing": {"timeSlicing": slicing} | sharing})
    name, _slash, config = SOURCE.partition("/")
    bed.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": config, "namespace": name},
            "data": {"shared-4": text},
        }
    )


@dataclass(slots=True, kw_only=True)
class StandInDevicePlugin:
    """The device plugin of a node of two boards and its config manager, which obeys the label.

    As the real one it goes back to its default when the label is gone, and offers nothing while it
    starts anew (github.com/NVIDIA/k8s-device-plugin, config-manager). `deaf`: it does nothing.
    """

    bed: KubernetesBed
    node: str
    deaf: bool = False
    obeyed: str | None = None

    def __post_init__(self) -> None:
        """Make the node."""
        self.bed.add_gpu_node(self.node, gpus=2)

    def offer(self, **counts: int) -> None:
        """Let the node offer so many whole boards and shares."""
        told = {WHOLE: str(counts.get("whole", 0)), SHARED: str(counts.get("shares", 0))}
        self.bed.patch_status("Node", self.node, {"allocatable": told, "capacity": told})

    def work(self) -> None:
        """Obey the label."""
        wanted = self.bed.get("Node", self.node)["metadata"]["labels"].get(LABEL)
        if not self.deaf and wanted != self.obeyed:
            self.obeyed = wanted
            self.offer(**({"shares": 8} if wanted == "shared-4" else {"whole": 2}))

    @property
    def seen(self) -> tuple[Any, bool, dict[str, str]]:
        """Labels and taints as they are, whether it takes pods, and what it offers."""
        node = self.bed.get("Node", self.node)
        offered = {
            name: count
            for name, count in node["status"]["allocatable"].items()
            if name in (WHOLE, SHARED) and count != "0"
        }
        return node["metadata"]["labels"], not node["spec"].get("unschedulable"), offered


@pytest.fixture
def sharer(bed: KubernetesBed) -> Iterator[KubernetesApplier]:
    """An applier with the rights of deploy/ for nodes and their layouts."""
    bind_cordon(bed)
    install_layouts(bed)
    set_config(bed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(applier, "CUT_SECONDS", 60.0)
        yield KubernetesApplier(
            settings_of(account_kubeconfig(bed, "trimtab-applier"), cut_nodes=True)
        )
    bed.api_versions["ClusterRoleBinding"] = "rbac.authorization.k8s.io/v1"
    bed.delete("ClusterRoleBinding", "trimtab-applier-cordon")


@pytest.fixture
def plugged(bed: KubernetesBed) -> Iterator[Callable[..., StandInDevicePlugin]]:
    """Nodes with a device plugin, for a test alone."""
    made: list[StandInDevicePlugin] = []

    def make(name: str, **more: Any) -> StandInDevicePlugin:
        bind_in(bed, name)
        made.append(StandInDevicePlugin(bed=bed, node=f"node-{name}", **more))
        return made[-1]

    yield make
    for plugin in made:
        bed.delete("Node", plugin.node)


def offered(node: str, **more: Any) -> dict[str, Any]:
    """What the planner says of a node that is to offer shares."""
    return {
        "action": Action.OFFER_SHARES,
        "now": gpus(2),
        "proposed": gpus(2),
        "change": "4 shares of each board by time slicing",
        "details": (
            ("node", node),
            ("layout", "shared-4"),
            ("layouts_of", SOURCE),
            ("shares_per_board", "4"),
        ),
    } | more


def share_of(namespace: str) -> Recommendation:
    """What the planner says of a service that is to take a share."""
    return proposal(
        f"{namespace}/deployment/serve",
        gpus(1),
        gpus(1),
        action=Action.TAKE_SHARE,
        details=(("share_resource", SHARED), ("gpus_per_pod", "1")),
    )


@contextmanager
def offer_in_store(
    plugin: StandInDevicePlugin, applier: KubernetesApplier, folder: Path, namespace: str
) -> Iterator[Play]:
    """The recommendation that the node offers shares, in a store of its own."""
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        yield Play(
            bed=plugin.bed,
            store=store,
            applier=applier,
            folder=folder,
            namespace=namespace,
            job_id="",
            advice=offered(plugin.node),
        )


def test_a_node_offers_shares_and_whole_boards_again(
    plugged: Callable[..., StandInDevicePlugin], sharer: KubernetesApplier, tmp_path: Path
) -> None:
    """After the approval of exactly this change; labels, offer and spec are as they were after."""
    plugin = plugged("shares")
    before = plugin.seen
    with offer_in_store(plugin, sharer, tmp_path, "shares") as play:
        play.ask()
        assert play.settle(plugin.work) == "applied", play.said
        assert plugin.seen == (before[0] | {LABEL: "shared-4"}, True, {SHARED: "8"})
        play.undo()
        assert play.settle(plugin.work) == "rolled-back", play.said
    assert plugin.seen == before


def test_a_node_whose_plugin_is_deaf_goes_back(
    plugged: Callable[..., StandInDevicePlugin],
    sharer: KubernetesApplier,
    tmp_path: Path,
) -> None:
    """The label is removed and the node takes pods again; the outcome says what it offers."""
    plugin = plugged("deaf", deaf=True)
    before = plugin.seen
    with offer_in_store(plugin, sharer, tmp_path, "deaf") as play:
        play.ask()
        assert play.settle(plugin.work) == "refused", play.said
        assert "the node offers nvidia.com/gpu 2" in play.said
    assert plugin.seen == before


def test_a_service_takes_a_share_and_gives_it_back(
    plugged: Callable[..., StandInDevicePlugin], sharer: KubernetesApplier
) -> None:
    """Its template asks for a share where a node offers one; the way back is the same spec."""
    plugin = plugged("taking")
    bed, one = plugin.bed, share_of("taking")
    bed.apply(deployment("taking", replicas=1, pod=pod_spec(1, nodeSelector={})))
    rolled_out(bed, "taking")
    before = spec_of(bed, "taking")
    refusals = rehearsed(sharer, planned(sharer, one)).refusals
    assert any("no node offers nvidia.com/gpu.shared" in text for text in refusals), refusals
    plugin.offer(whole=2, shares=8)
    change = planned(sharer, one)
    assert "gpu.shared" in kubernetes_change(one, None).text
    assert carry_out(sharer, change).seen is VerificationResult.AS_INTENDED
    resources = spec_of(bed, "taking")["template"]["spec"]["containers"][1]["resources"]
    assert resources == {"limits": {SHARED: "1"}, "requests": {SHARED: "1"}}
    back = sharer.change_back(change, sharer.look_again(change))
    assert carry_out(sharer, back).seen is VerificationResult.AS_INTENDED
    assert spec_of(bed, "taking") == before


@pytest.mark.parametrize(
    ("name", "move", "said"),
    [
        ("replicas", lambda p: set_config(p.bed, SLICING | {"resources": [
            {"name": WHOLE, "replicas": 2}]}), "'nvidia.com/gpu.shared': 4"),
        ("unnamed", lambda p: set_config(p.bed, SLICING | {"renameByDefault": False}),
         "offers no shares by shared-4"),
        ("some", lambda p: set_config(p.bed, SLICING | {"resources": [
            {"name": WHOLE, "replicas": 4, "devices": [0]}]}), "offers no shares"),
        ("mps", lambda p: set_config(p.bed, mps=SLICING), "offers no shares"),
        ("strange", lambda p: set_config(p.bed, [["x"]]), "offers no shares"),
        ("cordoned", lambda p: p.bed.patch("Node", p.node, {"spec": {"unschedulable": True}}),
         "is cordoned"),
        ("fewer", lambda p: p.offer(whole=1), "offers"),
        ("labelled", lambda p: p.bed.patch("Node", p.node, {"metadata": {"labels": {
            LABEL: "shared-4"}}}), "deaf to it"),
    ],
)  # fmt: skip
def test_a_node_that_is_not_as_planned_offers_no_shares(
    plugged: Callable[..., StandInDevicePlugin],
    sharer: KubernetesApplier,
    name: str,
    move: Callable[[StandInDevicePlugin], None],
    said: str,
) -> None:
    """It was possible before; what has changed is named, before and after the approval."""
    plugin = plugged(f"unlike-{name}")
    one = proposal("", **offered(plugin.node))
    change = planned(sharer, one)
    assert sharer.look_again(change).fingerprint == change.target.fingerprint
    move(plugin)
    with pytest.raises(ApplyError, match=said):
        planned(sharer, one)
    try:
        assert sharer.look_again(change).fingerprint != change.target.fingerprint
    except ApplyError as error:
        assert "has changed" in str(error)  # noqa: PT017


def test_the_change_file_of_a_node_has_the_label_and_the_way_back() -> None:
    """For a person, where the switch is off."""
    text = kubernetes_change(proposal("", **offered("n1")), None).text
    assert f"kubectl label node n1 --overwrite {LABEL}=shared-4" in text
    assert "Once the node offers nvidia.com/gpu.shared, 4 for each board" in text
