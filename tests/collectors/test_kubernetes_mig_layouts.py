"""Which layouts the GPU operator's MIG manager offers for a node, and what it says of its work."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from beds.kubernetes_lists import NODES, WINDOW, node, told
from beds.kubernetes_replay import kubeconfig
from beds.slurm_replay import answering

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.kubernetes.nodes import file_of, layouts_in
from data.base.errors import SettingsError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.fleet import MigManager, Node
from data.settings.sources import KubernetesSettings
from data.store.engine.record_json import from_json, to_json

SOURCE = "gpu-operator/default-mig-parted-config"
CONFIG = "/api/v1/namespaces/gpu-operator/configmaps/default-mig-parted-config"
RECORDED = Path(__file__).parents[1] / "recorded" / "mig_manager" / "configmap.yaml"
FILE = file_of(yaml.safe_load(RECORDED.read_text(encoding="utf-8")))
CATALOGUE = load_gpu_catalogue()
LABELS = {
    "nvidia.com/gpu.count": "8",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig.config": "all-disabled",
    "nvidia.com/mig.config.state": "success",
}
SEVEN = (("1g.10gb", 7),)


def labelled(**labels: str) -> dict[str, Any]:
    """A node of eight H100 with the labels of the operator."""
    found = node("n1")
    found["metadata"]["labels"] |= LABELS | {
        f"nvidia.com/mig.{name}": value for name, value in labels.items()
    }
    return found


def collected(folder: Path, config: tuple[int, Any], found: dict[str, Any]) -> Collected:
    """What the collector tells where the ConfigMap is answered so."""

    def answer(asked: str) -> tuple[int, bytes]:
        path = asked.partition("?")[0]
        if path == CONFIG:
            return config[0], json.dumps(config[1]).encode()
        if path not in (NODES, "/api/v1/pods"):
            return 404, b"404 page not found"
        items = [found] if path == NODES else []
        return 200, json.dumps({"items": items, "metadata": {}}).encode()

    with answering(answer) as url:
        path = kubeconfig(folder / "kubeconfig", url)
        settings = KubernetesSettings(enabled=True, kubeconfig=str(path), mig_layouts=SOURCE)
        return KubernetesCollector(KubernetesClient(settings), CATALOGUE).collect(WINDOW)


def manager_in(found: Collected) -> MigManager:
    """The manager of the only node."""
    (one,) = found.nodes
    assert one.mig_manager is not None
    assert from_json(Node, to_json(one)) == one
    return one.mig_manager


@pytest.mark.parametrize(
    ("model", "boards", "names"),
    [
        ("H100-SXM5-80GB", 8, "all-1g.10gb all-3g.40gb all-balanced all-disabled site-two-cut"),
        ("A100-SXM4-80GB", 4, "all-1g.10gb all-3g.40gb all-balanced all-disabled"),
        ("H100-PCIE-80GB", 4, "all-1g.10gb all-3g.40gb all-disabled"),
        ("A100-SXM4-40GB", 4, "all-1g.5gb all-disabled"),
        ("A30-24GB", 2, "all-balanced all-disabled"),
        ("L40S-48GB", 8, "all-disabled"),
        ("H100-SXM5-80GB", 0, ""),
    ],
)
def test_layouts_are_those_that_say_of_every_board_of_this_model_how_it_is_cut(
    model: str, boards: int, names: str
) -> None:
    """Filters by device id hold; unknown slices, unsaid boards and boards said twice do not."""
    found = layouts_in(FILE, CATALOGUE.get(model), boards)
    assert [layout.name for layout in found] == names.split()


def test_a_layout_says_how_many_boards_it_cuts_and_what_it_offers() -> None:
    """Boards that stay whole are counted apart."""
    found = {layout.name: layout for layout in layouts_in(FILE, CATALOGUE.get("H100-SXM5-80GB"), 8)}
    two = found["site-two-cut"]
    assert (two.boards, two.whole, two.cut) == (((6, ()), (2, SEVEN)), 6, 2)
    assert two.slices == {"1g.10gb": 14}
    assert found["all-balanced"].slices == {"1g.10gb": 16, "2g.20gb": 8, "3g.40gb": 8}
    assert (found["all-disabled"].whole, found["all-disabled"].slices) == (8, {})


@pytest.mark.parametrize(
    "text",
    ["", "]", "version: v1", "mig-configs: {a: {devices: all}}", "mig-configs: {a: [1]}",
     "mig-configs: {a: [{devices: all, mig-enabled: 'true', mig-devices: {1g.10gb: 7}}]}",
     "mig-configs: {a: [{devices: [x], mig-enabled: false}]}", "[" * 5000,
     "mig-configs: {a: [{devices: [[0]], mig-enabled: false}]}", "mig-configs: !!bool x",
     "mig-configs: !!int ''", "mig-configs: !!timestamp x",
     "mig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 8}}]}",
     "mig-configs: {a; b: [{devices: all, mig-enabled: false}]}"],
)  # fmt: skip
@pytest.mark.usefixtures("no_garbage")
def test_what_is_no_file_of_layouts_offers_none(text: str) -> None:
    """Nothing is guessed from it."""
    assert layouts_in(text, CATALOGUE.get("H100-SXM5-80GB"), 1) == ()


def test_a_node_tells_its_layout_its_state_and_what_is_offered(tmp_path: Path) -> None:
    """As its labels and the ConfigMap say, whatever the manager is at."""
    config = yaml.safe_load(RECORDED.read_text(encoding="utf-8"))
    manager = manager_in(collected(tmp_path, (200, config), labelled(**{"config.state": "failed"})))
    assert (manager.layout, manager.state, manager.strategy) == ("all-disabled", "failed", "mixed")
    assert manager.source == SOURCE
    assert manager.layouts == layouts_in(FILE, CATALOGUE.get("H100-SXM5-80GB"), 8)


@pytest.mark.parametrize(
    ("status", "said"), [(403, "no MIG layout is known"), (404, f"no ConfigMap {SOURCE}")]
)
def test_layouts_that_may_not_be_read_stay_unknown(tmp_path: Path, status: int, said: str) -> None:
    """The rest is collected, and a warning tells what is missing."""
    found = collected(tmp_path, (status, {"kind": "Status", "message": "no"}), labelled())
    assert manager_in(found).layouts == ()
    assert manager_in(found).layout == "all-disabled"
    (warning,) = (entry for entry in found.report.warnings if "MIG" in entry or SOURCE in entry)
    assert said in warning


def test_without_a_named_config_map_none_is_asked_for(tmp_path: Path) -> None:
    """What the labels say is known, no layout is."""
    found = told({NODES: [labelled()]}, tmp_path)
    assert manager_in(found).layouts == ()
    assert found.report.warnings == ()
    assert told({NODES: [labelled(capable="false")]}, tmp_path).nodes[0].mig_manager is None


@pytest.mark.parametrize("name", ["default", "a/b/c", "/x", "../x", "a/"])
def test_a_config_map_is_named_with_its_namespace(name: str) -> None:
    """What is no NAMESPACE/NAME is refused."""
    with pytest.raises(SettingsError, match="NAMESPACE/NAME"):
        KubernetesSettings(mig_layouts=name)
