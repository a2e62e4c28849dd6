"""Layouts of NVIDIA's MIG manager for a node: those of its ConfigMap, and its own labels.

The manager obeys a label of its node, which names one layout of the ConfigMap, and writes another
label with the state of its work.
"""

from collectors.kubernetes.api import Document
from collectors.kubernetes.objects import model_of
from collectors.shared.json_parts import count_of, part, text_in
from collectors.shared.mig_layouts import layouts_in
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.fleet import MigManager
from data.facts.gpu_resources import (
    COUNT_LABEL,
    MIG_CAPABLE_LABEL,
    MIG_LAYOUT_LABEL,
    MIG_STATE_LABEL,
    MIG_STRATEGY_LABEL,
)

_FILE = "config.yaml"


def mig_manager_of(
    node: Document, catalogue: GpuCatalogue, config: Document | None, source: str
) -> MigManager | None:
    """Return the MIG manager of a node as far as known, None where the node cannot be cut.

    `config` is the ConfigMap `source`, None where it is not read.
    """
    labels = part(node, "metadata", "labels")
    if text_in(labels, MIG_CAPABLE_LABEL) != "true":
        return None
    model = catalogue.find(model_of(node, catalogue))
    boards = count_of(text_in(labels, COUNT_LABEL))
    layouts = () if model is None else layouts_in(file_of(config), model, boards)
    return MigManager(
        layout=text_in(labels, MIG_LAYOUT_LABEL),
        state=text_in(labels, MIG_STATE_LABEL),
        strategy=text_in(labels, MIG_STRATEGY_LABEL),
        source=source if layouts else "",
        layouts=layouts,
    )


def file_of(config: Document | None) -> str:
    """Return the text of a ConfigMap's layouts, '' when there is none."""
    text = part(config, "data", _FILE)
    return text if isinstance(text, str) else ""
