"""Cost of a job's path of options over the horizon, as plans count it."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.costs.cost import SlotCosts, change_costs, slot_costs
from planner.costs.terms import Terms
from planner.problem.job_problem import JobProblem

Path = tuple[int, ...]
"""The number of an option for each slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCost:
    """Cost of a path of options: what is paid, and the price of shortfall and of queue waits."""

    money: float
    shortfall: float

    @property
    def total(self) -> float:
        """Total that plans minimise."""
        return self.money + self.shortfall


def path_cost(
    job: JobProblem, path: Path, terms: Terms, earlier: Mapping[int, SlotCosts] | None = None
) -> PathCost:
    """Return the cost of a path of option numbers, changes included.

    `earlier` are the costs of the slots under options that are known already.
    """
    present, earlier = job.options[0], earlier or {}
    used = {number: earlier.get(number) or option_costs(job, number, terms) for number in set(path)}
    paid = {number: costs.money.tolist() for number, costs in used.items()}
    short = {number: costs.shortfall.tolist() for number, costs in used.items()}
    money = sum(paid[number][slot] for slot, number in enumerate(path))
    missed = sum(short[number][slot] for slot, number in enumerate(path))
    for before, number in zip((0, *path), path, strict=False):
        if number != before:
            change = change_costs(job.demand, present, job.options[number], terms)
            money += change.mean_cost
            missed += change.price
    return PathCost(money=money, shortfall=missed)


def option_costs(job: JobProblem, number: int, terms: Terms) -> SlotCosts:
    """Return the cost of each slot under an option."""
    return slot_costs(job.demand, job.options[0], job.options[number], terms)
