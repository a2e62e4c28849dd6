"""Power limits and rejections keep elastic training from boards that nobody else holds."""

from dataclasses import replace
from datetime import timedelta

import pytest
from fleet_cases import node_of
from growth_cases import JOB_ID, advised, elastic, fleet, half_done
from planning_cases import AS_OF, FREE_NODES, H100, SLOT_LENGTHS, day_in_slots

from data.records.actions import Action
from data.settings.fleet import PowerDomain, PowerSettings
from planner.proposals.suppressions import Rejection


def test_boards_that_a_power_limit_may_keep_free_are_not_grown_into() -> None:
    """A rack's limit is nobody's to use up for an earlier end."""
    rack = PowerDomain(name="rack-1", nodes="n*", limit_kw=50.0)
    rules = replace(FREE_NODES, power=PowerSettings(domains=(rack,)))
    advice = advised(fleet(elastic(), rules=rules))
    assert not advice.recommendations
    assert (
        "whole pods that fit the free boards, CPUs and memory of its nodes" in advice.kept[JOB_ID]
    )


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
@pytest.mark.parametrize(
    ("free_cpus", "free_gib", "boards"),
    [(0.0, 900, 4), (7.9, 900, 4), (16.0, 900, 6), (900.0, 100, 5), (900.0, 900, 8), (None, 0, 8)],
)
def test_a_job_grows_only_by_pods_whose_cpus_and_memory_are_free(
    free_cpus: float | None, free_gib: int, boards: int, slot_minutes: int
) -> None:
    """Four pods of a GPU, 8 CPUs and 64 GiB beside four free boards; unknown is not checked."""
    job = elastic(extra=(("cpus", "32"), ("memory_mib", str(4 * 64 * 1024))))
    free = None if free_cpus is None else free_gib * 1024.0
    node = node_of("n1", H100, free_cpus=free_cpus, free_memory_mib=free)
    planning = day_in_slots(slot_minutes, grow_elastic_training="assumed")
    advice = advised(fleet(job, nodes=(node,), planning=planning))
    grown = [row.proposed.gpu_count for row in advice.recommendations]
    assert grown == ([boards] if boards > 4 else [])


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
