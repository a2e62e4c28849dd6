"""What was approved, applied and really saved: from the ledger, in one week, in every form."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pypdfium2
import pytest
from beds.apply_bench import JOB, Bench, applied_bench
from factories import NOW, make_collected, make_job, make_samples

from dashboard.accounting.savings.ledger import ledger, total_gpu_hours
from dashboard.reports.render.html_report import (
    bare_text,
    render_html,
    render_json,
    render_markdown,
)
from dashboard.reports.render.pdf_file import render_pdf
from dashboard.reports.week.editions import WHOLE, Edition, EditionKind
from dashboard.reports.week.week import week_to
from dashboard.reports.week.weekly_report import WeeklyReport, make_weekly_report
from data.settings.all_settings import Settings
from data.store import open_store

MEASURED = NOW + timedelta(hours=3)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A change from four boards to two, applied at NOW and measured three hours later."""
    folder: Path = tmp_path_factory.mktemp("saved")
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        made = applied_bench(store, folder)
        after = make_samples(gpus=2, minutes=180, end=MEASURED, utilization_ratio=0.5)
        store.keep(make_collected(after, (make_job(gpu_count=2, last_seen_at=MEASURED),)))
        made.clock.at = MEASURED
        made.work(visits=4)
        assert made.state == "verified"
        yield made


def report_to(bench: Bench, end: datetime, edition: Edition = WHOLE) -> WeeklyReport:
    """The report of the week up to `end`."""
    return make_weekly_report(
        bench.store.reader,
        week=week_to(end, "UTC"),
        settings=Settings(),
        edition=edition,
    )


def test_the_week_says_what_was_approved_applied_and_saved(bench: Bench) -> None:
    """One of each; the sums are the ledger's."""
    saved = report_to(bench, NOW + timedelta(days=1)).saved
    assert (saved.approved, saved.applied, len(saved.rows)) == (1, 1, 1)
    assert (
        saved.finding
        == "1 recommendation was approved and 1 change applied; 1 change was measured."
    )
    whole = total_gpu_hours(ledger(bench.store.reader, now=MEASURED))
    assert saved.gpu_hours == whole
    assert saved.gpu_hours.realised is not None
    assert saved.gpu_hours.realised.central == pytest.approx(
        4
    )  # two boards over the two hours measured


def test_a_saving_counts_in_the_week_in_which_it_was_measured(bench: Bench) -> None:
    """The week of applying names the change as unknown; the next one adds it; then none does."""
    end = NOW + timedelta(hours=1)
    first, second, third = (
        report_to(bench, end + timedelta(days=7 * week)).saved for week in range(3)
    )
    assert (first.applied, first.gpu_hours.measured, first.gpu_hours.unknown) == (1, 0, 1)
    assert first.gpu_hours.realised is None
    assert first.rows[0].reason == "not measured yet"
    assert "of 1 the saving is not known" in first.finding
    assert (second.applied, second.gpu_hours.measured) == (0, 1)
    assert second.gpu_hours.realised is not None
    assert third.rows == ()
    assert third.finding.startswith("Nothing was approved or applied")


@pytest.mark.parametrize(
    ("edition", "seen"),
    [
        (Edition(kind=EditionKind.NAMESPACE, name="search"), 1),
        (Edition(kind=EditionKind.NAMESPACE, name="vision"), 0),
        (Edition(kind=EditionKind.OWNER, name="search"), 1),
        (Edition(kind=EditionKind.OWNER, name="mallory"), 0),
    ],
)
def test_a_team_sees_only_its_own(bench: Bench, edition: Edition, seen: int) -> None:
    """Nothing of others' approvals, changes, savings or energy."""
    report = report_to(bench, NOW + timedelta(days=1), edition)
    saved = report.saved
    assert (saved.approved, saved.applied, len(saved.rows)) == (seen,) * 3
    assert bool(report.energy.statement.rows) == bool(seen)
    if not seen:
        assert JOB not in render_markdown(report) + render_html(report) + render_json(report)


def test_every_form_says_the_same(bench: Bench) -> None:
    """Markdown, HTML, PDF and JSON carry promise and result of the change and in total."""
    report = report_to(bench, NOW + timedelta(days=1))
    saved = report.saved
    assert saved.gpu_hours.realised is not None
    shown = bare_text(saved.gpu_hours.realised)
    assert shown in render_markdown(report)
    assert shown in render_html(report)
    with pypdfium2.PdfDocument(render_pdf(report)) as document:
        flat = " ".join(" ".join(page.get_textpage().get_text_range() for page in document).split())
    assert shown in flat
    assert saved.finding in flat
    action = saved.rows[0].recommendation.action
    for text in (render_markdown(report), render_html(report), flat):
        assert action.spec.title in text
    told = json.loads(render_json(report))["saved"]
    assert told["gpu_hours"]["realised"]["central"] == saved.gpu_hours.realised.central
    assert told["changes"][0]["action"] == action
    assert told["changes"][0]["measurement"]["realised_gpu_hours"] is not None


def test_every_form_has_the_statement(bench: Bench) -> None:
    """The table by tenant, the factors with their year, and what is unknown."""
    energy = replace(Settings().energy, region="DEU", market_gco2e_per_kwh=50.0)
    report = make_weekly_report(
        bench.store.reader,
        week=week_to(NOW + timedelta(days=1), "UTC"),
        settings=replace(Settings(), energy=energy),
    )
    total = report.energy.statement.total
    with pypdfium2.PdfDocument(render_pdf(report)) as document:
        flat = " ".join(" ".join(page.get_textpage().get_text_range() for page in document).split())
    html = " ".join(re.sub(r"<[^>]*>", " ", render_html(report)).split())
    for text in (render_markdown(report), html, flat):
        for amount in (total.location_kgco2e, total.market_kgco2e, total.sci_gco2e):
            assert bare_text(amount) in text
        assert "2023" in text
        assert "was not measured" in text
    document = json.loads(render_json(report))["energy"]
    assert document["total"]["location_based_kgco2e"] == total.location_kgco2e.central
    assert {factor["name"] for factor in document["factors"]} >= {
        "PUE",
        "grid carbon, location-based",
    }
