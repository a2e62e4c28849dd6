"""Boards warmer than their power explains, and what the page Facility says of racks and heat."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from beds.page_world import page_at, register_world
from factories import NOW, make_collected, make_samples
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from dashboard.accounting.facility.hot_spots import HOT_SPOT, boards_by_warmth
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from data.settings.all_settings import Settings
from data.settings.fleet import PowerDomain, PowerSettings
from data.settings.store import StoreSettings
from data.store import Store, open_store

APP = Path(__file__).parents[2] / "dashboard/web/app.py"


def fleet(temperatures: Any, watts: Any) -> pd.DataFrame:
    """Boards of one model."""
    count = len(temperatures)
    return pd.DataFrame(
        {
            "node": [f"n{board // 8}" for board in range(count)],
            "gpu_index": [str(board % 8) for board in range(count)],
            "gpu_model": "H100-SXM5-80GB",
            "gpu_uuid": [f"GPU-{board:04d}" for board in range(count)],
            "temperature_celsius": temperatures,
            "memory_temperature_celsius": np.nan,
            "power_watts": watts,
            "clock_mhz": np.nan,
            "throttled_ratio": np.nan,
        }
    )


@given(
    st.integers(0, 2**32 - 1),
    st.integers(16, 200),
    st.floats(20, 40),
    st.floats(0.02, 0.09),
    st.floats(15, 30),
)
def test_badly_cooled_boards_are_told_from_busy_ones(
    seed: int, count: int, idle: float, per_watt: float, worse: float
) -> None:
    """Whatever warms the room: a tenth of the boards is warmer at its power, and no other is."""
    random = np.random.default_rng(seed)
    watts = random.uniform(80, 700, count)
    bad = np.arange(count) < count // 10
    random.shuffle(bad)
    warm = idle + per_watt * watts + random.normal(0, 1, count) + worse * bad
    found = boards_by_warmth(fleet(warm, watts)).set_index("gpu_uuid")
    assert list(found["temperature_celsius"]) == sorted(warm, reverse=True)
    told = found.loc[[f"GPU-{board:04d}" for board in range(count)], HOT_SPOT] >= 10
    assert list(told) == list(bad)


def test_what_is_usual_needs_boards_and_their_power() -> None:
    """Seven boards, or boards without power, are in the list with their temperature alone."""
    seven = boards_by_warmth(fleet(np.full(7, 60.0), np.full(7, 300.0)))
    assert len(seven) == 7
    assert seven[HOT_SPOT].isna().all()
    silent = boards_by_warmth(fleet(np.full(9, 60.0), np.full(9, np.nan)))
    assert silent[HOT_SPOT].isna().all()
    same = boards_by_warmth(fleet([60.0] * 8 + [80.0, np.nan], np.full(10, 300.0)))
    assert list(same[HOT_SPOT]) == [20.0] + [0.0] * 8


def page_of(store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The page Facility of a store."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    register_world(store, settings, clock=lambda: NOW)
    app = page_at("facility")
    app.run()
    assert not app.exception
    return app


def words(app: AppTest) -> str:
    """What the page says."""
    return "\n".join(str(entry.value) for entry in (*app.markdown, *app.info, *app.metric))


def test_a_rack_that_will_exceed_its_limit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two boards of 400 W each in racks of 1 kW and of 0.3 kW; heat is that of boards and hosts."""
    racks = (
        PowerDomain(name="roomy", nodes="node-0", limit_kw=1.0),
        PowerDomain(name="tight", nodes="node-1", limit_kw=0.3),
    )
    settings = Settings(
        power=PowerSettings(domains=racks, host_ratio=0.5),
        store=StoreSettings(url=f"duckdb:///{tmp_path}/t.duckdb"),
    )
    samples = make_samples(gpus=2, minutes=2 * 24 * 60, end=NOW)
    samples["node"] = "node-" + samples["gpu_uuid"].str[-1]
    with open_store(settings.store.url) as store:
        store.keep(make_collected(samples))
        page = page_of(store, settings, monkeypatch)
        assert "is not forecast yet" in words(page)
        run_cycle(build_world(settings, store=store), now=NOW)
        page = page_of(store, settings, monkeypatch)
        assert "gives off 1.2 kW of heat; within 24 h tight may exceed" in words(page)
        (table,) = (entry.value for entry in page.dataframe if "rack" in entry.value)
        assert list(table["over it"]) == ["no", "yes"]
        assert list(table["heat now (kW)"]) == [0.6, 0.6]
        assert "No source tells a temperature" in words(page)


def test_without_power_and_racks_nothing_is_made_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown is said, and what to set."""
    store.keep(make_collected(make_samples(gpus=1, minutes=70, end=NOW, power_watts=np.nan)))
    said = words(page_of(store, Settings(), monkeypatch))
    assert "Power was never reported, so heat is unknown; no rack is known" in said
    assert "power.domains" in said
