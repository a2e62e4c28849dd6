"""What a job costs in a slot under an option: GPU rent, electricity, expected shortfall."""

import numpy as np
import numpy.typing as npt

from data.catalogue.gpu_catalogue import GpuCatalogue
from data.settings import EnergySettings, PlanningSettings
from planner.configurations import Option
from planner.energy import power_under
from planner.job_demand import JobDemand

Values = npt.NDArray[np.float64]

SHORTFALL_WEIGHT = 20.0
"""Price of one missing device-hour, in rents of the present device: twenty times its price."""

CHANGE_HOURS = 1 / 6
"""Lost time of a checkpoint and restart, h: above the 15-250 s that Sia measured."""

_QUANTILE_WEIGHTS = (0.25, 0.5, 0.25)


def rent_per_hour(option: Option, catalogue: GpuCatalogue) -> float:
    """Give the rent of an option per hour; 0 for a model without a price in the catalogue."""
    model = catalogue.find(option.configuration.gpu_model)
    return 0.0 if model is None else option.boards * model.price_per_hour


def needed_service(
    demand: JobDemand, present: Option, planning: PlanningSettings
) -> tuple[Values, Values, Values]:
    """Give the service needed per slot at q10, q50, q90, with headroom.

    Never above what the job has now: a saturated job shows no more than that.
    """
    paths = (demand.demand_q10, demand.demand_q50, demand.demand_q90)
    low, middle, high = (
        np.minimum(
            (np.zeros(planning.horizon_slots) if path is None else path)
            * (1 + planning.headroom_ratio),
            present.service,
        )
        for path in paths
    )
    return low, middle, high


def slot_costs(
    demand: JobDemand,
    present: Option,
    option: Option,
    *,
    catalogue: GpuCatalogue,
    planning: PlanningSettings,
    energy: EnergySettings,
) -> Values:
    """Give the cost of each slot in the settings' currency, array [slot].

    Expected shortfall E[(D - r)+] over three quantiles (planner method, cost terms); electricity
    counts the boards that the job frees as idle, because they stay powered.
    """
    hours = planning.slot_minutes / 60
    costs = np.full(planning.horizon_slots, rent_per_hour(option, catalogue) * hours)
    if demand.power_q50 is not None and catalogue.find(present.configuration.gpu_model):
        watts = np.asarray(demand.power_q50)
        if option is not present:
            estimate = power_under(watts, present, option, catalogue)
            watts = estimate.central + estimate.freed_idle_watts
        costs = costs + watts / 1000 * energy.pue * energy.electricity_price_per_kwh * hours
    if option.configuration.gpu_count:
        unit = rent_per_hour(present, catalogue) / max(present.service, 1e-9)
        for weight, need in zip(
            _QUANTILE_WEIGHTS, needed_service(demand, present, planning), strict=True
        ):
            missing = np.clip(need - option.service, 0.0, None)
            costs = costs + SHORTFALL_WEIGHT * weight * missing * unit * hours
    return costs


def change_cost(option: Option, catalogue: GpuCatalogue) -> float:
    """Give the one-time cost of changing to an option; a power cap and reclaiming cost nothing."""
    if option.configuration.power_cap_watts is not None:
        return 0.0
    return rent_per_hour(option, catalogue) * CHANGE_HOURS
