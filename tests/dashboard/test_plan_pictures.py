"""The plan's pictures and tables: every GPU-slot is drawn once, nothing is lost in rows."""

from collections import defaultdict
from datetime import timedelta

import pytest
from factories import make_plan
from fleet_cases import fleet_case, load_of

from dashboard.charts.palette import safe
from dashboard.charts.plan_gantt import capacity_band, plan_gantt
from dashboard.resources.plan_documents import plan_document
from dashboard.resources.plan_rows import bound_rows, job_rows, node_rows, tenant_rows
from data.records.plans import Plan
from planner.plan import build_plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The plan of a fleet of four nodes over a day."""
    problem = fleet_case(5, nodes=4, slots=24)
    return build_plan(problem, budget_seconds=60, created_at=problem.as_of)


def area(figure: object, name: str) -> float:
    """GPU-hours of the bars of that name."""
    bars = next(entry for entry in figure.data if entry.name == name)  # type: ignore[attr-defined]
    hour = timedelta(hours=1) / timedelta(milliseconds=1)
    return sum(wide * high / hour for wide, high in zip(bars.width, bars.y, strict=True))


def cut_boards(plan: Plan) -> dict[tuple[str, int], set[int]]:
    """The slots in which every board cut by MIG carries a slice."""
    slots: dict[tuple[str, int], set[int]] = defaultdict(set)
    for job in plan.jobs:
        for stay in job.stays:
            if stay.mig_board is not None:
                slots[stay.node, stay.mig_board] |= set(range(stay.start, stay.end))
    return slots


def test_the_gantt_covers_every_gpu_hour_once(plan: Plan) -> None:
    """Jobs, idle and off add up to the boards, idle and off to what jobs do not hold."""
    figure = plan_gantt(plan, plan.nodes, {})
    jobs = area(figure, "job as it is now") + area(figure, "changed by the plan")
    idle, off = area(figure, "idle, node on"), area(figure, "node off")
    total = sum(node.gpus for node in plan.nodes) * 24
    held = sum(load_of(plan).values())
    cut = sum(s.end - s.start for j in plan.jobs for s in j.stays if s.mig_board is not None)
    boards = cut_boards(plan).values()
    between = sum(max(slots) + 1 - min(slots) - len(slots) for slots in boards)
    assert idle + off == pytest.approx(total - held - between)
    assert held - cut <= jobs <= held


def test_hover_says_what_and_why(plan: Plan) -> None:
    """Names are escaped, the configuration of now and the reason stand there."""
    changed = next(job for job in plan.jobs if job.stays and job.steps[0] != job.now)
    figure = plan_gantt(plan, plan.nodes, {changed.job_id: "<b>half of it idles</b>"})
    texts = [text for entry in figure.data for text in (entry.hovertext or ())]
    mine = [text for text in texts if changed.job_id in text]
    assert any("&lt;b&gt;half of it idles" in text and "now " in text for text in mine)


def test_a_block_of_a_job_names_it_and_an_idle_one_nobody(plan: Plan) -> None:
    """A click opens what the block's data hold: the job's id as it is, whatever the hover shows."""
    ids = {job.job_id for job in plan.jobs}
    for layer in plan_gantt(plan, plan.nodes, {}).data:
        for text, named in zip(layer.hovertext, layer.customdata or (), strict=False):
            of_jobs = layer.name in ("job as it is now", "changed by the plan")
            assert (named is not None) is of_jobs
            assert named is None or (named[0] in ids and text.startswith(safe(named[0])))


def test_the_band_has_capacity_and_plan_without_demand_too(plan: Plan) -> None:
    """Before any forecast the plan and the limit are drawn."""
    times = [at.replace(tzinfo=None) for at in plan.slot_starts]
    held = [1.0] * 24
    without = capacity_band(plan, held, None, 32.0)
    within = capacity_band(plan, held, (times, held, held, held), 32.0)
    assert [entry.name for entry in without.data] == ["planned", "capacity"]
    assert "demand, q10–q90" in [entry.name for entry in within.data]


def test_rows_tell_all_of_the_plan(plan: Plan) -> None:
    """Slots of jobs, hours of nodes, boards of tenants and bounds are complete."""
    slots = sum(row["slots"] for row in job_rows(plan))
    assert slots == 24 * len(plan.jobs)
    assert all(row.on_hours + row.off_hours == 24 for row in node_rows(plan))
    assert sum(row.planned_mean for row in tenant_rows(plan)) > 0
    assert all(0 <= row.gap < 1 for row in bound_rows(plan))
    document = plan_document(plan)
    assert document.slots == 24
    assert document.placement.unplaced == {}


def test_a_plan_of_an_earlier_version_has_rows_too() -> None:
    """Without nodes, tenants and bounds the tables are empty, not wrong."""
    plan = make_plan()
    assert [row["slots"] for row in job_rows(plan)] == [2]
    assert (node_rows(plan), tenant_rows(plan), bound_rows(plan)) == ([], [], [])
