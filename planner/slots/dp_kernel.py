"""The exact dynamic program of every job at given prices, 16 jobs in lanes, decode fused.

Checkpoint and restart are separable, so one slot costs O(S + Y^2) and not O(S^2):

    A_t(c) = cost_t(c) + boards_c * board_price + kW_c * kw_price - lam * rate_c + V_{t+1}(c)
    e_y    = min over c of layout y of A_t(c) + enter(c)
    m_y    = min over y' of e_y' + layout_cost * layout_change[y, y']
    V_t(c) = min(A_t(c), leave(c) + m_layout(c))

Moving from c to c costs leave + enter >= 0 more than staying, so the minimum needs no exception.
It runs backward, so that it starts from the present configuration and decodes forward without
back-pointers: the minimum over configurations is searched again only where the path moves.

Work: the bound of a job with work W is the maximum over lam in [0, p] of DP(lam) + lam * W, p the
price of unfinished work. It is concave in lam; a line with missing work and one without bracket the
maximum and their intersection is the next lam (Kelley).
"""

import numpy as np
import numpy.typing as npt

from data.base.compiled import compiled, copy_into, inner
from planner.slots.lanes import LANES, Lanes
from planner.slots.slot_problem import Floats, Indices, Path, Singles

_GROWTH = 1.5
_CLAMP = 0.02


@inner
def _backward(  # noqa: C901 - one pass over the slots: a call with these arrays costs 0.2 us
    lanes: Lanes,
    block: int,
    board_price: Singles,
    kw_price: Singles,
    tenant_price: Singles,
    lam: Singles,
    ahead: Singles,
    moved: Singles,
) -> None:
    """Fill ahead [H, rows, 16] (A) and moved [H, Y, 16] (m).

    The lane count is read from an array: written as a constant the loops are unrolled before they
    are vectorised, and 16 rows x 168 slots take 93 us instead of 57.
    """
    slots, types = board_price.shape
    width = lanes.job.shape[1]
    rows = lanes.rows[block]
    layouts = lanes.layout_change.shape[0]
    begin = lanes.offset[block]
    cost = lanes.cost[begin : begin + slots * rows * width].reshape((slots, rows, width))
    leave, enter, power = lanes.leave[block], lanes.enter[block], lanes.power[block]
    rate, per_layout = lanes.rate[block], lanes.layout_cost[block]
    works, change = lanes.works[block], lanes.layout_change
    kinds, counts, layout_of = lanes.gpu_type[block], lanes.boards[block], lanes.layout[block]
    value = np.zeros((rows, width), dtype=np.float32)
    price = np.empty((types, width), dtype=np.float32)
    entered = np.empty((layouts, width), dtype=np.float32)
    counted = np.empty(width, dtype=np.float32)
    for slot in range(slots - 1, -1, -1):
        for kind in range(types):
            for lane in range(width):
                price[kind, lane] = (
                    board_price[slot, kind] + tenant_price[slot, lanes.tenant[block, lane]]
                )
        for layout in range(layouts):
            for lane in range(width):
                entered[layout, lane] = np.inf
        if works:
            for lane in range(width):
                counted[lane] = lam[lane] if slot < lanes.deadline[block, lane] else np.float32(0)
        for row in range(rows):
            kind = kinds[row]
            if kind >= 0:
                boards, per_kw = counts[row], kw_price[slot, kind]
                for lane in range(width):
                    ahead[slot, row, lane] = (
                        cost[slot, row, lane]
                        + value[row, lane]
                        + boards * price[kind, lane]
                        + per_kw * power[row, lane]
                    )
            else:
                for lane in range(width):
                    ahead[slot, row, lane] = cost[slot, row, lane] + value[row, lane]
            if works:
                for lane in range(width):
                    ahead[slot, row, lane] -= counted[lane] * rate[row, lane]
            layout = layout_of[row]
            for lane in range(width):
                come = ahead[slot, row, lane] + enter[row, lane]
                least = entered[layout, lane]
                entered[layout, lane] = min(least, come)
        for layout in range(layouts):
            for lane in range(width):
                moved[slot, layout, lane] = np.inf
            for other in range(layouts):
                factor = change[layout, other]
                for lane in range(width):
                    come = entered[other, lane] + factor * per_layout[lane]
                    least = moved[slot, layout, lane]
                    moved[slot, layout, lane] = min(least, come)
        for row in range(rows):
            layout = layout_of[row]
            for lane in range(width):
                go = leave[row, lane] + moved[slot, layout, lane]
                stay = ahead[slot, row, lane]
                value[row, lane] = min(stay, go)


@inner
def _target(lanes: Lanes, block: int, lane: int, row: int, ahead: Singles) -> int:
    """Return the row to move to; `ahead` is A [rows, 16] of the slot."""
    layout = lanes.layout[block, row]
    best, target = np.float32(np.inf), row
    for other in range(lanes.rows[block]):
        change = (
            lanes.layout_change[layout, lanes.layout[block, other]] * lanes.layout_cost[block, lane]
        )
        come = ahead[other, lane] + lanes.enter[block, other, lane] + change
        if come < best:
            best, target = come, other
    return target


@inner
def _decode(
    lanes: Lanes, block: int, lane: int, ahead: Singles, moved: Singles, path: Path
) -> tuple[float, float]:
    """Fill the path [H] (rows of the block); return the value and the work done in time."""
    row = lanes.start[block, lane]
    work = 0.0
    value = 0.0
    for slot in range(len(path)):
        go = moved[slot, lanes.layout[block, row], lane] + lanes.leave[block, row, lane]
        if slot == 0:
            value = min(go, ahead[slot, row, lane])
        if go < ahead[slot, row, lane]:
            row = _target(lanes, block, lane, row, ahead[slot])
        path[slot] = row
        if slot < lanes.deadline[block, lane]:
            work += lanes.rate[block, row, lane]
    return value, work


@inner
def _add_use(
    lanes: Lanes,
    block: int,
    lane: int,
    path: Path,
    weight: float,
    members: npt.NDArray[np.bool_],
    used: Floats,
) -> None:
    """Add a path [H] (rows of the block) to the use [H, R]."""
    domains, types = members.shape
    tenant = lanes.tenant[block, lane]
    for slot in range(len(path)):
        row = path[slot]
        kind = lanes.gpu_type[block, row]
        if kind < 0:
            continue
        boards = weight * lanes.boards[block, row]
        used[slot, kind] += boards
        for domain in range(domains):
            if members[domain, kind]:
                used[slot, types + domain] += weight * lanes.power[block, row, lane]
        if tenant >= 0:
            used[slot, types + domains + tenant] += boards


@inner
def _next_lam(
    lam: float, top: float, low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]
) -> float:
    """Return the next lam.

    Low and high are (lam, value, slope) of the bracket, lam < 0: unknown.
    """
    if low[0] < 0:
        return lam / _GROWTH if lam > 1e-3 * top else 0.0
    if high[0] < 0:
        return min(top, max(lam * _GROWTH, 1e-3 * top))
    width: float = high[0] - low[0]
    meet: float = (high[1] - low[1] + low[2] * low[0] - high[2] * high[0]) / (low[2] - high[2])
    lowest: float = low[0] + _CLAMP * width
    highest: float = high[0] - _CLAMP * width
    return min(max(meet, lowest), highest)


@inner
def _promise(low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]) -> float:
    """Return the value where the two lines of the bracket meet: no lam gives more."""
    meet = (high[1] - low[1] + low[2] * low[0] - high[2] * high[0]) / (low[2] - high[2])
    value: float = low[1] + low[2] * (meet - low[0])
    return value


@inner
def _price_workers(  # noqa: C901 - one pass over the slots: a call with these arrays costs 0.2 us
    lanes: Lanes,
    block: int,
    board_price: Singles,
    kw_price: Singles,
    tenant_price: Singles,
    members: npt.NDArray[np.bool_],
    searches: int,
    lam: Floats,
    value: Floats,
    used: Floats,
    ahead: Singles,
    moved: Singles,
) -> None:
    """Search lam for the lanes of one block with work; add the use of the bracketing paths."""
    slots = len(used)
    trial = np.empty(LANES, dtype=np.float32)
    path = np.empty(slots, dtype=np.int16)
    ends = np.empty((2, LANES, slots), dtype=np.int16)
    bracket = np.full((2, LANES, 3), -1.0)
    best = np.full(LANES, -np.inf)
    following = lam[block].copy()
    done = lanes.job[block] < 0
    for _search in range(searches):
        if done.all():
            break
        for lane in range(LANES):
            trial[lane] = following[lane]
        _backward(lanes, block, board_price, kw_price, tenant_price, trial, ahead, moved)
        for lane in range(LANES):
            if done[lane]:
                continue
            top = lanes.unfinished_price[block, lane]
            reached, work = _decode(lanes, block, lane, ahead, moved, path)
            now = float(trial[lane])
            slope = lanes.work[block, lane] - work
            total = reached + now * lanes.work[block, lane]
            if total > best[lane]:
                best[lane] = total
                lam[block, lane] = now
                value[block, lane] = total
            side = 0 if slope > 0 else 1
            bracket[side, lane, 0], bracket[side, lane, 1] = now, total
            bracket[side, lane, 2] = slope
            copy_into(ends[side, lane], path)
            if (side == 0 and now >= top * (1 - 1e-6)) or (side == 1 and now <= 0) or slope == 0:
                done[lane] = True
                continue
            if bracket[0, lane, 0] >= 0 and bracket[1, lane, 0] >= 0:
                gain = _promise(bracket[0, lane], bracket[1, lane]) - best[lane]
                done[lane] = gain < 1e-4 * abs(best[lane])
            following[lane] = _next_lam(now, top, bracket[0, lane], bracket[1, lane])
    for lane in range(LANES):
        if lanes.job[block, lane] < 0:
            continue
        low, high = bracket[0, lane], bracket[1, lane]
        share = 1.0 if high[0] < 0 else 0.0
        if low[0] >= 0 and high[0] >= 0:
            share = -high[2] / (low[2] - high[2])
        if share > 0:
            _add_use(lanes, block, lane, ends[0, lane], share, members, used)
        if share < 1:
            _add_use(lanes, block, lane, ends[1, lane], 1 - share, members, used)


@compiled
def price_blocks(
    lanes: Lanes,
    blocks: Indices,
    board_price: Singles,
    kw_price: Singles,
    tenant_price: Singles,
    members: npt.NDArray[np.bool_],
    searches: int,
    lam: Floats,
    value: Floats,
    used: Floats,
) -> None:
    """Return the optimal values [B, 16] of the blocks and add the use of their paths to [H, R].

    Prices: board_price and kw_price [H, G], tenant_price [H, K + 1] whose last column is 0 (no
    tenant). lam [B, 16] is the price of work to start from and becomes the best one found; at most
    `searches` are tried. For jobs with work the use is the convex combination of the two paths of
    the bracket, a supergradient of the bound.
    """
    slots = len(board_price)
    layouts = lanes.layout_change.shape[0]
    nothing = np.zeros(LANES, dtype=np.float32)
    path = np.empty(slots, dtype=np.int16)
    moved = np.empty((slots, layouts, LANES), dtype=np.float32)
    room = np.empty(slots * lanes.configuration.shape[1] * LANES, dtype=np.float32)
    for block in blocks:
        rows = lanes.rows[block]
        ahead = room[: slots * rows * LANES].reshape((slots, rows, LANES))
        if lanes.works[block]:
            _price_workers(
                lanes, block, board_price, kw_price, tenant_price, members, searches, lam, value,
                used, ahead, moved,
            )  # fmt: skip
            continue
        _backward(lanes, block, board_price, kw_price, tenant_price, nothing, ahead, moved)
        for lane in range(LANES):
            if lanes.job[block, lane] >= 0:
                value[block, lane] = _decode(lanes, block, lane, ahead, moved, path)[0]
                _add_use(lanes, block, lane, path, 1.0, members, used)
