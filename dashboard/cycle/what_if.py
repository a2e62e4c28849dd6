"""The plan under other settings: a copy of its problem, solved again.

Nothing of it is kept. It leads to no recommendation, so nothing of it can be approved or applied.
Both plans are priced under the changed settings, so that their difference is the plan's and not the
price's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dashboard.accounting.cost.prices import grid_as_paid
from dashboard.common.what_if_document import Totals, WhatIfDocument
from dashboard.cycle.make_problem import PlanBasis, problem_from
from dashboard.cycle.memory_outlook import memory_findings
from data.base.clock import utc_now
from data.base.errors import SettingsError, StoreError
from data.base.units import GRAMS_PER_KILOGRAM
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.plans import Plan
from data.settings.all_settings import Settings
from data.store import StoreReader
from forecasting.power.estimated import power_models
from planner.costs.energy import power_under
from planner.plan import build_plan
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.path_costs import path_cost

MAX_SECONDS = 5.0
"""Time that the solver has for a copy: people wait for it."""

WHAT_IF_SETTINGS: Mapping[str, tuple[str, str]] = {
    "headroom": ("planning", "headroom_ratio"),
    "shortfall-price": ("planning", "shortfall_weight"),
    "churn": ("planning", "churn_ratio"),
    "carbon-price": ("energy", "carbon_price_per_tonne"),
    "electricity-price": ("energy", "electricity_price_per_kwh"),
}
"""What can be turned, with the setting behind it: headroom above the q90 of demand and the price of
missing it (the service level), the price of leaving the announced plan (the number of changes), and
two prices.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The plan in force and the copy, priced alike. `gap_ratio` is the copy's, `seconds` its time.

    `left_out` jobs of the plan in force have no counterpart in the copy's problem.
    """

    settings: Settings
    current: Totals
    changed: Totals
    gap_ratio: float
    seconds: float
    left_out: int


def read_basis(reader: StoreReader, settings: Settings) -> PlanBasis:
    """Read what the latest plan was made from, with its jobs alone and the grid of now.

    Errors: StoreError before the first cycle.
    """
    plan = _existing(reader.latest_plan())
    view = reader.planning_view(
        plan.created_at,
        slot_seconds=plan.slot_seconds,
        history_days=settings.planning.history_days,
    )
    forecasts = reader.forecasts(plan.plan_id)
    job_ids = {forecast.job_id for forecast in forecasts}
    view = replace(view, jobs=tuple(job for job in view.jobs if job.job_id in job_ids))
    catalogue = load_gpu_catalogue()
    return PlanBasis(
        settings=settings,
        view=view,
        forecasts=forecasts,
        catalogue=catalogue,
        carbon=load_carbon_table().get(settings.energy.region),
        models=power_models(view.readings, catalogue),
        memory=memory_findings(reader, view, forecasts),
        serving=reader.serving_outlook(),
        grid=grid_as_paid(settings, max(plan.created_at, utc_now())),
        last=plan,
    )


def changed_settings(settings: Settings, knobs: Mapping[str, float]) -> Settings:
    """Return settings with some knobs turned. Errors: SettingsError for one that is not known."""
    sections: dict[str, dict[str, float | str]] = {}
    for name, value in knobs.items():
        if name not in WHAT_IF_SETTINGS:
            raise SettingsError(
                f"what-if knob {name!r} is not known", f"Turn one of {', '.join(WHAT_IF_SETTINGS)}."
            )
        section, field = WHAT_IF_SETTINGS[name]
        sections.setdefault(section, {})[field] = value
    if "electricity-price" in knobs:
        # A single price: the hours of the day would overrule it.
        sections["energy"]["electricity_price_by_hour"] = ""
    return replace(
        settings,
        **{name: replace(getattr(settings, name), **values) for name, values in sections.items()},
    )


def what_if(basis: PlanBasis, settings: Settings, knobs: Mapping[str, float]) -> WhatIf:
    """Solve a copy of the problem with these knobs, and compare it with the plan in force.

    Raises SettingsError for knobs out of range, ImpossibleProblemError as `build_plan` does.
    """
    changed, last = changed_settings(settings, knobs), in_force(basis)
    # The slots that a next plan would keep are free here: the question is what would be. They are
    # those of the plan in force, whatever the settings have become since.
    planning = replace(
        changed.planning,
        slot_minutes=last.slot_seconds // 60,
        horizon_slots=len(last.slot_starts),
    )
    # A single price overrules the hours ahead as it does the hours of the day.
    grid = basis.grid.without_prices() if "electricity-price" in knobs else basis.grid
    carbon = load_carbon_table().get(changed.energy.region)
    changed_basis = replace(
        basis, settings=replace(changed, planning=planning), carbon=carbon, grid=grid
    )
    problem = problem_from(changed_basis)
    copy = build_plan(
        problem,
        budget_seconds=min(MAX_SECONDS, changed.planning.budget_seconds),
        created_at=last.created_at,
        last=last,
        keeps_first=False,
    )
    current_paths, left_out = _paths(last, problem)
    copy_paths, _none = _paths(copy, problem)
    return WhatIf(
        settings=changed,
        current=_totals(problem, current_paths),
        changed=_totals(problem, copy_paths),
        gap_ratio=copy.gap_ratio,
        seconds=copy.seconds,
        left_out=left_out,
    )


def in_force(basis: PlanBasis) -> Plan:
    """Return the plan in force of a basis. Errors: StoreError before the first cycle."""
    return _existing(basis.last)


def _existing(plan: Plan | None) -> Plan:
    if plan is None:
        raise StoreError("there is no plan yet", "Run `trimtab cycle` first.")
    return plan


Paths = list[tuple[JobProblem, tuple[int, ...]]]


def _paths(plan: Plan, problem: PlanningProblem) -> tuple[Paths, int]:
    """Return for the jobs of both their path of options in the plan, and how many are left out.

    A step that is no option of the job any more counts as its present configuration.
    """
    planned = {entry.job_id: entry for entry in plan.jobs}
    paths: Paths = []
    for job in problem.jobs:
        mine = planned.get(job.demand.job.job_id)
        if mine is not None:
            numbers = {option.configuration: at for at, option in enumerate(job.options)}
            paths.append((job, tuple(numbers.get(step, 0) for step in mine.steps)))
    return paths, len(planned) - len(paths)


def _totals(problem: PlanningProblem, paths: Paths) -> Totals:
    terms = problem.terms
    costs = [path_cost(job, path, terms) for job, path in paths]
    energies = [_energy(job, path, problem) for job, path in paths]
    amounts = [energy for energy in energies if energy is not None]
    gpu_hours = terms.slot_hours * sum(
        job.options[number].boards * there
        for job, path in paths
        for number, there in zip(path, job.demand.remaining.central, strict=True)
    )
    return Totals(
        money=sum(cost.money for cost in costs),
        service_cost=sum(cost.shortfall for cost in costs),
        gpu_hours=gpu_hours,
        energy_kwh=sum(kwh for kwh, _kg in amounts) if amounts else None,
        emissions_kgco2e=sum(kg for _kwh, kg in amounts) if amounts else None,
        unknown_jobs=len(energies) - len(amounts),
        changes=sum(
            sum(before != after for before, after in pairwise((0, *path))) for _job, path in paths
        ),
    )


def _energy(
    job: JobProblem, path: tuple[int, ...], problem: PlanningProblem
) -> tuple[float, float] | None:
    """Return kWh of the site and kgCO2e of a path, boards that it frees counted as idle."""
    terms, watts, present = problem.terms, job.demand.power_q50, job.options[0]
    if watts is None or terms.catalogue.find(present.configuration.gpu_model) is None:
        return None
    drawn = np.zeros(len(path))
    numbers = np.array(path)
    for number in set(path):
        option, curve = job.options[number], job.demand.power_curve
        estimate = power_under(watts, present, option, terms, curve)
        here = numbers == number
        drawn[here] = (estimate.central + estimate.left_idle_watts)[here]
    there = job.demand.remaining.central
    kwh = drawn * there * terms.slot_hours / 1000 * terms.energy.pue
    return float(kwh.sum()), float((kwh * terms.tariff.gco2e).sum()) / GRAMS_PER_KILOGRAM


def what_if_document(result: WhatIf, knobs: Mapping[str, float], plan: Plan) -> WhatIfDocument:
    """Return the answer as one object for programs."""
    return WhatIfDocument(
        knobs=dict(knobs),
        currency=result.settings.energy.currency,
        plan_in_force=result.current,
        what_if=result.changed,
        gap=result.gap_ratio,
        seconds=result.seconds,
        jobs_left_out=result.left_out,
        plan_id=plan.plan_id,
    )
