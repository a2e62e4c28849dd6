"""A fleet of one: pages and reports say `1 job`, never `1 jobs`."""

import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pypdfium2
import pytest
from beds.page_world import page_at, register_world
from factories import NOW, make_collected, make_job, make_samples
from streamlit.testing.v1 import AppTest

from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from dashboard.reports.render.html_report import render_html, render_markdown
from dashboard.reports.render.pdf_file import render_pdf
from dashboard.reports.week.week import week_to
from dashboard.reports.week.weekly_report import WeeklyReport, make_weekly_report
from data.facts.fleet import Node
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.store import StoreSettings
from data.store import Store

APP = Path(__file__).parents[2] / "dashboard/web/app.py"
VIEWS = (
    "overview", "findings", "fleet", "facility", "jobs", "job", "serving", "forecasts", "plan",
    "savings", "energy", "reports", "audit", "health",
)  # fmt: skip
NOT_NOUNS = {"as", "is", "has", "this", "was", "less", "minus", "us", "its", "plus"}
ONE_OF_MANY = re.compile(r"(?<![\w.,:-])1 ((?:(?:applied|GPU|MIG|more|of them) )?[A-Za-z-]+s)\b")


def wrong_counts(text: str) -> list[str]:
    """The places where a text gives one thing a plural, or a verb of several."""
    said = text.replace("\\", "").replace("\n", " | ")
    return [
        found[0]
        for found in ONE_OF_MANY.finditer(said)
        if len(found[1].split()[-1]) > 1 and found[1].split()[-1].casefold() not in NOT_NOUNS
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A day of one board of one node, held by one job without work, and a cycle on it."""
    folder = tmp_path_factory.mktemp("one")
    settings = Settings(
        store=StoreSettings(url=f"duckdb:///{folder}/t.duckdb"),
        planning=PlanningSettings(),
    )
    world = build_world(settings)
    job = make_job(owner="one", last_seen_at=NOW + timedelta(minutes=1))
    idle = make_samples(minutes=24 * 60 + 1, utilization_ratio=0.0, end=NOW)
    with world.store as opened:
        node = Node(name="node-1", gpu_model=job.gpu_model, gpu_count=1, seen_at=NOW, source="test")
        opened.keep(make_collected(idle, (job,), nodes=(node,)))
        run_cycle(world, now=NOW)
        yield opened


def words_of(app: AppTest) -> str:
    """All words of a page, figures and headings included."""
    told = (
        *app.markdown, *app.caption, *app.info, *app.warning, *app.error,
        *app.header, *app.metric, *app.success,
    )  # fmt: skip
    labels = [entry.label for entry in (*app.expander, *app.button)]
    return "\n".join([*(str(entry.value) for entry in told), *labels])


def drawn(store: Store, monkeypatch: pytest.MonkeyPatch, view: str) -> AppTest:
    """A page of that store."""
    # Streamlit puts the page in the place of `__main__`.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    register_world(store, Settings(), clock=lambda: NOW)
    job = {"job": next(iter(store.reader.jobs())).job_id} if view == "job" else {}
    app = page_at(view, **job)
    app.run()
    assert not app.exception
    return app


@pytest.mark.parametrize("view", VIEWS)
def test_a_page_counts_one_as_one(store: Store, monkeypatch: pytest.MonkeyPatch, view: str) -> None:
    """Every sentence, caption, figure and heading of the page."""
    assert wrong_counts(words_of(drawn(store, monkeypatch, view))) == []


def test_columns_that_no_source_fills_take_no_room(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells what limits the job's speed; what is known or a number stays a column."""
    (jobs,) = [entry.value for entry in drawn(store, monkeypatch, "jobs").dataframe]
    assert "limited by" not in jobs.columns
    assert {"job", "kind", "configuration", "utilization_ratio"} <= set(jobs.columns)


@pytest.fixture(scope="module")
def report(store: Store) -> WeeklyReport:
    """The report of that week."""
    settings = Settings()
    return make_weekly_report(
        store.reader,
        week=week_to(NOW, "UTC"),
        settings=settings,
    )


def test_a_report_counts_one_as_one(report: WeeklyReport) -> None:
    """As Markdown, HTML without its marks, and PDF."""
    html = re.sub(r"<[^>]*>", "\n", render_html(report))
    document = pypdfium2.PdfDocument(render_pdf(report))
    pdf = "\n".join(page.get_textpage().get_text_range() for page in document)
    for said in (render_markdown(report), html, pdf):
        assert wrong_counts(said) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1 jobs run", ["1 jobs"]),
        ("1 of 1 sources answered", ["1 sources"]),
        ("1 applied changes are", ["1 applied changes"]),
        ("1 job runs, 1 of 1 GPU is, 21 jobs, 0.1 GPUs, 1 h, 1 s, 1 is", []),
    ],
)
def test_a_wrong_count_is_seen(text: str, found: list[str]) -> None:
    """Units, decimals and verbs are no plural."""
    assert wrong_counts(text) == found
