"""A copy of the plan's problem under other settings: what it shows, and that nothing is kept."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.page_world import page_at, register_world
from factories import NOW

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cli import main
from dashboard.cli.terminal.option_types import WHAT_IF_OPTIONS as COMMAND_KNOBS
from dashboard.common.what_if_document import difference_rows
from dashboard.cycle.make_problem import PlanBasis
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.what_if import WHAT_IF_SETTINGS, changed_settings, read_basis, what_if
from dashboard.cycle.wiring import build_world
from data.base.errors import SettingsError, StoreError
from data.facts.columns import SAMPLES, check_frame
from data.facts.jobs import Job
from data.records.memory import MemoryFinding, MemoryOutlook
from data.settings.all_settings import PlanningSettings, Settings
from data.store import Store, open_store

APP = Path(__file__).parents[2] / "dashboard/web/app.py"
SETTINGS = Settings(planning=PlanningSettings(history_days=2))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A small fleet after one cycle."""
    path = tmp_path_factory.mktemp("what-if") / "t.duckdb"
    with open_store(f"duckdb:///{path}") as opened:
        source = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=1), step_seconds=900)
        opened.keep(source.collect(Window(start=NOW - timedelta(days=2), end=NOW)))
        run_cycle(build_world(SETTINGS, store=opened), now=NOW)
        yield opened


@pytest.fixture(scope="module")
def basis(store: Store) -> PlanBasis:
    """What its plan was made from."""
    return read_basis(store.reader, SETTINGS)


def test_nothing_turned_is_the_plan_in_force(basis: PlanBasis) -> None:
    """The copy costs no more than the plan, within the gap that is certified."""
    found = what_if(basis, SETTINGS, {})
    total = found.current.money + found.current.service_cost
    copied = found.changed.money + found.changed.service_cost
    assert found.left_out == 0
    assert copied == pytest.approx(total, rel=0.02)


@pytest.mark.parametrize(("slot_minutes", "horizon_slots"), [(5, 96), (60, 96), (15, 12)])
def test_both_plans_have_the_slots_of_the_plan_in_force(
    store: Store, basis: PlanBasis, slot_minutes: int, horizon_slots: int
) -> None:
    """Whatever slots the settings have since: hours of a plan do not depend on them."""
    planning = replace(SETTINGS.planning, slot_minutes=slot_minutes, horizon_slots=horizon_slots)
    since = replace(SETTINGS, planning=planning)
    found = what_if(read_basis(store.reader, since), since, {})
    assert found.current == what_if(basis, SETTINGS, {}).current
    assert found.changed.gpu_hours == pytest.approx(found.current.gpu_hours, rel=0.05)


def test_a_carbon_price_never_makes_the_plan_emit_more(basis: PlanBasis) -> None:
    """Both plans at the same price: the copy is the cheaper one, and energy is priced at it."""
    found = what_if(basis, SETTINGS, {"carbon-price": 400.0})
    assert found.settings.energy.carbon_price_per_tonne == 400.0
    total = found.current.money + found.current.service_cost
    assert found.changed.money + found.changed.service_cost <= total * (1 + 1e-6)
    assert found.changed.emissions_kgco2e <= found.current.emissions_kgco2e * (1 + 1e-6)


def test_headroom_takes_gpus(basis: PlanBasis) -> None:
    """More headroom at the same prices never plans fewer GPU-hours."""
    tight = what_if(basis, SETTINGS, {"headroom": 0.0, "churn": 0.0})
    wide = what_if(basis, SETTINGS, {"headroom": 1.0, "churn": 0.0})
    assert wide.changed.gpu_hours >= tight.changed.gpu_hours


def test_nothing_is_kept(store: Store, basis: PlanBasis) -> None:
    """A copy leaves plan, recommendations and audit as they were."""
    before = store.reader.counts()
    what_if(basis, SETTINGS, {"headroom": 0.5})
    assert store.reader.counts() == before


def test_rows_tell_the_difference(basis: PlanBasis) -> None:
    """Every figure with its unit; the difference is the copy less the plan in force."""
    found = what_if(basis, SETTINGS, {"electricity-price": 0.9})
    rows = difference_rows(found.current, found.changed, "EUR")
    assert [row["figure"] for row in rows][:3] == [
        "cost",
        "price of expected shortfall",
        "GPU-hours",
    ]
    for row in rows:
        assert row["difference"] == pytest.approx(row["what if"] - row["plan in force"])


def test_unknown_energy_stays_unknown(basis: PlanBasis) -> None:
    """Jobs without power readings are counted, and their energy is not taken for zero."""
    silent = replace(
        basis,
        forecasts=tuple(
            replace(
                forecast,
                paths=tuple(path for path in forecast.paths if path.quantity != "power_watts"),
            )
            if hasattr(forecast, "paths")
            else forecast
            for forecast in basis.forecasts
        ),
    )
    found = what_if(silent, SETTINGS, {})
    assert found.changed.energy_kwh is None
    assert found.changed.unknown_jobs > 0
    assert difference_rows(found.current, found.changed, "EUR")[3]["difference"] is None


def test_an_unknown_knob_is_refused() -> None:
    """The message names those that there are."""
    with pytest.raises(SettingsError, match="headrom"):
        changed_settings(SETTINGS, {"headrom": 1.0})


def test_a_value_out_of_range_is_refused() -> None:
    """As in the settings file."""
    with pytest.raises(SettingsError, match="headroom_ratio"):
        changed_settings(SETTINGS, {"headroom": -1.0})


def test_one_electricity_price_replaces_the_hours() -> None:
    """A price by the hour of the day would overrule the slider."""
    hours = ",".join(["0.1"] * 24)
    by_hour = replace(SETTINGS, energy=replace(SETTINGS.energy, electricity_price_by_hour=hours))
    changed = changed_settings(by_hour, {"electricity-price": 0.5})
    assert set(changed.energy.prices_by_hour) == {0.5}


def test_without_a_plan_there_is_nothing_to_ask(tmp_path: Path) -> None:
    """The error says what to run."""
    with (
        open_store(f"duckdb:///{tmp_path}/t.duckdb") as empty,
        pytest.raises(StoreError, match="no plan"),
    ):
        read_basis(empty.reader, SETTINGS)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a store like it that nobody holds open."""
    path = tmp_path_factory.mktemp("what-if-command") / "t.duckdb"
    with open_store(f"duckdb:///{path}") as opened:
        source = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=1), step_seconds=900)
        opened.keep(source.collect(Window(start=NOW - timedelta(days=2), end=NOW)))
        run_cycle(build_world(SETTINGS, store=opened), now=NOW)
    return f"duckdb:///{path}"


def test_the_command_asks_the_same(closed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON with the knobs, both plans priced alike, and the gap of the copy."""
    knobs = ["--what-if", "headroom=1", "--what-if", "churn=0", "--what-if", "carbon-price=50"]
    assert main(["--store", closed, "plan", *knobs, "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["knobs"] == {"headroom": 1.0, "churn": 0.0, "carbon-price": 50.0}
    assert said["what_if"]["gpu_hours"] >= said["plan_in_force"]["gpu_hours"]
    assert 0 <= said["gap"] < 1


@pytest.mark.parametrize("knob", ["headrom=1", "headroom", "headroom=much"])
def test_the_command_refuses_what_it_does_not_know(
    closed: str, knob: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As wrong usage, naming the knobs."""
    with pytest.raises(SystemExit) as refused:
        main(["--store", closed, "plan", "--what-if", knob])
    assert refused.value.code == 2
    assert "headroom" in capsys.readouterr().err


def test_both_faces_turn_the_same_knobs() -> None:
    """The options of the command are the knobs that there are."""
    assert set(COMMAND_KNOBS) == set(WHAT_IF_SETTINGS)


def held_to_a_mebibyte(job: Job) -> MemoryFinding:
    """The phase in which the job took more is over."""
    return MemoryFinding(
        job_id=job.job_id,
        outlook=MemoryOutlook.ROOM,
        gpu_model=job.gpu_model,
        limit_mib=81_559.0,
        now_mib=1.0,
        largest_mib=1e6,
        peak_q50_mib=1.0,
        peak_q95_mib=1.0,
        horizon_hours=24.0,
        probability=None,
        at=None,
        room_mib=81_558.0,
        why="",
    )


def test_the_copy_knows_what_free_boards_draw(basis: PlanBasis) -> None:
    """As the cycle does: boards that draw more while nobody holds them are dearer to leave."""
    gpus = basis.view.cluster.gpus
    free = pd.DataFrame(
        [
            {
                "sampled_at": NOW - timedelta(minutes=minute),
                "gpu_uuid": f"GPU-free-{board}",
                "node": gpus[0].node,
                "gpu_model": gpus[0].gpu_model,
                "utilization_ratio": 0.0,
                "power_watts": 150.0,
            }
            for board in range(3)
            for minute in range(6)
        ]
    )
    readings = pd.concat([basis.view.readings, check_frame(free, SAMPLES)], ignore_index=True)
    warm = replace(basis, view=replace(basis.view, readings=readings))
    assert what_if(warm, SETTINGS, {}).current != what_if(basis, SETTINGS, {}).current


def test_memory_that_has_become_free_counts_in_the_copy(basis: PlanBasis) -> None:
    """Jobs that once filled their boards and are held to a MiB may go where they did not fit."""
    history = basis.view.history.assign(memory_used_mib=1e6)
    board = basis.view.cluster.gpus[0]
    cut = replace(board, mig_instance="1", mig_profile="1g.10gb", job_id="")
    cluster = replace(basis.view.cluster, gpus=(*basis.view.cluster.gpus, cut))
    view = replace(basis.view, history=history, cluster=cluster)
    full = replace(basis, view=view, memory=(), serving=())
    freed = replace(full, memory=tuple(held_to_a_mebibyte(job) for job in view.jobs))
    with_room, without = (what_if(if_basis, SETTINGS, {}).changed for if_basis in (freed, full))
    assert with_room.money + with_room.service_cost < without.money + without.service_cost


def test_what_requests_take_counts_in_the_copy(basis: PlanBasis) -> None:
    """As in the cycle: what a full service holds is then worth something."""
    assert any(service.peak_load_ratio for service in basis.serving)
    known, unknown = (
        what_if(if_basis, SETTINGS, {}).changed for if_basis in (basis, replace(basis, serving=()))
    )
    assert known.service_cost > unknown.service_cost


def test_a_link_shows_the_same_comparison(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened at an address with knobs, the sliders stand there and the copy is solved."""
    # Streamlit puts the page in the place of `__main__`.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    register_world(store, SETTINGS, clock=lambda: NOW)
    page = page_at("plan", headroom="0.5", churn="much").run()
    assert not page.exception
    assert page.slider(key="what-if-headroom").value == 0.5
    assert page.slider(key="what-if-churn").value == SETTINGS.planning.churn_ratio
    assert any(entry.value.startswith("With headroom 0") for entry in page.markdown)
