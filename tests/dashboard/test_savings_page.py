"""The page Savings says what is saved a day now, and what of it is unknown."""

import pkgutil
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from factories import NOW, make_range, make_recommendation
from streamlit.testing.v1 import AppTest

import dashboard.web
from dashboard.accounting.savings.daily_savings import DaySaved
from dashboard.web.frame.navigation import PAGES
from data.records.commands import Measurement
from data.settings.all_settings import Settings

PAGE = Path(__file__).parents[2] / "dashboard/web/account/savings.py"
DAY = timedelta(days=1)
# What is first imported while a name is replaced would keep the replacement for all later tests.
SCRIPTS = {
    "dashboard.web.app",
    *(f"dashboard.web.{row.view}.{tab.view}" for row in PAGES for tab in row.tabs),
}
for module in pkgutil.walk_packages(dashboard.web.__path__, "dashboard.web."):
    if module.name not in SCRIPTS:
        import_module(module.name)
SAVED = DaySaved(
    reference="TT-1",
    recommendation=make_recommendation(),
    start=NOW,
    until=NOW + DAY / 2,
    measurement=Measurement(
        hours=12.0, work_before=None, work_after=None, throughput_ratio=None, saturated=None,
        predicted_gpu_hours=None, realised_gpu_hours=make_range(24, "GPU-h"),
        predicted_energy_kwh=None, realised_energy_kwh=None, realised_emissions_kgco2e=None,
    ),
    money=make_range(30, "EUR"),
)  # fmt: skip


def drawn(days: list[DaySaved], monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The page on these days."""
    world: Any = SimpleNamespace(
        reader=SimpleNamespace(recording=lambda: None, latest_sample_at=lambda: NOW + DAY / 2),
        clock=lambda: NOW + DAY / 2,
        settings=SimpleNamespace(settings=Settings()),
    )
    for name, answer in {
        "dashboard.web.findings.daily_savings.saved_days": lambda: days,
        "dashboard.web.findings.daily_savings.measured_to": lambda: NOW + DAY / 2,
        "dashboard.web.frame.scope.scoped_jobs": lambda: None,
        "dashboard.web.access.identity.current_world": lambda: world,
        "dashboard.web.frame.page.current_world": lambda: world,
        "dashboard.web.frame.month.current_world": lambda: world,
        "dashboard.web.frame.page.show_link": lambda *_told, **_asked: None,
        "dashboard.accounting.savings.ledger.ledger": lambda _reader, now: (),
    }.items():
        monkeypatch.setattr(name, answer)
    page = AppTest.from_file(str(PAGE), default_timeout=60).run()
    assert not page.exception
    return page


def test_a_rate_stands_beside_what_was_saved_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day of 60 EUR is 21,900 a year; half a day tells none. Unknown energy is no zero."""
    half = {metric.label: metric.value for metric in drawn([SAVED], monkeypatch).metric}
    assert half["money saved a day now"] == "60 EUR"
    assert half["money a year at that rate"] == "—"
    page = drawn([replace(SAVED, start=NOW - DAY), SAVED], monkeypatch)
    told = {metric.label: metric.value for metric in page.metric}
    assert told["money saved a day now"] == "60 EUR"
    assert told["money a year at that rate"] == "21,900 EUR"
    assert told["GPU-hours saved a day now"] == "48 GPU-h"
    assert told["site energy saved a day now"] == "—"
    captions = [caption.value for caption in page.caption]
    assert "1 change stands now; of 1 a part is unknown." in captions


def test_what_ended_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said that no change stands."""
    page = drawn([replace(SAVED, start=NOW - 2 * DAY, until=NOW - DAY)], monkeypatch)
    told = {metric.label: metric.value for metric in page.metric}
    assert told["money saved a day now"] == "—"
    assert "no change stands" in [caption.value for caption in page.caption]
