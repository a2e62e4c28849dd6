"""Emissions from making a GPU, by model: the footprint that its life is spread over."""

from dataclasses import dataclass
from functools import cache

from data.base.units import HOURS_PER_YEAR
from data.catalogue.shipped_rows import shipped_records

LIFE_SPREAD_RATIO = 0.2
"""Half-width of the life around its setting: four to six years around five."""

OVERRIDE_SPREAD_RATIO = 0.3
"""Half-width around a footprint that the settings state: assumed, since they state no range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbodiedCarbon:
    """The footprint of one board of a model in kgCO2e: raw materials, making and transport."""

    gpu_model: str
    kgco2e_low: float
    kgco2e: float
    kgco2e_high: float
    year: int | None
    source: str

    def kgco2e_per_hour(self, life_years: float) -> tuple[float, float, float]:
        """Return low, central and high of what an hour of the board's life carries."""
        hours = life_years * HOURS_PER_YEAR
        return (
            self.kgco2e_low / (hours * (1 + LIFE_SPREAD_RATIO)),
            self.kgco2e / hours,
            self.kgco2e_high / (hours * (1 - LIFE_SPREAD_RATIO)),
        )


@cache
def _shipped() -> tuple[EmbodiedCarbon, ...]:
    year = {"year": lambda row: int(row["year"])}
    return shipped_records(EmbodiedCarbon, "embodied_carbon.csv", **year)


def load_embodied_carbon(stated: dict[str, float] | None = None) -> dict[str, EmbodiedCarbon]:
    """Return the footprints by GPU model, those `stated` (kgCO2e) before those that ship.

    A model that is not in it has no known footprint.
    """
    by_model = {entry.gpu_model: entry for entry in _shipped()}
    for model, kgco2e in (stated or {}).items():
        by_model[model] = EmbodiedCarbon(
            gpu_model=model,
            kgco2e_low=kgco2e * (1 - OVERRIDE_SPREAD_RATIO),
            kgco2e=kgco2e,
            kgco2e_high=kgco2e * (1 + OVERRIDE_SPREAD_RATIO),
            year=None,
            source=f"setting energy.embodied_kgco2e, ±{100 * OVERRIDE_SPREAD_RATIO:g} % assumed",
        )
    return by_model
