"""A copy of the plan's problem under other settings: what it shows, and that nothing is kept."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from factories import NOW

from collectors.base import Window
from collectors.simulated_fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cycle import run_cycle
from dashboard.what_if import Basis, changed_settings, difference_rows, read_basis, what_if
from dashboard.wiring import build_world
from data.errors import SettingsError, StoreError
from data.settings import PlanningSettings, Settings
from data.store import Store, open_store

SETTINGS = Settings(planning=PlanningSettings(workers=1, history_days=2))


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
def basis(store: Store) -> Basis:
    """What its plan was made from."""
    return read_basis(store.reader, SETTINGS)


def test_nothing_turned_is_the_plan_in_force(basis: Basis) -> None:
    """The copy costs no more than the plan, within the gap that is certified."""
    found = what_if(basis, SETTINGS, {})
    total = found.current.money + found.current.service_cost
    copied = found.changed.money + found.changed.service_cost
    assert found.left_out == 0
    assert copied == pytest.approx(total, rel=0.02)


def test_a_carbon_price_never_makes_the_plan_emit_more(basis: Basis) -> None:
    """Both plans at the same price: the copy is the cheaper one, and energy is priced at it."""
    found = what_if(basis, SETTINGS, {"carbon-price": 400.0})
    assert found.settings.energy.carbon_price_per_tonne == 400.0
    total = found.current.money + found.current.service_cost
    assert found.changed.money + found.changed.service_cost <= total * (1 + 1e-6)
    assert found.changed.emissions_kgco2e <= found.current.emissions_kgco2e * (1 + 1e-6)


def test_headroom_takes_gpus(basis: Basis) -> None:
    """More headroom at the same prices never plans fewer GPU-hours."""
    tight = what_if(basis, SETTINGS, {"headroom": 0.0, "churn": 0.0})
    wide = what_if(basis, SETTINGS, {"headroom": 1.0, "churn": 0.0})
    assert wide.changed.gpu_hours >= tight.changed.gpu_hours


def test_nothing_is_kept(store: Store, basis: Basis) -> None:
    """A copy leaves plan, recommendations and audit as they were."""
    before = store.reader.counts()
    what_if(basis, SETTINGS, {"headroom": 0.5})
    assert store.reader.counts() == before


def test_rows_tell_the_difference(basis: Basis) -> None:
    """Every figure with its unit; the difference is the copy less the plan in force."""
    rows = difference_rows(what_if(basis, SETTINGS, {"electricity-price": 0.9}))
    assert [row["figure"] for row in rows][:3] == [
        "cost",
        "price of expected shortfall",
        "GPU-hours",
    ]
    for row in rows:
        assert row["difference"] == pytest.approx(row["what if"] - row["plan in force"])


def test_unknown_energy_stays_unknown(basis: Basis) -> None:
    """Jobs without power readings are counted, and their energy is not taken for zero."""
    silent = replace(
        basis,
        forecasts=tuple(
            replace(one, paths=tuple(path for path in one.paths if path.quantity != "power_watts"))
            if hasattr(one, "paths")
            else one
            for one in basis.forecasts
        ),
    )
    found = what_if(silent, SETTINGS, {})
    assert found.changed.energy_kwh is None
    assert found.changed.unknown_jobs > 0
    assert difference_rows(found)[3]["difference"] is None


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
