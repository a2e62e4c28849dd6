"""The board is the unit: whatever way jobs share boards, every door counts the boards there are."""

import csv
import io
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.board_readings import END
from outsiders.campaign import run_campaign
from outsiders.sharing.layouts import (
    PROFILES,
    WAYS,
    Board,
    Scenario,
    draw,
    facts_of,
    job_id,
    layout_of,
    shares_of,
)
from reliability import Measured

from dashboard.accounting.cost.statement import make_cost_statement
from dashboard.accounting.savings.idle_bridge import idle_sum
from dashboard.cli import main
from dashboard.cycle.run_cycle import CycleOutcome, run_cycle
from dashboard.cycle.wiring import build_world
from dashboard.reports.week.week import week_to
from dashboard.reports.week.weekly_report import make_weekly_report
from dashboard.submission.job.fleet import fleet_of_store
from dashboard.web.findings.plan import boards_of
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import Settings
from data.store import Store, open_store

NEAR = 1e-6
_HOUR = timedelta(hours=1)


def near(one: float, other: float, *, within: float = NEAR) -> bool:
    """Whether two amounts of boards are the same."""
    return abs(one - other) <= within


def broken_promise(scenario: Scenario) -> str | None:
    """Return what a door says that the layout forbids, None if every door is right."""
    if not {*scenario.ways} <= {*WAYS[scenario.scheduler]}:
        return None  # a plainer scenario must be one that could be drawn
    boards = layout_of(scenario)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"duckdb:///{folder}/t.duckdb"
        with open_store(url) as store:
            store.keep(*facts_of(scenario, boards, folder))
            outcome = run_cycle(build_world(Settings(), store=store), now=END)
            wrong = [
                *_of_plan(scenario, boards, outcome),
                *_of_holders(scenario, boards, outcome),
                *_of_store(scenario, boards, store),
                *_of_new_jobs(boards, store),
            ]
        wrong += _of_commands(scenario, boards, url)
    return "; ".join(wrong[:3]) or None


def _of_plan(scenario: Scenario, boards: list[Board], outcome: CycleOutcome) -> Iterator[str]:
    """Yield what is wrong with the plan, its idle sum, and what is proposed."""
    plan, sure = outcome.plan, all(board.is_sure for board in boards)
    truth = shares_of(scenario, boards)
    on_node = Counter(board.node for board in boards)
    if {node.node: node.gpus for node in plan.nodes} != dict(on_node):
        yield f"nodes of the plan: {[(node.node, node.gpus) for node in plan.nodes]}"
    held = {job.job_id: job.idle.held for job in plan.jobs if job.idle}
    if sure and {*held} != {*truth}:
        yield f"jobs of the plan: {sorted({*held} ^ {*truth})}"
    for job, amount in held.items():
        if sure and not near(amount, truth.get(job, 0.0)):
            yield f"{job} holds {amount:.3f} of {truth.get(job, 0.0):.3f} boards by the plan"
    used = sum(bool(board.jobs) for board in boards)
    cut = sum(len(board.jobs) / 2 - bool(board.jobs) for board in boards if board.is_cut)
    total = idle_sum(plan)
    if not near(total.held + total.unknown, used + cut) and sure:
        yield f"{total.held:.3f} and {total.unknown:.3f} boards are held, of {used + cut:g}"
    if total.held + total.unknown > used + NEAR:
        yield f"{total.held + total.unknown:.3f} boards are held where {used} are in use"
    steps = (sum(boards_of(job.steps[slot], catalogue=load_gpu_catalogue()) for job in plan.jobs)
             for slot in range(len(plan.slot_starts)))  # fmt: skip
    if (most := max(steps, default=0.0)) > len(boards) + NEAR:
        yield f"{most:.3f} boards are planned of {len(boards)}"


def _of_holders(scenario: Scenario, boards: list[Board], outcome: CycleOutcome) -> Iterator[str]:
    """Yield changes for one holder of a board at the others' cost, and who is not named."""
    nodes = {job_id(scenario, name): board.node for board in boards for name in board.jobs}
    others = {
        job_id(scenario, name): {job_id(scenario, other) for other in board.jobs} - {
            job_id(scenario, name)
        }
        for board in boards
        if board.is_sure and not board.is_cut and len(board.jobs) > 1
        for name in board.jobs
    }  # fmt: skip
    for planned in outcome.plan.jobs:
        beside = others.get(planned.job_id, set())
        if not beside:
            continue
        if set(planned.steps) != {planned.now}:
            yield f"a change of {planned.job_id}, which shares its board, is planned"
        if {stay.node for stay in planned.stays} != {nodes[planned.job_id]}:
            yield f"{planned.job_id} is planned on {planned.stays}"
        if not beside <= {*planned.shares_with}:
            yield f"{planned.job_id} shares with {planned.shares_with}, not all of {beside}"
        reason = planned.idle.reason if planned.idle else ""
        if reason and not all(other in reason for other in beside):
            yield f"the reason of {planned.job_id} does not name all on its board: {reason}"
    shared = {*others} | {
        job_id(scenario, name) for board in boards if not board.is_sure for name in board.jobs
    }
    for entry in outcome.recommendations:
        # Idle holders of a board may be told to stop together, each with all the others' names.
        beside = others.get(entry.job_id, set())
        together = beside and entry.is_advice and not scenario.percent
        if entry.job_id in shared and not (together and all(o in entry.change for o in beside)):
            yield f"{entry.action} is proposed for {entry.job_id}, which shares its board"


def _of_store(scenario: Scenario, boards: list[Board], store: Store) -> Iterator[str]:
    """Yield what is wrong with statement, fleet history and report."""
    settings, reader, count = Settings(), store.reader, len(boards)
    truth, start = shares_of(scenario, boards), END - 3 * _HOUR
    sure = all(board.is_sure and not board.is_cut for board in boards)
    whole = make_cost_statement(reader, settings, start=start, end=END, by=("job",))
    if not near(whole.total.board_hours, 3 * count):
        yield f"the statement has {whole.total.board_hours:.3f} of {3 * count} board-hours"
    hours = {row.names[0]: row.board_hours for row in whole.rows}
    for job, amount in truth.items():
        if sure and not near(hours.get(job, 0.0), 3 * amount, within=1e-3):
            yield f"the statement has {hours.get(job, 0.0):.3f} board-hours of {job}"
    for row in reader.fleet_history(start=start, end=END, slot_seconds=3600).to_dict("records"):
        parts = row["allocated_gpus"] + row["free_gpus"] + row["unattributed_gpus"]
        if not near(row["boards"], count) or not near(parts, count):
            yield f"the fleet has {row['boards']} boards, parts {parts:.3f}, of {count}"
    report = make_weekly_report(
        reader,
        week=week_to(END, "UTC"),
        settings=settings,
    )
    held = sum(truth.values())
    if report.boards is None or not near(report.boards, count):
        yield f"the report has {report.boards} boards of {count}"
    elif sure and not near(report.allocated_gpus or 0.0, held, within=1e-3):
        yield f"the report has {report.allocated_gpus} GPUs allocated, of {held:.3f}"


def _of_new_jobs(boards: list[Board], store: Store) -> Iterator[str]:
    """Yield what is wrong with the whole boards that a new job is told to be free."""
    whole_boards = [board for board in boards if not board.is_cut]
    fleet = fleet_of_store(store.reader, load_gpu_catalogue())
    free = Counter(board.node for board in whole_boards if not board.jobs and not board.works)
    for node in fleet.nodes:
        if node.gpus != sum(board.node == node.name for board in whole_boards):
            yield f"a new job sees {node.gpus} boards on {node.name}"
        if node.free_gpus > free[node.name]:
            yield f"a new job sees {node.free_gpus} boards free on {node.name} of {free[node.name]}"


def _of_commands(scenario: Scenario, boards: list[Board], url: str) -> Iterator[str]:
    """Yield what is wrong with what commands list, whose rows are those of API and pages."""
    for row in _listed(url, "gpus"):
        board = next(entry for entry in boards if entry.uuid == row["gpu_uuid"])
        names = {job_id(scenario, name) for name in board.jobs}
        told = {row["job_id"], *row["shares_with"].split(", ")} - {""}
        if board.is_sure and not board.is_cut and told != names:
            yield f"gpus: {sorted(told)} hold {board.uuid}, not {sorted(names)}"
    nodes = {row["node"] for row in csv.DictReader(_said(url, "plan", "--by", "node", kind="csv"))}
    if nodes != {board.node for board in boards}:
        yield f"plan --by node: {sorted(nodes)}"
    there = sum(row["boards"] for row in _listed(url, "capacity"))
    if there != len(boards):
        yield f"capacity: {there} boards of {len(boards)}"
    jobs = {row["job_id"] for row in _listed(url, "jobs")}
    truth = {job_id(scenario, name) for board in boards for name in board.jobs}
    if not truth <= jobs:
        yield f"jobs: {sorted(truth - jobs)} are missing"


def _listed(url: str, command: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_said(url, command, kind="json").getvalue())
    return found


def _said(url: str, *command: str, kind: str) -> io.StringIO:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["--quiet", "--store", url, *command, "--format", kind])
    assert code == 0, err.getvalue()
    out.seek(0)
    return out


def test_every_door_counts_the_boards_that_there_are(measured: Measured) -> None:
    """Holders' shares, free and unattributed boards are the boards there are."""
    run_campaign("sharing", draw, broken_promise, default=2, measured=measured)


@pytest.mark.parametrize("way", ["replicas", "hami", "kai", "claim", "plugin", "slices"])
def test_a_way_of_sharing_on_kubernetes_counts_each_board_once(way: str) -> None:
    """Each way at least once in every run."""
    scenario = Scenario(scheduler="kubernetes", ways=(way, "whole"), boards=2, most=4, seed=5)
    assert broken_promise(scenario) is None


@pytest.mark.parametrize("seed", [4, 37])
def test_a_board_that_is_free_by_now_is_held_by_no_share_of_its_node(seed: int) -> None:
    """Two jobs on one board and none on another: the readings tell, the scheduler does not."""
    scenario = Scenario(scheduler="kubernetes", ways=("plugin",), boards=3, most=3, seed=seed)
    assert broken_promise(scenario) is None


@pytest.mark.parametrize("scheduler", ["none", "kubernetes"])
@pytest.mark.parametrize("profile", PROFILES)
def test_instances_of_any_size_are_parts_of_their_board(scheduler: str, profile: str) -> None:
    """Two on a board are that board, also where the catalogue does not know how large they are."""
    scenario = Scenario(scheduler=scheduler, ways=("slices",), boards=3, seed=5, profile=profile)
    assert broken_promise(scenario) is None


@pytest.mark.parametrize("way", ["shard", "mps"])
def test_shares_of_slurm_count_each_board_once(way: str) -> None:
    """Each way at least once in every run."""
    assert broken_promise(Scenario(scheduler="slurm", ways=(way,), boards=3, seed=2)) is None
