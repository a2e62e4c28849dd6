"""Shares of boards: which jobs are on the same boards, and what each of them has of these. Pure.

Readings say who was on a board at its newest reading; a scheduler says it of jobs whose boards it
gives out in shares (`SHARED_BOARDS`, `BOARD_SHARE`). A board of n jobs is 1/n of each, so that the
shares of a board add up to it whoever else is on it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.cluster_names import named_in
from data.facts.fleet import BoardShare, Gpu
from data.facts.jobs import Job, JobState

HOLD_TIMEOUT = timedelta(hours=1)
"""A board last seen with a job this long before the newest sample is still the job's.

So is one that worked without a label still busy.
"""
SHARED_BOARDS = "shared_boards"
"""Fact of a job: the boards that it has shares of, as NODE:INDEX or NODE:UUID, with commas."""
BOARD_SHARE = "board_share"
"""Fact of a job: the boards that its shares amount to where it is not known on which they are."""
SHARING = "sharing"
"""Fact of a job that holds shares of boards: by what it shares them, in words."""
MIXED, WHOLE = " + ", "whole"
"""Between the parts of the profile of a job that holds devices of several kinds; whole boards."""
_NAMES = 6


def mixed_profile(kinds: Mapping[str, int]) -> str:
    """Return the MIG profile of a job with devices of several kinds, '' for whole boards."""
    return MIXED.join(f"{count} × {profile or WHOLE}" for profile, count in sorted(kinds.items()))


def parts_of_profile(profile: str, count: int) -> dict[str, int]:
    """Return the devices by kind of a job of so many devices, '' for whole boards."""
    if MIXED not in profile:
        return {profile: count}
    parts = (part.partition(" × ") for part in profile.split(MIXED))
    return {"" if kind == WHOLE else kind: int(number) for number, _sign, kind in parts}


def holding(gpus: Iterable[Gpu]) -> list[Gpu]:
    """Return the boards and instances that jobs hold now, by the newest reading of all."""
    return [gpu for gpu in _read_now(gpus) if gpu.job_id]


def _read_now(gpus: Iterable[Gpu]) -> list[Gpu]:
    gpus = list(gpus)
    newest = max((gpu.last_seen_at for gpu in gpus), default=None)
    return [gpu for gpu in gpus if newest and gpu.last_seen_at > newest - HOLD_TIMEOUT]


def board_shares(
    gpus: Iterable[Gpu], jobs: Iterable[Job], catalogue: GpuCatalogue
) -> dict[str, BoardShare]:
    """Return by id the jobs that share boards, or hold whole boards beside MIG instances.

    A job that holds its devices alone, all of one kind whose size is known, is not among them. Of
    instances whose size is not known each is an equal part of its board; where no reading tells
    their boards, all of one.
    """
    gpus = _read_now(gpus)
    instances = Counter(gpu.gpu_uuid for gpu in gpus if gpu.mig_profile)
    parts: dict[str, float] = defaultdict(float)
    others: dict[str, set[str]] = defaultdict(set)
    kinds: dict[str, set[str]] = defaultdict(set)
    for gpu in gpus:
        for job_id in gpu.holders:
            size = _size(gpu.gpu_model, gpu.mig_profile, catalogue) or 1 / instances[gpu.gpu_uuid]
            parts[job_id] += size / len(gpu.holders)
            others[job_id].update({*gpu.holders} - {job_id})
            kinds[job_id].add(gpu.mig_profile)
    jobs = list(jobs)
    boards_by_job = {job.job_id: _board_count(job, catalogue) for job in jobs}
    shares = {
        job.job_id: BoardShare(boards=boards_by_job[job.job_id], why=_MIXED_REFUSAL)
        if MIXED in job.mig_profile
        else BoardShare(boards=(boards_by_job | parts)[job.job_id], why=_UNSIZED_WHY)
        for job in jobs
        if MIXED in job.mig_profile or _size(job.gpu_model, job.mig_profile, catalogue) is None
    } | dict(_shares(jobs, boards_by_job | parts, gpus))
    for job_id, boards in parts.items():
        if others[job_id]:
            names = tuple(sorted(others[job_id]))
            shares[job_id] = BoardShare(boards=boards, others=names, why=_shared_with(names))
        elif len(kinds[job_id]) > 1:
            shares[job_id] = BoardShare(boards=boards, why=_MIXED_REFUSAL)
    return shares


_MIXED_REFUSAL = (
    "it holds GPUs of several kinds (whole, MIG), and no change of such a job is planned"
)
_UNSIZED_WHY = "the catalogue lacks its MIG profile: what part of a board it has is not known"


def _board_count(job: Job, catalogue: GpuCatalogue) -> float:
    """Return the size of a job's devices in boards, without other jobs on them."""
    kinds = parts_of_profile(job.mig_profile, job.gpu_count)
    sizes = {kind: _size(job.gpu_model, kind, catalogue) or 1.0 for kind in kinds}
    return sum(count * sizes[kind] for kind, count in kinds.items())


def _size(gpu_model: str, mig_profile: str, catalogue: GpuCatalogue) -> float | None:
    """Return a device's share of its board, None of an instance that the catalogue lacks."""
    model = catalogue.find(gpu_model)
    profile = model.mig_profile(mig_profile) if model and mig_profile else None
    if model and profile:
        return model.board_share(profile)
    return None if mig_profile else 1.0


def _shares(
    jobs: Iterable[Job], sizes: Mapping[str, float], gpus: Iterable[Gpu]
) -> Iterator[tuple[str, BoardShare]]:
    """Yield the shares that schedulers tell of jobs that run."""
    jobs = list(jobs)
    told_at: dict[str, datetime] = {}
    for job in jobs:
        told_at[job.source] = max(job.last_seen_at, told_at.get(job.source, job.last_seen_at))
    live = [
        job
        for job in jobs
        if job.extra.get(SHARING)
        and _runs(job)
        and job.last_seen_at > told_at[job.source] - HOLD_TIMEOUT
    ]
    on_board = jobs_by_board(live)
    on_node: dict[str, set[str]] = defaultdict(set)
    for job in live:
        for name in job.scheduling.nodes:
            on_node[name].add(job.job_id)
    in_use = _parts_in_use(live, gpus)
    devices = Counter(job_id for gpu in gpus for job_id in gpu.holders)
    placed = {job.job_id for job in live if devices[job.job_id] >= job.gpu_count}
    for job in live:
        facts, places = job.extra, boards_named(job)
        others = {other for place in places for other in on_board[place]}
        boards = sum(1 / len(on_board[place]) for place in places)
        if not places:
            others = {other for group in on_node.values() if job.job_id in group for other in group}
            amount = sum(part * in_use.get(node, 1.0) for node, part in _amounts(job))
            if others and others <= placed:  # readings name all of them, and each one's boards
                others, amount = set(), 0.0
            boards = amount or sizes[job.job_id]
        names = tuple(sorted(others - {job.job_id}))
        yield (
            job.job_id,
            BoardShare(
                boards=boards,
                others=names,
                why=f"it holds a share of its GPUs ({facts[SHARING]})"
                + (f", beside {_names(names)}" if names else "")
                + ": a change would reach everyone on them",
            ),
        )


def _amounts(job: Job) -> list[tuple[str, float]]:
    """Return (node, boards) of a job's shares that may be on any board of these nodes."""
    nodes = job.scheduling.nodes or ("",)
    amount = 0.0 if boards_named(job) else _number(job.extra.get(BOARD_SHARE, ""))
    return [(named_in(node, job.cluster), amount / len(nodes)) for node in nodes]


def _parts_in_use(jobs: Iterable[Job], gpus: Iterable[Gpu]) -> dict[str, float]:
    """Return by node how much of the boards that its shares amount to is in use.

    Shares are spread over all boards of a node when they are given out; readings that name the
    holders of some show which of them are free by now.
    """
    shared: Counter[str] = Counter()
    for job in jobs:
        for node, amount in _amounts(job):
            shared[node] += amount  # type: ignore[assignment]
    at_work, free = Counter[str](), Counter[str]()
    for gpu in gpus:
        works = gpu.unexplained_at and gpu.unexplained_at > gpu.last_seen_at - HOLD_TIMEOUT
        (at_work if gpu.job_id or works else free)[gpu.node] += 1
    with_names = {gpu.node for gpu in gpus if gpu.job_id}
    return {
        node: min(1.0, max(at_work[node], boards - free[node]) / boards)
        for node, boards in shared.items()
        if boards and node in with_names
    }


def boards_named(job: Job) -> tuple[tuple[str, str], ...]:
    """Return (node, board) of the boards of which a scheduler says that a job holds shares."""
    text = job.extra.get(SHARED_BOARDS, "")
    places = (place.rpartition(":") for place in text.split(",") if place)
    return tuple((named_in(node, job.cluster), board) for node, _colon, board in places)


def jobs_by_board(jobs: Iterable[Job]) -> dict[tuple[str, str], set[str]]:
    """Return the jobs by the boards of which schedulers say that they hold shares."""
    jobs_of: dict[tuple[str, str], set[str]] = defaultdict(set)
    for job in jobs:
        for place in boards_named(job):
            jobs_of[place].add(job.job_id)
    return jobs_of


def boards_of_jobs(jobs: Collection[Job], shares: Mapping[str, BoardShare]) -> float:
    """Return the boards that jobs hold together; shares count as what they are of a board."""
    return sum(
        shares[job.job_id].boards if job.job_id in shares else float(job.gpu_count) for job in jobs
    )


def _shared_with(others: Collection[str]) -> str:
    return (
        f"it shares its GPUs with {_names(others)}: a change would reach them too, and readings "
        "mirror all holders, not this job (see docs/energy.md)"
    )


def _names(jobs: Collection[str]) -> str:
    more = len(jobs) - _NAMES
    return ", ".join(sorted(jobs)[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def _runs(job: Job) -> bool:
    return job.scheduling.state in (
        JobState.RUNNING,
        JobState.SUSPENDED,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
