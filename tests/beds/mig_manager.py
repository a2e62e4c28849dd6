"""A stand-in for NVIDIA's MIG manager: it obeys the label of a node of the Kubernetes bed.

The real one (nvidia/mig-parted) and a board that can be cut are not to be had here. As the real one
it acts on a label that has changed, says `pending` first while the device plugin is stopped, and
takes no notice of a label that is gone.
"""

from dataclasses import dataclass, field
from pathlib import Path

import yaml
from beds.kubernetes import KubernetesBed

RECORDED = Path(__file__).parents[1] / "recorded" / "mig_manager" / "configmap.yaml"
ROLE = Path(__file__).parents[2] / "deploy" / "kubernetes-mig-layouts.yaml"
LABEL, GPU = "nvidia.com/mig.config", "nvidia.com/gpu"
OFFERS = {
    "all-disabled": {GPU: 8},
    "all-1g.10gb": {"nvidia.com/mig-1g.10gb": 56},
    "site-two-cut": {GPU: 6, "nvidia.com/mig-1g.10gb": 14},
}


@dataclass(slots=True, kw_only=True)
class StandInMigManager:
    """The manager of a node with eight H100. `fate`: obeys, fails, is silent, or stays pending.

    Only what cuts boards has a fate: whole boards are given back by all that answer. `cordoned`
    notes whether the node was cordoned whenever it set to work.
    """

    bed: KubernetesBed
    node: str
    fate: str = "obeys"
    obeyed: str = "all-disabled"
    at_work: bool = False
    cordoned: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the node as operator, feature discovery and device plugin show it."""
        self.bed.add_gpu_node(self.node, gpus=8)
        self.say("success")
        self.label(**{LABEL: "all-disabled"})
        self.label(**{"nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "mixed"})

    def label(self, **labels: str | None) -> None:
        """Set labels of the node."""
        self.bed.patch("Node", self.node, {"metadata": {"labels": labels}})

    def say(self, state: str) -> None:
        """Set the state."""
        self.label(**{f"{LABEL}.state": state})

    def offer(self, counts: dict[str, int]) -> None:
        """Let the device plugin offer so many, and nothing else."""
        known = {name: "0" for offers in OFFERS.values() for name in offers}
        told = known | {name: str(count) for name, count in counts.items()}
        self.bed.patch_status("Node", self.node, {"allocatable": told, "capacity": told})

    def work(self) -> None:
        """Do the next thing, if there is any."""
        found = self.bed.get("Node", self.node)
        wanted = found["metadata"]["labels"].get(LABEL)
        if self.fate == "is silent" or (wanted in (None, self.obeyed) and not self.at_work):
            return
        if not self.at_work or wanted != self.obeyed:
            self.cordoned.append(found["spec"].get("unschedulable") is True)
            self.obeyed, self.at_work = wanted, True
            self.say("pending")
            self.offer({})
        elif self.fate == "stays pending":
            return
        else:
            self.at_work = False
            fails = self.fate == "fails" and wanted != "all-disabled"
            self.offer({} if fails else OFFERS[wanted])
            self.say("failed" if fails else "success")


def install_layouts(bed: KubernetesBed) -> None:
    """Add the operator's ConfigMap, and the role that reads it."""
    bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}})
    bed.apply(RECORDED.read_text(encoding="utf-8"))
    bed.apply(ROLE.read_text(encoding="utf-8"))


def set_layouts(bed: KubernetesBed, **changed: object) -> None:
    """Write the ConfigMap anew with other layouts of these names, None for none."""
    config = yaml.safe_load(RECORDED.read_text(encoding="utf-8"))
    told = yaml.safe_load(config["data"]["config.yaml"])
    layouts = {
        name: entries for name, entries in (told["mig-configs"] | changed).items() if entries
    }
    config["data"]["config.yaml"] = yaml.safe_dump(told | {"mig-configs": layouts})
    bed.apply(config)
