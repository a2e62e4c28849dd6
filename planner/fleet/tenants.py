"""Tenants: the owner of each job, the boards of each, lending and borrowing.

A quota is what the settings say, or the fair share by weight of the boards that stated quotas
leave. A tenant may borrow above its quota, at a price, what others leave of theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from data.facts.jobs import Job
from data.records.plans import TenantPlan
from data.settings.fleet import BORROW_PRICE, GUARANTEE_PRICE, TenantSettings, TenantShare
from planner.slots.coupling_rows import CouplingRows, coupling_rows
from planner.slots.dp_kernel import price_blocks
from planner.slots.lanes import LANES, pack
from planner.slots.slot_problem import NOTHING, SlotProblem, TenantQuotas, pinned_cost
from planner.slots.survey_kernel import survey

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def free_use(problem: SlotProblem, rows: CouplingRows) -> Floats:
    """Return the use [H, R] of all rows when every job takes its cheapest path.

    It says what tenants ask for: a guarantee should be no more than their column of it.
    """
    cost = pinned_cost(problem.jobs)
    costs = survey(cost, problem.grid.gpu_type, problem.grid.boards, problem.fleet.capacity)
    lanes = pack(problem, cost, costs)
    blocks = len(lanes.rows)
    slots, types = problem.slots, rows.types
    used = np.zeros((slots, len(rows.names)))
    nothing = np.zeros((slots, types), dtype=np.float32)
    tenants = len(rows.names) - types - rows.domains
    price_blocks(
        lanes,
        np.arange(blocks),
        nothing,
        nothing,
        np.zeros((slots, tenants + 1), dtype=np.float32),
        rows.members,
        8,
        0.3 * lanes.unfinished_price,
        np.zeros((blocks, LANES)),
        used,
    )
    return used


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenants:
    """Shares with their quotas filled in, the tenant of every job [J] (-1: none).

    `limiting`: they were stated, so plans respect them; otherwise equal shares are only shown.
    """

    shares: tuple[TenantShare, ...]
    of_job: Indices
    limiting: bool


def make_tenants(jobs: Sequence[Job], boards: float, settings: TenantSettings) -> Tenants:
    """Return the tenants of the jobs on a fleet of so many boards."""
    names = [job.tenant(settings.by) for job in jobs]
    stated = settings.shares
    shares = stated or tuple(TenantShare(name=name) for name in sorted({*names} - {""}))
    rest = max(0.0, boards - sum(share.quota for share in shares))
    weights = sum(share.weight for share in shares if share.quota == 0)
    filled = tuple(
        share
        if share.quota > 0
        else replace(
            share, quota=max(share.guaranteed, rest * share.weight / weights if weights else 0.0)
        )
        for share in shares
    )
    first = {
        name: next((n for n, entry in enumerate(filled) if _is(name, entry, stated)), NOTHING)
        for name in set(names)
    }
    return Tenants(
        shares=filled,
        of_job=np.array([first[name] for name in names], dtype=np.int64),
        limiting=bool(stated),
    )


def _is(name: str, share: TenantShare, stated: Sequence[TenantShare]) -> bool:
    """Return whether a name is this tenant's; only stated names are patterns."""
    return bool(name) and (fnmatchcase(name, share.name) if stated else name == share.name)


def with_quotas(
    problem: SlotProblem, tenants: Tenants, settings: TenantSettings, slot_hours: float
) -> SlotProblem:
    """Return the problem with the quotas of tenants that limit plans.

    A guarantee is a floor on use, so it is no more than the tenant's jobs would take by themselves.
    """
    if not tenants.limiting:
        return problem
    shape = (len(tenants.shares), problem.slots)

    def per_slot(values: Sequence[float]) -> Floats:
        return np.repeat(np.array(values, dtype=np.float64)[:, None], shape[1], axis=1)

    over = settings.over_quota_penalty * slot_hours if settings.over_quota_penalty else np.inf
    quotas = TenantQuotas(
        names=tuple(share.name for share in tenants.shares),
        guaranteed=np.zeros(shape),
        guarantee_price=np.full(shape[0], GUARANTEE_PRICE * slot_hours),
        quota=per_slot([share.quota for share in tenants.shares]),
        borrow_price=np.full(shape[0], BORROW_PRICE * slot_hours),
        borrowable=per_slot([share.borrowable for share in tenants.shares]),
        over_penalty=np.full(shape[0], over),
    )
    limited = replace(problem, jobs=replace(problem.jobs, tenant=tenants.of_job), quotas=quotas)
    promised = per_slot([share.guaranteed for share in tenants.shares])
    if not promised.any():
        return limited
    free = free_use(limited, coupling_rows(limited))[:, -shape[0] :].T
    return replace(limited, quotas=replace(quotas, guaranteed=np.minimum(promised, free)))


def lending(tenants: Tenants, boards: Floats, present: Floats) -> tuple[TenantPlan, ...]:
    """Return the boards that every tenant has, borrows and lends: [J, H] of the plan, [J] now."""
    count = len(tenants.shares)
    used = np.zeros((count, boards.shape[1]))
    now = np.zeros(count)
    shared = tenants.of_job != NOTHING
    np.add.at(used, tenants.of_job[shared], boards[shared])
    np.add.at(now, tenants.of_job[shared], present[shared])
    quota = np.array([entry.quota for entry in tenants.shares])[:, None]
    borrowed = np.clip(used - quota, 0.0, None)
    unused = np.clip(quota - used, 0.0, None)
    share = np.divide(
        borrowed.sum(axis=0),
        unused.sum(axis=0),
        where=unused.sum(axis=0) > 0,
        out=np.zeros(boards.shape[1]),
    )
    lent = unused * np.minimum(share, 1.0)
    return tuple(
        TenantPlan(
            tenant=entry.name,
            quota=entry.quota,
            guaranteed=entry.guaranteed,
            now=float(now[row]),
            used=_rounded(used[row]),
            borrowed=_rounded(borrowed[row]),
            lent=_rounded(lent[row]),
        )
        for row, entry in enumerate(tenants.shares)
    )


def _rounded(values: Floats) -> tuple[float, ...]:
    return tuple(round(float(value), 4) for value in values)
