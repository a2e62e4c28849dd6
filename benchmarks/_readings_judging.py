"""What the product makes of drawn jobs, judged by their truth."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks._drawn_boards import DrawnJob, is_hidden, is_visible, uuid_of, write_answer
from collectors.readings.exposition_text import read_prometheus_json
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.actions import Action
from data.settings.all_settings import Settings
from data.store import open_store

ADVICE = frozenset({"speed-up-input"})


@dataclass(slots=True)
class Judgement:
    """Counts over drawn boards; `failures` are (job, reason).

    Of `idle` boards `kept` have no proposal for a stated reason, `missed` without one.
    """

    boards: int = 0
    idle: int = 0
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
    actions: dict[str, list[str]] = {}
    for recommendation in outcome.recommendations:
        actions.setdefault(recommendation.job_id, []).append(str(recommendation.action))
    by_board: dict[str, set[str]] = {}
    for counter in told:
        by_board.setdefault(counter.gpu_uuid, set()).add(counter.counter)
    for job in jobs:
        _judge_job(job, actions.get(job.job_id, []), outcome.kept, by_board, found)
    return found


def _judge_job(
    job: DrawnJob,
    actions: list[str],
    kept: dict[str, str],
    told: dict[str, set[str]],
    found: Judgement,
) -> None:
    visible = {board for board in range(job.faulty_boards) if is_visible(job, board)}
    changes = [action for action in actions if action not in ADVICE]
    if is_hidden(job):
        found.hidden += job.faulty_boards
    elif job.works and (visible or Action.RECLAIM in changes) and changes:
        found.failures.append((job, f"at work, and to be changed: {', '.join(changes)}"))
    if not job.works and not job.fault:
        found.idle += job.boards
        if not changes and kept.get(job.job_id):
            found.kept += job.boards
        elif not changes:
            found.missed += job.boards
    for board in range(job.boards):
        named = told.get(uuid_of(job, board), set())
        if board in visible:
            found.visible += 1
            if not named & job.counters:
                found.untold += 1
        elif named and not (board < job.faulty_boards and job.counters):
            found.false_alarms += 1
