"""Plans that fit, from prices: priced insertion, dive, ruin and recreate.

The weight of the prices matters most: inserted without prices, jobs end 12 % above the bound, with
them 0.7 % (measured at 1,000 jobs x 168 slots). A dive places the jobs in chunks and moves the
prices between, for the jobs and the room that are left.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.slots.slot_problem import Floats, Indices, Path
from planner.solver.ejection_kernel import eject
from planner.solver.insertion_kernel import add_path, priced_costs
from planner.solver.kernel_problem import Draft, KernelProblem, empty_draft, uncoupled
from planner.solver.prices import Adam, Market, ResourcePrices
from planner.solver.ruin_recreate_kernel import Random, ruin_and_recreate, settle
from planner.solver.work_kernel import insert_best_path

_DIVE_STEPS, _DIVE_RATE, _DIVE_DECAY = 4, 0.02, 0.8
_INSERT_SEARCHES, _MOVE_SEARCHES = 8, 5
_FOCUS_SHARE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertionPrices:
    """Prices as insertion wants them: rows [H, R], nodes [H, G] per board, lam [J].

    values [J] is what every job would cost at these prices if it were alone.
    """

    rows: Floats
    nodes: Floats
    lam: Floats
    values: Floats


def charges_of(
    market: Market, prices: ResourcePrices, values: Floats | None = None
) -> InsertionPrices:
    """Return the charges of prices; `values` [B, 16] are the jobs' at them (not known: 0)."""
    lanes = market.lanes
    size = int(lanes.job.max(initial=-1)) + 1
    lam, alone = np.zeros(size), np.zeros(size)
    lanes_of_jobs = lanes.job >= 0
    lam[lanes.job[lanes_of_jobs]] = prices.work[lanes_of_jobs]
    if values is not None:
        alone[lanes.job[lanes_of_jobs]] = values[lanes_of_jobs]
    return InsertionPrices(
        rows=np.ascontiguousarray(prices.rows),
        nodes=market.node_price(prices),
        lam=lam,
        values=alone,
    )


def _place(
    kernel: KernelProblem, draft: Draft, jobs: Indices, charges: InsertionPrices, weight: float
) -> bool:
    """Insert the jobs one after the other; False when one finds no room."""
    for job in jobs:
        fits = insert_best_path(
            kernel, job, weight, charges.rows, charges.nodes, draft, _INSERT_SEARCHES,
            -1.0, draft.path[job],
        )  # fmt: skip
        if not fits:
            return False
        add_path(kernel, job, draft.path[job], 1.0, draft.used)
    return True


def priced_sequence(
    kernel: KernelProblem, charges: InsertionPrices, announced: Path, churn_price: Floats, seed: int
) -> Draft | None:
    """Return the plan of jobs inserted in random order at full prices.

    None when one does not fit.
    """
    draft = empty_draft(kernel, charges.lam)
    order = np.random.default_rng(seed).permutation(len(draft.path))
    if not _place(kernel, draft, order, charges, 1.0):
        return None
    settle(kernel, draft, order, announced, churn_price)
    return draft


def dive(
    kernel: KernelProblem,
    market: Market,
    prices: ResourcePrices,
    scale: Floats,
    *,
    chunks: int,
    announced: Path,
    churn_price: Floats,
    seed: int,
) -> Draft | None:
    """Return the plan of jobs placed in chunks with the prices moved between; None if one is stuck.

    A chunk is a random set of blocks. Between two chunks four small steps adapt the prices to the
    blocks that are left and the room that is left.
    """
    rng = np.random.default_rng(seed)
    draft = empty_draft(kernel, charges_of(market, prices).lam)
    parts = np.array_split(rng.permutation(market.all_blocks), chunks)
    for number, part in enumerate(parts):
        jobs = market.lanes.job[part]
        charges = charges_of(market, prices)
        if not _place(kernel, draft, rng.permutation(jobs[jobs >= 0]), charges, 1.0):
            return None
        later = np.concatenate([*parts[number + 1 :], np.empty(0, dtype=np.int64)]).astype(np.int64)
        if len(later):
            prices = _adapted(market, prices, scale, later, draft.used)
    settle(kernel, draft, np.arange(len(draft.path)), announced, churn_price)
    return draft


def _adapted(
    market: Market, prices: ResourcePrices, scale: Floats, later: Indices, placed: Floats
) -> ResourcePrices:
    adam = Adam(market, scale, rate=_DIVE_RATE, decay=_DIVE_DECAY)
    for _step in range(_DIVE_STEPS):
        answer = market.ask(prices, later, searches=3)
        prices = ResourcePrices(rows=prices.rows, boots=prices.boots, work=answer.work)
        prices = adam.step(prices, answer.used + placed)
    return prices


def scarce_spots(
    kernel: KernelProblem, draft: Draft, charges: InsertionPrices
) -> npt.NDArray[np.int64]:
    """Return the (slot, row) [N, 2] that have a price or are full; all slots when none is."""
    full = (draft.used >= kernel.limit - 0.5 * kernel.boards_per_node.min()) & (kernel.limit > 0)
    spots = np.argwhere(full | (charges.rows != 0))
    if len(spots):
        return np.ascontiguousarray(spots, dtype=np.int64)
    slots, types = kernel.node_cost.shape
    everywhere = np.argwhere(np.ones((slots, types), dtype=np.bool_))
    return np.ascontiguousarray(everywhere, dtype=np.int64)


def improve(
    kernel: KernelProblem,
    draft: Draft,
    charges: InsertionPrices,
    *,
    moves: int,
    announced: Path,
    churn_price: Floats,
    movable: Indices,
    state: Random,
) -> float:
    """Try so many moves of ruin and recreate on the draft; return the fall of the cost."""
    if len(movable) < 2 or moves < 1:
        return 0.0
    most = 3 if len(draft.path) >= 300 else 4
    return ruin_and_recreate(
        kernel,
        draft,
        scarce_spots(kernel, draft, charges),
        movable,
        announced,
        charges.rows,
        charges.nodes,
        moves,
        most,
        churn_price,
        _MOVE_SEARCHES,
        state,
    )


def release(
    kernel: KernelProblem,
    draft: Draft,
    charges: InsertionPrices,
    *,
    moves: int,
    announced: Path,
    churn_price: Floats,
    state: Random,
) -> float:
    """Try so many ejections for the jobs that are worst off; return the fall of the cost.

    Worst off: the priced cost of the path is furthest above what the job would pay alone. These
    differences are the gap, up to what is left unused of priced room.
    """
    if len(draft.path) < 2 or moves < 1:
        return 0.0
    paid = priced_costs(kernel, draft.path, draft.job_cost, charges.rows, charges.nodes)
    worst = np.argsort(charges.values - paid, kind="stable")
    focus = worst[: max(4, round(_FOCUS_SHARE * len(worst)))]
    return eject(
        kernel,
        uncoupled(kernel),
        draft,
        focus,
        announced,
        charges.rows,
        charges.nodes,
        moves,
        churn_price,
        _MOVE_SEARCHES,
        state,
    )


def draft_cost(draft: Draft) -> float:
    """Return the true cost of a draft: jobs, nodes, soft rows."""
    return float(draft.job_cost.sum() + draft.node_cost.sum() + draft.row_cost.sum())
