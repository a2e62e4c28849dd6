"""Nodes of Kubernetes whose boards jobs share: what is proposed, and that idle boards add up."""

from dataclasses import replace

import pytest
from fleet_cases import KUBERNETES, PODS, gpu, node_of, pods_job
from planning_cases import L40S, PLANNING, advised, case

from data.facts.fleet import Node
from data.records.actions import Action
from data.records.plans import IdleCause
from data.records.recommendations import Recommendation
from planner.advise import Advice
from planner.problem.planning_problem import PlanningProblem

LABELS = ("nvidia.com/gpu.sharing-strategy=time-slicing", "nvidia.com/gpu.replicas=2")


def fleet(
    count: int = 4,
    *,
    features: tuple[str, ...] = (),
    memory: float = 9_000.0,
    busy: float = 0.2,
    **job: object,
) -> PlanningProblem:
    """Services on node a, an L40S each, which MIG cannot cut, and a node b of two free boards."""
    jobs = [pods_job(f"w{number}", gpu_model=L40S, **job) for number in range(count)]
    nodes: list[Node] = [
        node_of("a", L40S, gpus=count, source=KUBERNETES),
        replace(node_of("b", L40S, gpus=2, source=KUBERNETES), features=features),
    ]
    return case(
        *((job, busy, memory, 120.0) for job in jobs),
        gpus=[
            *(gpu("a", number, L40S, job.job_id) for number, job in enumerate(jobs)),
            *(gpu("b", number, L40S) for number in range(2)),
        ],
        nodes=nodes,
        planning=PLANNING,
    )


def of(advice: Advice, action: Action) -> list[Recommendation]:
    """The recommendations of an action."""
    return [row for row in advice.recommendations if row.action is action]


def test_a_free_node_is_to_offer_shares_for_jobs_that_fit_whichever_meet() -> None:
    """It can be approved; it counts no saving, as the advice to share boards has it."""
    found = advised(fleet())
    (one,) = of(found, Action.OFFER_SHARES)
    assert (one.target, one.is_advice, one.platform) == ("b", False, "kubernetes")
    assert dict(one.details) == {
        "node": "b",
        "layout": "shared-4",
        "layouts_of": "gpu-operator/device-plugin-configs",
        "shares_per_board": "4",
    }
    assert one.savings.cost is None
    (advice,) = of(found, Action.CO_LOCATE)
    assert dict(advice.evidence.factors)["restarts"] == "4 jobs, each once"
    assert not of(found, Action.TAKE_SHARE)


def test_a_node_that_offers_shares_gets_the_jobs() -> None:
    """Each takes its part; the promise of memory goes with it, and no advice counts it again."""
    found = advised(fleet(features=LABELS))
    moves = of(found, Action.TAKE_SHARE)
    assert sorted(row.job_id.rpartition("/")[2] for row in moves) == ["w0", "w1", "w2", "w3"]
    assert not of(found, Action.CO_LOCATE)
    assert not of(found, Action.OFFER_SHARES)
    assert not set(found.kept) & {row.job_id for row in moves}
    for row in moves:
        assert (row.now.boards, row.proposed.boards) == (None, 0.5)
        details = dict(row.details)
        assert details["share_resource"] == "nvidia.com/gpu.shared"
        assert float(details["memory_limit_mib"]) < 49_140
        hours = row.savings.gpu_hours
        assert hours is not None
        assert hours.central == pytest.approx(0.5 * 24)
    assert found.portfolio.together == pytest.approx(sum(row.savings.money for row in moves))


@pytest.mark.parametrize("features", [(), LABELS], ids=["free", "offers shares"])
def test_every_idle_board_has_one_state(features: tuple[str, ...]) -> None:
    """Freed by what can be approved, freed by a change by hand, or needed; two of four go."""
    found = advised(fleet(features=features))
    for idle in found.idle.values():
        assert idle.idle == pytest.approx(idle.freed_idle + idle.after + idle.peaks + idle.stays)
        assert idle.stays >= -1e-9
        assert (idle.cause is IdleCause.NONE) == (idle.stays < 1e-9)
    freed = sum(idle.freed_idle > 0.5 for idle in found.idle.values())
    after = sum(idle.after > 0.5 for idle in found.idle.values())
    assert (freed, after) == ((2, 0) if features else (0, 3))


def test_no_node_is_proposed_where_jobs_do_not_fit_or_cannot_be_moved() -> None:
    """Too large, kept by others, bound to their node, or of a node that rests."""
    for problem in (
        fleet(memory=30_000.0),
        fleet(busy=0.9),
        fleet(extra=(("bound_to", "a"),)),
        fleet(scheduler=replace(PODS, managed_by=("Helm",))),
    ):
        assert not of(advised(problem), Action.OFFER_SHARES)
    resting = advised(fleet(), resting={"b": "rolled back"})
    assert not of(resting, Action.OFFER_SHARES)


def test_shares_that_labels_do_not_tell_are_not_counted_on() -> None:
    """MPS, an unreadable number, and whole boards."""
    node = node_of("b", L40S, gpus=2)
    for labels, shares in (
        (LABELS, 2),
        (LABELS[1:], 0),
        (("nvidia.com/gpu.sharing-strategy=mps", LABELS[1]), 0),
        ((LABELS[0], "nvidia.com/gpu.replicas=many"), 0),
        ((), 0),
    ):
        assert replace(node, features=labels).board_shares == shares
