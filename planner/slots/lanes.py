"""Jobs packed side by side, 16 to a block, as the vectorised dynamic program reads them.

Jobs with work to finish are apart; inside, jobs with the same allowed configurations are
neighbours, so that a block carries only the configurations that one of its jobs may take (rigid
jobs have 3 or 4 of 16). Costs lie as [slot, configuration, lane], float32, one block after another.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.slots.slot_problem import Floats, Indices, Singles, SlotProblem
from planner.slots.survey_kernel import CostSurvey

LANES = 16


class Lanes(NamedTuple):
    """B blocks; arrays [B, S] and [B, S, 16] are filled up to `rows` of the block.

    cost is flat: block b starts at offset[b] and is [H, rows[b], 16]. job [B, 16] is the job of a
    lane, -1 for padding. Lanes of a block with works[b] have work to finish.
    """

    cost: Singles
    offset: Indices
    rows: Indices
    configuration: Indices
    gpu_type: Indices
    layout: Indices
    boards: Singles
    leave: Singles
    enter: Singles
    power: Singles
    rate: Singles
    layout_cost: Singles
    layout_change: Singles
    job: Indices
    start: Indices
    tenant: Indices
    works: npt.NDArray[np.bool_]
    work: Floats
    deadline: Indices
    unfinished_price: Floats


def _order(allowed: npt.NDArray[np.bool_], works: npt.NDArray[np.bool_]) -> list[Indices]:
    """Return the jobs of every block."""
    blocks: list[Indices] = []
    for group in (False, True):
        members = np.flatnonzero(works == group)
        keys = (*allowed[members].T, allowed[members].sum(axis=1))
        ordered = members[np.lexsort(keys)]
        blocks += [ordered[at : at + LANES] for at in range(0, len(ordered), LANES)]
    return blocks


def pack(problem: SlotProblem, cost: Singles, costs: CostSurvey) -> Lanes:
    """Return the blocks of all jobs; `cost` is base_cost [J, H, S] with pins, surveyed."""
    jobs, grid = problem.jobs, problem.grid
    allowed = costs.allowed.copy()
    allowed[np.arange(problem.size), jobs.present] = True
    blocks = _order(allowed, jobs.work > 0)
    used = [np.flatnonzero(allowed[members].any(axis=0)) for members in blocks]
    rows = np.array([len(entry) for entry in used], dtype=np.int64)
    offset = np.concatenate([[0], np.cumsum(rows * problem.slots * LANES)])
    count, width = len(blocks), int(rows.max(initial=1))
    flat = np.empty(int(offset[-1]), dtype=np.float32)
    job = np.full((count, LANES), -1, dtype=np.int64)
    filled = np.zeros((count, LANES), dtype=np.int64)
    configuration = np.zeros((count, width), dtype=np.int64)
    start = np.zeros((count, LANES), dtype=np.int64)
    for block, (members, columns) in enumerate(zip(blocks, used, strict=True)):
        job[block, : len(members)] = members
        filled[block] = np.resize(members, LANES)
        configuration[block, : len(columns)] = columns
        start[block] = np.searchsorted(columns, jobs.present[filled[block]])
        values = cost[filled[block]][:, :, columns].transpose(1, 2, 0)
        flat[offset[block] : offset[block + 1]] = values.ravel()
    lanes = filled[:, None, :]
    chosen_columns = configuration[:, :, None]
    return Lanes(
        cost=flat,
        offset=offset[:-1].astype(np.int64),
        rows=rows,
        configuration=configuration,
        gpu_type=grid.gpu_type[configuration].astype(np.int64),
        layout=grid.layout[configuration].astype(np.int64),
        boards=grid.boards[configuration].astype(np.float32),
        leave=jobs.leave_cost[lanes, chosen_columns].astype(np.float32),
        enter=jobs.enter_cost[lanes, chosen_columns].astype(np.float32),
        power=jobs.power_kw[lanes, chosen_columns].astype(np.float32),
        rate=jobs.rate[lanes, chosen_columns].astype(np.float32),
        layout_cost=jobs.layout_cost[filled].astype(np.float32),
        layout_change=grid.layout_change.astype(np.float32),
        job=job,
        start=start,
        tenant=jobs.tenant[filled].astype(np.int64),
        works=np.array([bool(jobs.work[members[0]] > 0) for members in blocks], dtype=np.bool_),
        work=jobs.work[filled].astype(np.float64),
        deadline=jobs.deadline[filled].astype(np.int64),
        unfinished_price=jobs.unfinished_price[filled].astype(np.float64),
    )
