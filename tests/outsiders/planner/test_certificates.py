"""Certified bounds against proven optima of small problems, drawn over every feature.

The oracles are mixed integer programs for HiGHS, written from both definitions in
docs/internals/planner.md; they share no code with the planner. `python -m benchmarks.certificates`
draws thousands.
"""

from outsiders.campaign import run_campaign
from reliability import Measured

from benchmarks import _certified_fleet, _certified_nodes, _certified_slots


def test_no_bound_lies_above_the_optimum(measured: Measured) -> None:
    """Bound <= optimum <= plan, on problems of every combination of features."""
    run_campaign(
        "certificates",
        _certified_slots.draw,
        lambda features: _certified_slots.judged(features).broken or None,
        default=4,
        measured=measured,
    )


def test_no_plan_on_nodes_is_better_than_possible_or_other_than_it_says(
    measured: Measured,
) -> None:
    """The same of what a cycle publishes, and its cost is that of its steps, stays and nodes."""
    run_campaign(
        "plans on nodes",
        _certified_fleet.draw,
        lambda features: _certified_nodes.judged(features).broken or None,
        default=2,
        measured=measured,
    )
