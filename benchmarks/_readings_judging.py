"""What the product makes of drawn jobs, judged by their truth."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import isnan
from pathlib import Path

import numpy as np

from benchmarks._drawn_boards import (
    HOURS,
    START,
    DrawnJob,
    is_hidden,
    is_visible,
    truth_of,
    twin_of,
    uuid_of,
    write_answer,
)
from collectors.readings.exposition_text import read_prometheus_json
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.actions import Action
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings, Settings
from data.store import open_store

ADVICE = frozenset({Action.SPEED_UP, Action.LESS_MEMORY})
"""What is for the job's owner to do, and changes nothing."""
_UNTOLD_COUNT = ("set back", "slow", "7200 s behind")
"""Clocks so wrong that a board looks like one that is gone: how many there are is not judged."""
_IDLE, ENERGY_ERROR, _NEAR = "it has been idle for", 0.1, 1e-6
_IDLE_HOURS = PlanningSettings().reclaim_idle_hours - 0.5
"""Nothing tells a clock that is off by less than half an hour, nor the slots that this moves."""


@dataclass(slots=True)
class Judgement:
    """Counts over drawn boards; `failures` are (job, reason).

    Of `idle` boards `advised` are shared, and all on them told to stop together; `kept` have no
    proposal for a stated reason, `missed` without one.
    """

    boards: int = 0
    idle: int = 0
    advised: int = 0
    missed: int = 0
    kept: int = 0
    visible: int = 0
    untold: int = 0
    false_alarms: int = 0
    hidden: int = 0
    failures: list[tuple[DrawnJob, str]] = field(default_factory=list)

    def add(self, other: "Judgement") -> None:
        """Take in what was counted elsewhere."""
        for name in (
            "boards",
            "idle",
            "advised",
            "missed",
            "kept",
            "visible",
            "untold",
            "false_alarms",
            "hidden",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures += other.failures


def judge(jobs: Sequence[DrawnJob], folder: Path) -> Judgement:
    """Return what import, cycle and recommendations make of the jobs, in a store of their own."""
    path = folder / "answer.json"
    write_answer(jobs, path)
    found = Judgement(boards=sum(job.boards for job in jobs))
    with open_store(f"duckdb:///{folder / 'readings.db'}") as store:
        collected = read_prometheus_json(path, load_gpu_catalogue())
        store.keep(collected)
        end = store.reader.latest_sample_at()
        if end is None:
            raise ValueError("nothing was drawn")
        outcome = run_cycle(build_world(Settings(), store=store), now=end)
        told = store.reader.contradicted_counters(end=end)
    boards_by_job = {job.job_id: job.idle.held for job in outcome.plan.jobs if job.idle}
    rows: dict[str, list[Recommendation]] = {}
    for recommendation in outcome.recommendations:
        rows.setdefault(recommendation.job_id, []).append(recommendation)
    by_board: dict[str, set[str]] = {}
    for counter in told:
        by_board.setdefault(counter.gpu_uuid, set()).add(counter.counter)
    for job in jobs:
        names = [f"drawn/{pod}" for pod in job.pods]
        changes = [row for name in names for row in rows.get(name, ()) if row.action not in ADVICE]
        kept = all(outcome.kept.get(name) for name in names)
        _judge_job(job, changes, kept, by_board, found)
        for row in changes if job.holders > 1 else ():
            others = {*names} - {row.job_id}
            shows_work = job.works and not is_hidden(job)
            if shows_work or not row.is_advice or not all(name in row.change for name in others):
                found.failures.append((job, f"shared, and to be changed: {row.action}"))
        held = sum(boards_by_job.get(name, 0.0) for name in names)
        if job.holders > 1 and not job.fault and abs(held - job.boards) > _NEAR:
            found.failures.append((job, f"{held:.3f} boards are held of {job.boards}"))
    return found


def judge_exporters(jobs: Sequence[DrawnJob], folder: Path) -> list[tuple[DrawnJob, str]]:
    """Return what is wrong of jobs with a fault of their exporter, each beside its twin without.

    A job at work that its twin's readings leave alone is changed or called idle; there are more or
    fewer boards, or more energy, than in truth.
    """
    path = folder / "answer.json"
    write_answer([told for job in jobs for told in (job, twin_of(job))], path)
    end = datetime.fromtimestamp(START + HOURS * 3600, UTC)
    lately = timedelta(minutes=31)
    with open_store(f"duckdb:///{folder / 'readings.db'}") as store:
        store.keep(read_prometheus_json(path, load_gpu_catalogue()))
        outcome = run_cycle(build_world(Settings(), store=store), now=end)
        held = {job.job_id: job.gpu_count for job in store.reader.jobs()}
        boards = Counter(gpu.node for gpu in store.reader.gpus(start=end - lately, end=end))
        energy = store.reader.energy(start=end - timedelta(hours=HOURS), end=end, by="job")
    kwh = energy.set_index("key")["energy_kwh"].to_dict()
    changes: dict[str, set[Action]] = {}
    for entry in outcome.recommendations:
        changes.setdefault(entry.job_id, set()).add(entry.action)
    failures = []
    for job in jobs:
        twin = twin_of(job)
        more = changes.get(job.job_id, set()) - changes.get(twin.job_id, set()) - ADVICE
        idle = [_IDLE in outcome.kept.get(of.job_id, "") for of in (job, twin)]
        count = job.boards + job.faulty_boards * (job.fault == "index swapped")
        if job.works and (more or (idle == [True, False] and _rested_hours(job) < _IDLE_HOURS)):
            failures.append((job, f"at work: {', '.join(more) or 'called idle'}"))
        if job.variant in _UNTOLD_COUNT or job.step_seconds > 300:
            continue
        if (held.get(job.job_id), boards[f"node-{job.number}"]) != (job.boards, count):
            failures.append(
                (job, f"holds {held.get(job.job_id)}, of {boards[f'node-{job.number}']}")
            )
        # What is not known is not billed: NaN, and less after a moment from which it is not known.
        share = kwh.get(job.job_id, np.nan) / kwh.get(twin.job_id, np.nan)
        known = job.faulty_boards == job.boards and not job.changes_at
        least = 0.0 if job.fault == "unit changes" and not known else 1 - ENERGY_ERROR
        if not (least <= share <= 1 + ENERGY_ERROR or isnan(share)):
            failures.append((job, f"{share:.2f} of its energy"))
    return failures


def _rested_hours(job: DrawnJob) -> float:
    """Return for how long a job has truly rested at the end, in h."""
    truth = truth_of(job, 0)
    worked = truth.times[truth.means["engine"] > 0]
    return float(START + HOURS * 3600 - worked.max(initial=START)) / 3600


def _judge_job(
    job: DrawnJob,
    changes: list[Recommendation],
    kept: bool,
    told: dict[str, set[str]],
    found: Judgement,
) -> None:
    visible = {board for board in range(job.faulty_boards) if is_visible(job, board)}
    actions = {row.action for row in changes}
    if is_hidden(job):
        found.hidden += job.faulty_boards
    elif job.works and (visible or Action.RECLAIM in actions) and changes:
        found.failures.append((job, f"at work, and to be changed: {', '.join(sorted(actions))}"))
    if not job.works and not job.fault:
        found.idle += job.boards
        if changes:
            # A board is free once all on it have stopped: advice for some of them is none.
            is_whole = job.holders == len(changes)
            found.advised += job.boards * (job.holders > 1 and is_whole)
            found.missed += job.boards * (not is_whole)
        elif kept:
            found.kept += job.boards
        else:
            found.missed += job.boards
    for board in range(job.boards):
        named = told.get(uuid_of(job, board), set())
        if board in visible:
            found.visible += 1
            if not named & job.counters:
                found.untold += 1
        elif named and not (board < job.faulty_boards and job.counters):
            found.false_alarms += 1
