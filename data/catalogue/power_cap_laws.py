"""What power caps do, by GPU generation: medians and ranges of published measurements."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from data.records.power_caps import CapLaw

_REACH, _SHARPNESS = 0.96, 8.0
"""Fitted on the Zeus traces (You, Chung, Chowdhury, NSDI 2023), see `forecasting.power.cap`."""
_ANY = "any"


@cache
def load_cap_laws() -> Mapping[str, CapLaw]:
    """Return the laws that ship with Trimtab, by generation; `any` pools all that was measured."""
    text = files("data.catalogue").joinpath("power_cap_laws.csv").read_text(encoding="utf-8")
    rows: dict[str, list[dict[str, str]]] = {}
    for row in csv.DictReader(text.splitlines()):
        rows.setdefault(row["generation"], []).append(row)
    return {
        generation: CapLaw(
            generation=generation,
            reach=_REACH,
            sharpness=_SHARPNESS,
            power_ratios=tuple(float(row["power_ratio"]) for row in found),
            slowdown_low=tuple(float(row["slowdown_low"]) for row in found),
            slowdown=tuple(float(row["slowdown"]) for row in found),
            slowdown_high=tuple(float(row["slowdown_high"]) for row in found),
            measured=generation != _ANY,
            source=found[0]["source"].partition(":")[0],
        )
        for generation, found in rows.items()
    }


def cap_law_of(generation: str) -> CapLaw:
    """Return the law of a generation, else that of all measured ones together."""
    laws = load_cap_laws()
    return laws.get(generation, laws[_ANY])
