"""Counters of boards that the other readings of the board contradict."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from data.base.counts import count_text

_TERMS = {
    "sm_active": "SM_ACTIVE",
    "gr_engine_active": "GR_ENGINE_ACTIVE",
    "tensor_active": "TENSOR_ACTIVE",
    "dram_active": "DRAM_ACTIVE",
    "gpu_util": "GPU_UTIL",
    "power_watts": "POWER_USAGE",
}
"""Exporters' names of the counters."""
FIX = (
    "Restart the exporter of the node (dcgm-exporter and nv-hostengine, or what reads NVML); where "
    "that does not help, reset the board or restart its node."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContradictedCounter:
    """A counter of a device that was contradicted in `slots` slots of five minutes of a window.

    `reading` is its mean then, 0..1, of power over its limit; `others` what the other counters
    showed last. `node` and `gpu_index` are '' where not known.
    """

    node: str
    gpu_index: str
    gpu_uuid: str
    mig_instance: str
    counter: str
    slots: int
    first_at: datetime
    last_at: datetime
    reading: float
    others: str

    @property
    def term(self) -> str:
        """The counter as exporters call it."""
        return _TERMS.get(self.counter, self.counter)

    @property
    def evidence(self) -> str:
        """The readings of the others, in the exporters' terms, power as a share of its limit."""
        text = self.others
        for name, term in _TERMS.items():
            text = text.replace(name, term)
        return text


def contradictions_text(counters: Iterable[ContradictedCounter]) -> str:
    """Return one line by node and counter, with an example; '' where there is none."""
    by_place: dict[tuple[str, str], list[ContradictedCounter]] = {}
    for entry in counters:
        by_place.setdefault((entry.node, entry.term), []).append(entry)
    parts = []
    for (node, term), entries in sorted(by_place.items()):
        example = max(entries, key=lambda entry: (entry.slots, entry.gpu_uuid))
        boards = count_text(len({entry.gpu_uuid for entry in entries}), "board")
        evidence = f" beside {example.evidence}" if example.evidence else ""
        parts.append(
            f"{term} of {boards} on {node or 'an unknown node'} showed "
            f"{100 * example.reading:.0f} %{evidence}"
        )
    return "; ".join(parts)
