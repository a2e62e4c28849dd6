"""What is offered as fitting: in which order, and with one figure for one thing everywhere."""

import csv
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from beds.page_world import register_world
from drawn import examples
from factories import NOW, make_collected, make_samples
from factories import make_job as stored_job
from hypothesis import given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest
from submission_cases import A100, H100, make_fleet, make_job, node

from dashboard.cli import main
from dashboard.submission.estimates.decision_notes import decision_document, decision_notes
from dashboard.submission.estimates.estimate import OfferedPlan, offered, plan_row
from dashboard.submission.job.feasible_plans import plans_for
from dashboard.submission.job.fleet import FleetRoom, SubmissionFleet
from dashboard.submission.job.placement import Arrival, HostNeed, place
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import Node
from data.facts.jobs import JobState, SchedulerFacts
from data.settings.all_settings import Settings
from data.settings.submission import SubmitSettings
from data.store import Store, open_store
from planner.memory.estimate.training_plans import GpuType, TrainingPlan

PAGE = Path(__file__).parents[3] / "dashboard/web/new_job/new_job.py"
FIGURES = ("p50_gib", "p95_gib", "p99_gib", "usable_gib", "memory_gib", "fit_probability")
LARGEST = 16 if examples(100) == 100 else 8
"""GPUs of a plan: `make test-all` looks at more of them."""


@cache
def plans_of(
    model: str, framework: str, batch: int, types: tuple[GpuType, ...]
) -> tuple[TrainingPlan, ...]:
    """Every plan of a model, those too that do not fit and those that no fleet holds."""
    training = {"global_batch": batch, "sequence_length": 2048, "framework": framework or None}
    stated = {name: value for name, value in training.items() if value is not None}
    return plans_for(make_job(model={"name": model}, training=stated), types, max_gpus=LARGEST)


FLEETS = st.lists(
    st.tuples(st.sampled_from((H100, A100)), st.sampled_from((1, 2, 4, 8)), st.integers(0, 8)),
    max_size=4,
).map(
    lambda nodes: make_fleet(
        *(
            node(f"n{place}", model, gpus=gpus, free=min(free, gpus))
            for place, (model, gpus, free) in enumerate(nodes)
        )
    )
)
MODELS = st.sampled_from(("tinyllama-1.1b", "llama3.2-3b", "llama3-8b"))
FRAMEWORKS = st.sampled_from(("", "torchtitan"))


def room_of(plan: TrainingPlan, fleet: SubmissionFleet) -> FleetRoom:
    """Equal shares on distinct nodes, whole tensor-parallel groups on each: counted out."""

    def holds(count: int, *, free: bool) -> bool:
        if plan.gpus % count or plan.gpus // count % plan.job.parallelism.tensor:
            return False
        room = [
            entry.free_gpus if free else entry.gpus
            for entry in fleet.nodes
            if entry.gpu_type == plan.gpu_type
        ]
        return sum(gpus >= plan.gpus // count for gpus in room) >= count

    counts = range(1, plan.gpus + 1)
    if any(holds(count, free=True) for count in counts):
        return FleetRoom.FREE
    return FleetRoom.BUSY if any(holds(count, free=False) for count in counts) else FleetRoom.NEVER


@settings(deadline=None)
@given(fleet=FLEETS, model=MODELS, framework=FRAMEWORKS, batch=st.sampled_from((16, 64)))
def test_free_comes_before_busy_and_larger_last(
    fleet: SubmissionFleet, model: str, framework: str, batch: int
) -> None:
    """Every listed plan fits by its own figures; what the fleet has no room for says so, last."""
    types = make_fleet(node("h"), node("a", A100)).gpu_types(load_gpu_catalogue())
    plans = plans_of(model, framework, batch, types)
    offers = offered(plans, fleet)
    assert {id(plan.plan) for plan in (*offers.plans, *offers.left_out)} == set(map(id, plans))
    rows = [plan_row(plan) for plan in offers.plans]
    assert all(row["fit_probability"] >= 0.95 for row in rows)
    assert all(row["p95_gib"] <= row["usable_gib"] for row in rows)
    rooms = [room_of(plan.plan, fleet) for plan in offers.plans]
    assert [plan.standing.room for plan in offers.plans] == rooms == sorted(rooms)
    for room, row in zip(rooms, rows, strict=True):
        told = row["fleet"]
        there = [entry for entry in fleet.nodes if entry.gpu_type == row["gpu"]]
        free, total = sum(plan.free_gpus for plan in there), sum(plan.gpus for plan in there)
        assert (told == "free now") is (room is FleetRoom.FREE)
        assert (told == f"has to wait: {free} of {total} are free") is (room is FleetRoom.BUSY)
        beyond = row["gpus"] > total
        assert (told == f"larger than the fleet: it has {total} of them") is beyond
    for entry in offers.left_out:
        assert plan_row(entry)["fit_probability"] < 0.95
    assert (f"{len(offers.left_out)} ways" in offers.remark) is bool(offers.left_out)
    if not offers.plans:
        closest = max(plans, key=lambda plan: plan.fit_probability)
        assert offers.shown == offers.left_out[:1]
        assert offers.shown[0].plan.fit_probability == closest.fit_probability
        assert offers.shown[0].text in offers.warning
    else:
        assert offers.shown is offers.plans
        assert bool(offers.warning) is (rooms[0] is FleetRoom.NEVER)


def test_without_a_fleet_the_word_is_fleet_unknown() -> None:
    """Plans keep the planner's order, and none claims to be free."""
    types = make_fleet(node("h")).gpu_types(load_gpu_catalogue())
    plans = plans_of("llama3-8b", "torchtitan", 64, types)
    offers = offered(plans, None)
    assert [plan.plan for plan in offers.plans] == [plan for plan in plans if plan.fits]
    assert {plan.standing.text for plan in offers.plans} == {"fleet unknown"}


def said(text: str) -> list[dict[str, float]]:
    """Every set of figures that a text names."""
    found = re.finditer(
        r"([\d.]+) GiB expected, ([\d.]+) at 95 %, ([\d.]+) usable: "
        r"fits with a probability of ([\d.]+) %",
        text,
    )
    names = ("p50_gib", "p95_gib", "usable_gib", "fit_probability")
    rows = [dict(zip(names, map(float, entry.groups()), strict=True)) for entry in found]
    return [row | {"fit_probability": round(row["fit_probability"] / 100, 3)} for row in rows]


def agree(shown: dict[str, float], row: dict[str, Any]) -> bool:
    """Whether figures are those of a row."""
    return all(row[name] == value for name, value in shown.items())


@settings(deadline=None, max_examples=examples(30))
@given(fleet=FLEETS.filter(lambda fleet: fleet.gpus > 0), model=MODELS, framework=FRAMEWORKS)
def test_the_notes_of_a_decision_say_what_its_rows_say(
    fleet: SubmissionFleet, model: str, framework: str
) -> None:
    """Text, JSON and table of a placement name one median, bound, capacity and probability."""
    types = fleet.gpu_types(load_gpu_catalogue())
    plans = plans_of(model, framework, 64, types)
    held = [plan for plan in plans if room_of(plan, fleet) is not FleetRoom.NEVER]
    if not held:
        return
    found = place(plans, fleet, Arrival(host=HostNeed(), late=lambda _plan: False))
    assert found.decision is not None
    assert found.plan.fits is any(plan.fits for plan in held)
    if not found.plan.fits:
        assert found.plan.fit_probability == max(plan.fit_probability for plan in held)
    offers = offered(plans, fleet)
    by_plan = {id(plan.plan): plan for plan in (*offers.plans, *offers.left_out)}
    texts = decision_notes(found.decision)[1:-1]
    document = decision_document(found.decision)["considered"]
    for text, entry, considered in zip(texts, document, found.decision.considered, strict=True):
        offer: OfferedPlan = by_plan[id(considered.plan)]
        row = plan_row(offer)
        assert {name: entry[name] for name in FIGURES} == {name: row[name] for name in FIGURES}
        (shown,) = said(text)
        assert agree(shown, row)
        assert said(offer.text) == [shown]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Sixteen H100 on two nodes; a job holds one of the nodes."""
    with open_store(f"duckdb:///{tmp_path}/fleet.duckdb") as opened:
        nodes = tuple(
            Node(name=name, gpu_model=H100, gpu_count=8, seen_at=NOW, source="test")
            for name in ("n1", "n2")
        )
        facts = SchedulerFacts(state=JobState.RUNNING, nodes=("n1",))
        held = stored_job("slurm:1", gpu_count=8, scheduler=facts)
        opened.keep(make_collected(make_samples().head(0), (held,), nodes=nodes))
        yield opened


def page_of(store: Store, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The New job page with llama3-8b, 64 sequences of 4,096 tokens."""
    # Streamlit puts the page in the place of `__main__`.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    held = Settings(submit=SubmitSettings(max_gpus=64))
    register_world(store, held, clock=lambda: NOW)
    app = AppTest.from_file(str(PAGE), default_timeout=300).run()
    app.selectbox(key="job-model").set_value("llama3-8b")
    app.selectbox(key="job-framework").set_value("torchtitan")
    app.button[0].click().run()
    assert not app.exception
    return app


def test_page_table_and_programs_see_the_same_plans(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """JSON, CSV, table and page agree to the digit; free plans lead, larger ones end."""
    app = page_of(store, monkeypatch)
    store.close()
    line = ["--store", f"duckdb:///{tmp_path}/fleet.duckdb", "estimate", "llama3-8b", "--batch",
        "64", "--seq", "4096", "--framework", "torchtitan", "--top", "500"]  # fmt: skip
    answers = {}
    for form in ("json", "csv", "table"):
        assert main([*line, "--format", form]) == 0
        answers[form] = capsys.readouterr()
    document = json.loads(answers["json"].out)
    plans = document["plans"]
    rooms = [plan["fleet"] for plan in plans]
    assert rooms[0] == "free now"
    kinds = [(room == "free now", "are free" in room) for room in rooms]
    assert kinds == sorted(kinds, reverse=True)
    assert {plan["gpus"] > 16 for plan in plans} == {True, False}
    for entry in plans:
        assert (entry["gpus"] > 16) is (
            entry["fleet"] == "larger than the fleet: it has 16 of them"
        )
        assert entry["fit_probability"] >= 0.95
        for name in ("p50", "p95", "p99"):
            exact = entry["estimate"][f"{name}_bytes"] / 2**30
            assert entry[f"{name}_gib"] == float(f"{exact:.3g}")
    written = list(csv.DictReader(answers["csv"].out.splitlines()))
    for name in (*FIGURES, "gpus"):
        assert [float(row[name]) for row in written] == [plan[name] for plan in plans]
    head, *lines = answers["table"].out.splitlines()
    for entry, text in zip(plans, lines, strict=False):
        cells = dict(zip(re.split(r"\s{2,}", head), re.split(r"\s{2,}", text), strict=False))
        assert [float(cells[name]) for name in FIGURES] == [entry[name] for name in FIGURES]
    (note,) = document["notes"]
    assert f"note: {note}" in answers["table"].err

    told_to_page = next(entry.value for entry in app.markdown if entry.value.startswith("# "))
    (shown,) = said(told_to_page.replace("\\", ""))  # Markdown's escapes
    (table,) = [entry.value for entry in app.dataframe if "p50_gib" in entry.value.columns]
    first = table.iloc[0].to_dict()
    assert first["fleet"] == "free now"
    assert agree(shown, first)
    same = [plan for plan in plans if agree({name: plan[name] for name in FIGURES}, first)]
    assert [
        offered_plan["gpus"]
        for offered_plan in same
        if offered_plan["sharding"] == first["sharding"]
    ]
    bars = json.loads(app.get("plotly_chart")[0].proto.spec)["data"]
    marks = {bar["name"]: bar["y"] for bar in bars if bar["type"] == "scatter"}
    assert first["p95_gib"] in list(marks["95 % bound"])
    assert first["usable_gib"] in list(marks["usable memory"])
