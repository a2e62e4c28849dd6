"""Parts of the weekly report: who wasted what, what is ahead, and the PDF."""

import io
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pandas as pd
import pypdfium2
import pytest
from factories import (
    H100,
    NOW,
    make_collected,
    make_job,
    make_plan,
    make_recommendation,
    make_samples,
)

from dashboard.accounting.cost.prices import Rent, price_list
from dashboard.common.figures import figure_text
from dashboard.reports.render.html_report import (
    render_html,
    render_json,
    render_markdown,
)
from dashboard.reports.render.pdf_file import render_pdf
from dashboard.reports.week.waste import waste_rows
from dashboard.reports.week.week import week_to
from dashboard.reports.week.weekly_report import WeeklyReport, days_ahead, make_weekly_report
from data.base.text import storable
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.forecasts import GroupForecast, GroupKind, QuantilePath, Quantity
from data.settings.all_settings import Settings
from data.store import open_store
from data.store.facts.page_reader import holders_of

CATALOGUE = load_gpu_catalogue()
HOSTILE = "search/<b>&<font color='red'>\u202e\x00{{7*7}}</font>"


def energy(model: str = H100, **rows: tuple[float, float]) -> pd.DataFrame:
    """A frame of allocated but idle GPU-hours by job id, on boards of a model."""
    return pd.DataFrame(
        [
            {"key": key, "gpu_model": model, "gpu_hours": held, "idle_gpu_hours": idle}
            for key, (held, idle) in rows.items()
        ]
    )


def rent_of(hours: Iterable[tuple[str, float]]) -> Rent:
    """The rent at the catalogue's prices."""
    return price_list(Settings(), CATALOGUE).rent(hours, NOW - timedelta(days=1), NOW)


def test_waste_is_idle_time_at_the_price_of_the_model() -> None:
    """10 idle hours of an H100 at its catalogue price; the largest job is named."""
    jobs = [make_job("a", namespace="n", owner="o"), make_job("b", namespace="n", owner="o")]
    (row,) = waste_rows(energy(a=(20.0, 4.0), b=(20.0, 6.0)), holders_of(jobs), rent_of)
    assert row.idle_gpu_hours == 10.0
    assert row.rent == pytest.approx(10 * CATALOGUE.get(H100).price_per_hour)
    assert (row.largest_job, row.idle_ratio, row.unpriced_hours) == ("b", 0.25, 0.0)


def test_a_model_without_price_leaves_the_rent_unknown() -> None:
    """Unknown is None, not 0; beside a priced job the uncovered hours and models are told."""
    both = [make_job(name, namespace="n", owner="o") for name in ("a", "b")]
    strange = energy("Voodoo2", a=(20.0, 4.0))
    (row,) = waste_rows(strange, holders_of(both), rent_of)
    assert (row.rent, row.unpriced_hours) == (None, 4.0)
    (row,) = waste_rows(pd.concat([strange, energy(b=(1.0, 1.0))]), holders_of(both), rent_of)
    price = CATALOGUE.get(H100).price_per_hour
    assert row.rent == pytest.approx(price)
    assert (row.unpriced_hours, row.unpriced_models) == (4.0, ("Voodoo2",))
    assert row.cost.text("EUR") == f"at least {price:.3g} EUR (no price of Voodoo2)"


def test_who_wastes_nothing_is_not_listed() -> None:
    """And what no job held is nobody's waste."""
    frame = energy(a=(20.0, 0.0))
    frame.loc[len(frame)] = ["", H100, 50.0, 50.0]
    assert waste_rows(frame, holders_of([make_job("a")]), rent_of) == ()


def hourly(hours: int, start: datetime) -> GroupForecast:
    """A fleet forecast that rises by a GPU an hour."""
    path = QuantilePath(
        quantity=Quantity.ALLOCATED_GPUS,
        model="mix",
        q10=tuple(float(hour) for hour in range(hours)),
        q50=tuple(hour + 1.0 for hour in range(hours)),
        q90=tuple(hour + 2.0 for hour in range(hours)),
        backtest=None,
    )
    return GroupForecast(
        kind=GroupKind.FLEET,
        name="fleet",
        slot_starts=tuple(start + timedelta(hours=hour) for hour in range(hours)),
        paths=(path,),
        known_slots=100,
    )


def test_days_ahead_are_days_of_the_zone() -> None:
    """22:00 UTC is the next day in Berlin's summer; every hour falls into one day."""
    start = datetime(2026, 7, 1, 21, tzinfo=UTC)
    days = days_ahead([hourly(48, start)], week_to(start, "Europe/Berlin"))
    assert [day.hours for day in days] == [1, 24, 23]
    second = days[1]
    assert second.wanted is not None
    assert second.wanted.central == pytest.approx(sum(range(2, 26)) / 24)
    assert (second.peak_wanted, second.peak_at) == (26.0, start + timedelta(hours=24))
    assert second.used is None


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> WeeklyReport:
    """A day of an idle and a busy job; the idle one has a hostile name."""
    samples = make_samples(gpus=2, minutes=1440)
    theirs = samples["gpu_uuid"] == "GPU-0001"
    samples.loc[theirs, "job_id"] = HOSTILE
    samples.loc[theirs, "utilization_ratio"] = 0.0
    folder = tmp_path_factory.mktemp("report")
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        store.keep(make_collected(samples, (make_job(), make_job(HOSTILE, namespace="<i>n"))))
        store.keep_cycle(
            cycle_id="c1",
            started_at=NOW,
            finished_at=NOW,
            forecasts=(),
            group_forecasts=(hourly(168, NOW),),
            plan=make_plan(),
            recommendations=(make_recommendation(job_id=HOSTILE),),
        )
        return make_weekly_report(
            store.reader,
            week=week_to(NOW, "Europe/Berlin"),
            settings=Settings(),
        )


@pytest.mark.parametrize(
    ("boards", "size", "idle", "hours"),
    [
        (23.45, "23.4 GPUs", 84.5, "84.5 GPU-hours"),
        (24.0, "24 GPUs", 1.0, "1 GPU-hour"),
        (1.0, "1 GPU", 1823.4, "1,823 GPU-hours"),
    ],
)
def test_sentences_round_as_tables_do(
    report: WeeklyReport, boards: float, size: str, idle: float, hours: str
) -> None:
    """A mean of boards that came and went says so, and idle time is that of its table."""
    (row, *_) = report.waste
    changed = replace(report, boards=boards, waste=(replace(row, idle_gpu_hours=idle),))
    assert f"; {hours} allocated but idle" in changed.finding
    assert figure_text(idle) == hours.split()[0]
    for text in (render_html(changed), render_markdown(changed)):
        assert f"the fleet had on average {size}" in text
    pages = pypdfium2.PdfDocument(render_pdf(changed))
    told = " ".join(page.get_textpage().get_text_range() for page in pages)
    assert f"the fleet had on average {size}" in " ".join(told.split())


def test_idle_hours_are_in_the_finding_and_in_the_parts(report: WeeklyReport) -> None:
    """One GPU did nothing for a day, another worked half of its time."""
    worst, other = report.waste
    assert (worst.namespace, worst.largest_job) == ("<i>n", storable(HOSTILE))
    assert worst.idle_gpu_hours == pytest.approx(24, abs=0.1)
    assert other.idle_gpu_hours == pytest.approx(12, abs=0.1)
    assert "36 GPU-hours" in report.finding


def test_the_pdf_says_what_the_report_says(report: WeeklyReport) -> None:
    """PDFium reads the text back: the finding, the zone, the hostile name as plain text."""
    with pypdfium2.PdfDocument(render_pdf(report)) as document:
        flat = " ".join(" ".join(page.get_textpage().get_text_range() for page in document).split())
    assert report.finding in flat
    assert "CET" in flat
    assert "Fewer GPUs, proposed" in flat
    assert "<b>&<font" in flat
    assert "{{7*7}}" in flat
    assert "\u202e" not in flat
    assert flat.count("page ") >= 1


def test_the_pdf_of_the_same_facts_is_the_same(report: WeeklyReport) -> None:
    """No time of making, no random id: a report can be compared by its bytes."""
    assert render_pdf(report) == render_pdf(report)
    assert io.BytesIO(render_pdf(report)).read(5) == b"%PDF-"


def test_what_is_ahead_is_told_as_wanted(report: WeeklyReport) -> None:
    """In every format: the forecast may want more boards than there are, which nobody can hold."""
    assert report.ahead
    with pypdfium2.PdfDocument(render_pdf(report)) as document:
        pdf = "".join(page.get_textpage().get_text_range() for page in document)
    (day, *_rest) = json.loads(render_json(report))["ahead"]
    assert {"wanted", "peak_wanted"} <= day.keys()
    for text in (render_markdown(report), render_html(report), pdf):
        shown = " ".join(text.partition("The week ahead")[2].split())
        assert "GPUs wanted" in shown
        assert "peak wanted (q90)" in shown
        assert "GPUs allocated" not in shown
