"""The weekly report as a file in a browser."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from beds.demo_store import DEMO_END
from browser.bed import HOSTILE_JOB
from factories import (
    NOW,
    make_collected,
    make_job,
    make_plan,
    make_range,
    make_recommendation,
    make_samples,
)
from playwright.sync_api import Browser

from dashboard.reports.render.html_report import render_html
from dashboard.reports.week.week import week_to
from dashboard.reports.week.weekly_report import make_weekly_report
from data.records.recommendations import Savings
from data.settings.all_settings import Settings
from data.settings.energy import EnergySettings
from data.store import open_store

pytestmark = pytest.mark.browser
_FOUR_LINES = 90
"""Height in pixels of a heading whose words stand below one another, letter by letter or nearly."""


def test_html_is_one_file_that_fetches_and_runs_nothing_foreign(
    filled_store: str, browser: Browser, tmp_path: Path
) -> None:
    """Chromium opens it, draws the plot, asks no host, logs no error, runs no label."""
    week = tmp_path / "week.html"
    subprocess.run(
        [
            Path(sys.executable).with_name("trimtab"),
            *("--store", filled_store),
            *("report", "weekly", "--format", "html", "--out", week),
            *("--now", DEMO_END.isoformat()),
        ],
        check=True,
        cwd=tmp_path,
        capture_output=True,
    )
    requests: list[str] = []
    complaints: list[str] = []
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda line: complaints.append(f"{line.type}: {line.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(week.as_uri())
        page.wait_for_selector("svg[role=img] polygon")
        described = page.get_by_role("img").get_attribute("aria-label")
        text = page.inner_text("body")
        hacked = page.evaluate("window.hacked")
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert [line for line in complaints if not line.startswith("info")] == []
    assert HOSTILE_JOB in text
    assert re.search(r"On average \d+\.\d of \d+\.\d were used", described or "")
    assert hacked is None


@pytest.fixture(scope="module")
def long_week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with amounts of many digits and names without a place to break a line."""
    folder = tmp_path_factory.mktemp("long-week")
    savings = Savings(
        horizon_hours=168,
        gpu_hours=make_range(123_456, "GPU-h"),
        energy_kwh=make_range(123_456, "kWh"),
        emissions_kgco2e=make_range(123_456, "kgCO2e"),
        cost=make_range(1_234_567, "EUR"),
    )
    advice = (
        make_recommendation(savings=savings),
        make_recommendation(job_id="n/" + "W" * 300, why="because_" * 60, savings=savings),
    )
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        samples = make_samples(gpus=8, minutes=24 * 60, job_id=advice[1].job_id, end=NOW)
        store.keep(make_collected(samples, (make_job(advice[1].job_id),)))
        store.keep_cycle(
            cycle_id="c1",
            started_at=NOW,
            finished_at=NOW,
            forecasts=(),
            plan=make_plan(),
            recommendations=advice,
        )
        report = make_weekly_report(
            store.reader,
            week=week_to(NOW, "UTC"),
            settings=Settings(energy=EnergySettings(region="DEU")),
        )
    week = folder / "week.html"
    week.write_text(render_html(report), encoding="utf-8")
    return week


@pytest.mark.parametrize("width", [800, 1000, 1280])
def test_the_tables_fit_the_window(long_week: Path, browser: Browser, width: int) -> None:
    """No column is pressed to a few letters, and nothing has to be scrolled sideways."""
    with browser.new_context(offline=True, viewport={"width": width, "height": 1400}) as context:
        page = context.new_page()
        page.goto(long_week.as_uri(), timeout=120_000)
        heights = page.locator("thead th").evaluate_all("cells => cells.map(c => c.offsetHeight)")
        overflowing = page.locator("td").evaluate_all(
            "cells => cells.filter(c => c.scrollWidth > c.clientWidth).length"
        )
        page_fits = page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
    assert max(heights) < _FOUR_LINES
    assert overflowing == 0
    assert page_fits
