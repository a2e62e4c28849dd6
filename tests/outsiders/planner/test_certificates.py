"""Certified bounds against proven optima of small problems, drawn over every feature.

The oracles are mixed integer programs for HiGHS, written from both definitions in
docs/internals/planner.md; they share no code with the planner. `python -m benchmarks.certificates`
draws thousands.
"""

import random

import pytest
from outsiders.campaign import run_campaign
from reliability import Measured

from benchmarks import _certified_fleet, _certified_nodes, _certified_slots


def test_no_bound_lies_above_the_optimum(measured: Measured) -> None:
    """Bound <= optimum <= plan, on problems of every combination of features."""
    run_campaign(
        "certificates",
        _certified_slots.draw,
        lambda features: _certified_slots.judged(features).broken or None,
        default=12,
        measured=measured,
    )


@pytest.mark.parametrize("foreign", [False, True])
def test_no_plan_on_nodes_is_better_than_possible_or_other_than_it_says(
    measured: Measured, *, foreign: bool
) -> None:
    """The same of what a cycle publishes, and its cost is that of its steps, stays and nodes.

    With `foreign` a node has work that nobody explains, or is one where jobs that wait may start.
    """

    def draw(source: random.Random) -> _certified_fleet.FleetFeatures:
        features = _certified_fleet.draw(source)
        return _certified_fleet.with_foreign_work(features) if foreign else features

    run_campaign(
        "plans on nodes" + " in doubt" * foreign,
        draw,
        lambda features: _certified_nodes.judged(features).broken or None,
        default=4,
        measured=measured,
    )
