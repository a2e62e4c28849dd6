"""The terms of judging options: catalogue, settings, tariff and the laws of power caps."""

from collections.abc import Mapping
from dataclasses import dataclass

from data.catalogue.carbon_table import GridCarbon
from data.catalogue.gpu_catalogue import CapLaw, GpuCatalogue
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from planner.costs.tariffs import Tariff


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The same for every job of a plan. `cap_laws` by GPU model; a model without one has no cap.

    `may_requeue`: a Slurm job that runs may be requeued to change it, `behind_others` even while
    others wait for its nodes.
    """

    catalogue: GpuCatalogue
    planning: PlanningSettings
    energy: EnergySettings
    carbon: GridCarbon
    tariff: Tariff
    cap_laws: Mapping[str, CapLaw]
    may_requeue: bool = True
    behind_others: bool = False

    @property
    def slot_hours(self) -> float:
        """Length of a slot in h."""
        return self.planning.slot_minutes / 60

    @property
    def horizon_hours(self) -> float:
        """Length of the horizon in h."""
        return self.planning.horizon_slots * self.slot_hours

    @property
    def slack_slots(self) -> int:
        """Slots for which restartable jobs may wait."""
        return int(self.planning.shift_slack_hours / self.slot_hours)
