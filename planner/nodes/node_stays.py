"""Stays of each job from stretches with a place, and the moves that they force."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from data.records.plans import Stay
from planner.nodes.node_runs import Stretch
from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import move_cost


def stays_of(
    problem: PlanningProblem,
    runs: Sequence[Stretch],
    at: dict[int, tuple[tuple[int, int], ...]],
    slices: dict[int, tuple[int, int]],
) -> tuple[tuple[tuple[Stay, ...], ...], int, float]:
    """Return the stays of all jobs, and how many moves they force at which cost."""
    nodes = problem.facts.nodes
    by_job: dict[int, list[Stay]] = defaultdict(list)
    before: dict[int, tuple[int, int, frozenset[str]]] = {}
    moves, cost = 0, 0.0
    for number, stretch in enumerate(runs):
        where = at.get(number, ())
        names = frozenset(nodes[node].name for node, _count in where)
        if stretch.job not in before and stretch.start == 0:
            home = problem.facts.homes.get(problem.jobs[stretch.job].demand.job.job_id)
            homes = frozenset(name for name, _count in home.boards) if home else frozenset[str]()
            before[stretch.job] = (0, 0, homes)
        last_end, last_option, last_names = before.get(stretch.job, (-1, -1, frozenset[str]()))
        same = last_end == stretch.start and last_option == stretch.option
        moved = bool(where) and same and bool(last_names) and not names <= last_names
        if moved:
            moves += 1
            cost += move_cost(problem, problem.jobs[stretch.job], stretch.option)
        before[stretch.job] = (stretch.end, stretch.option, names)
        board = slices.get(number)
        by_job[stretch.job] += [
            Stay(
                node=nodes[node].name,
                gpus=count,
                start=stretch.start,
                end=stretch.end,
                moved=moved,
                mig_board=board[0] if board else None,
                mig_position=board[1] if board else None,
            )
            for node, count in where
        ]
    return tuple(_joined(by_job[job]) for job in range(len(problem.jobs))), moves, cost


def _joined(stays: list[Stay]) -> tuple[Stay, ...]:
    """Join stays that go on where another ends."""
    joined: list[Stay] = []
    for stay in stays:
        last = next((n for n, other in enumerate(joined) if _goes_on(other, stay)), None)
        if last is None:
            joined.append(stay)
        else:
            joined[last] = replace(joined[last], end=stay.end)
    return tuple(joined)


def _goes_on(one: Stay, other: Stay) -> bool:
    """Return whether a stay is the continuation of another."""
    alike = replace(one, start=other.start, end=other.end, moved=False) == other
    return alike and one.end == other.start
