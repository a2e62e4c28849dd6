"""A plan under other settings beside the plan in force, as one object."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A plan over its horizon, in the settings' currency, GPU-hours, kWh of the site and kgCO2e.

    `service_cost` is the price of expected shortfall: nobody pays it. Energy is that of jobs
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


def difference_rows(before: Totals, after: Totals, currency: str) -> list[dict[str, object]]:
    """Return a row per figure: the plan in force, the copy, and the difference."""
    figures = (
        ("cost", currency, "money"),
        ("price of expected shortfall", currency, "service_cost"),
        ("GPU-hours", "GPU-h", "gpu_hours"),
        ("site energy", "kWh", "energy_kwh"),
        ("emissions", "kgCO2e", "emissions_kgco2e"),
        ("changes", "", "changes"),
    )
    rows: list[dict[str, object]] = []
    for title, unit, name in figures:
        now, then = getattr(before, name), getattr(after, name)
        both = now is not None and then is not None
        rows.append(
            {
                "figure": title,
                "unit": unit,
                "plan in force": now,
                "what if": then,
                "difference": then - now if both else None,
            }
        )
    return rows
