"""A plan under other settings beside the plan in force, as one object."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A plan over its horizon, in the settings' currency, GPU-hours, kWh of the site and kgCO2e.

    `service_cost` is the price of expected shortfall, which is no money. Energy is that of jobs
    with known power on known models; None when there is none, `unknown_jobs` counts the others.
    `changes` are changes of configuration from now on.
    """

    money: float
    service_cost: float
    gpu_hours: float
    energy_kwh: float | None
    emissions_kgco2e: float | None
    unknown_jobs: int
    changes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfDocument:
    """The knobs, both plans priced alike, and the gap of the copy."""

    knobs: dict[str, float]
    currency: str
    plan_in_force: Totals
    what_if: Totals
    gap: float
    seconds: float
    jobs_left_out: int
    plan_id: str
