"""Power limits and rejections keep elastic training from boards that nobody else holds."""

from dataclasses import replace
from datetime import timedelta

from growth_cases import JOB_ID, advised, elastic, fleet, half_done
from planning_cases import AS_OF, FREE_NODES

from data.fleet_settings import PowerDomain, PowerSettings
from data.records.decisions import Action
from planner.recommendations.rejections import Rejection


def test_boards_that_a_power_limit_may_keep_free_are_not_grown_into() -> None:
    """A rack's limit is nobody's to use up for an earlier end."""
    rack = PowerDomain(name="rack-1", nodes="n*", limit_kw=50.0)
    rules = replace(FREE_NODES, power=PowerSettings(domains=(rack,)))
    advice = advised(fleet(elastic(), rules=rules))
    assert not advice.recommendations
    assert "whole pods that fit the free boards of its nodes" in advice.kept[JOB_ID]


def test_a_rejected_growth_takes_no_boards_and_says_why() -> None:
    """Beside it another job grows into them."""
    other = "ml/pytorchjob/other"
    problem = fleet(elastic(count=2), elastic(other, 2, most=6))
    told = {"progress": {JOB_ID: half_done(), other: half_done()}}
    both = [
        row for row in advised(problem, facts=told).recommendations if row.action is Action.GROW
    ]
    (first, *_rest) = both
    no = {
        (row.target, Action.GROW): Rejection(
            recommendation=row, at=AS_OF, until=AS_OF + timedelta(days=7)
        )
        for row in both
        if row.target == JOB_ID
    }
    advice = advised(problem, facts=told, rejections=no)
    (grown,) = advice.recommendations
    assert grown.target == other
    assert grown.proposed.gpu_count == 4
    assert "it does not grow: " in advice.kept[JOB_ID]
    assert first.action is Action.GROW
