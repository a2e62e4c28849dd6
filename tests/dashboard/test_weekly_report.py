"""The weekly report: golden text, hostile names, one self-contained file."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from beds.stores import filled
from factories import NOW, make_collected, make_job, make_plan, make_recommendation, make_samples

from dashboard.accounting.savings.ledger import LedgerRow
from dashboard.reports.render.html_report import render_html, render_json, render_markdown
from dashboard.reports.week.savings import saved_in
from dashboard.reports.week.week import Week, week_to
from dashboard.reports.week.weekly_report import WeeklyReport, make_weekly_report
from data.records.commands import AuditEntry
from data.settings.all_settings import Settings
from data.settings.energy import EnergySettings
from data.store import Store, open_store

MAX_PAGE_BYTES = 200_000
HOSTILE = "search/<img src=x onerror=document.title='owned'>|[x](javascript:alert(1))"


def fill(store: Store) -> None:
    """Keep a day of two jobs, one of them with a hostile name, and a recommendation of each."""
    samples = make_samples(gpus=4, minutes=1440)
    samples.loc[samples["gpu_uuid"] == "GPU-0003", "job_id"] = HOSTILE
    jobs = (make_job(gpu_count=3), make_job(HOSTILE, namespace="<b>bold</b>"))
    store.keep(make_collected(samples, jobs))
    store.keep_cycle(
        cycle_id="c1",
        started_at=NOW,
        finished_at=NOW,
        forecasts=(),
        plan=make_plan(),
        recommendations=(make_recommendation(), make_recommendation(job_id=HOSTILE, job_name="")),
    )


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """That day."""
    with filled(store_url, fill) as opened:
        yield opened


def report_of(store: Store) -> WeeklyReport:
    """The report of the week that ends at the newest sample."""
    return make_weekly_report(
        store.reader,
        week=week_to(NOW, "UTC"),
        settings=Settings(energy=EnergySettings(region="DEU")),
    )


def test_markdown_is_golden(store: Store, golden: Callable[[str, str], None]) -> None:
    """The text changes only on purpose."""
    golden("weekly.md", render_markdown(report_of(store)))


def test_the_page_is_small_and_runs_nothing(store: Store) -> None:
    """One picture, drawn by lines and described in words; no script; a mail can carry it."""
    page = render_html(report_of(store))
    assert page.count("<svg ") == 1
    assert page.count("<polygon ") >= 3
    assert re.search(r'<svg role="img" aria-label="[^"]*On average [0-9.]+ of [0-9.]+ were', page)
    assert "<script" not in page
    assert "script-src" not in page
    assert len(page.encode()) < MAX_PAGE_BYTES


def test_text_and_page_say_how_long_the_week_is(store: Store) -> None:
    """167 or 169 h where the clocks change."""
    week = Week(
        start=datetime(2026, 10, 18, 22, tzinfo=UTC),
        end=datetime(2026, 10, 25, 23, tzinfo=UTC),
        zone="Europe/Berlin",
    )
    report = replace(report_of(store), week=week)
    for text in (render_markdown(report), render_html(report)):
        assert "(169 h, since the clocks changed)" in text
        assert "168 h" not in text


@pytest.mark.parametrize(("minutes", "known"), [(5, True), (30, False)])
def test_idle_time_between_distant_readings_is_unknown(
    store_url: str, minutes: int, known: bool
) -> None:
    """Half an hour apart, nothing is observed of the time between: it is not said to be 0."""
    samples = make_samples(gpus=2, minutes=1440, utilization_ratio=0.0)
    far = samples[samples["sampled_at"].dt.minute % minutes == 0].reset_index(drop=True)
    with open_store(store_url) as opened:
        opened.keep(make_collected(far, (make_job(gpu_count=2),)))
        report = report_of(opened)
    text = render_markdown(report)
    assert ("how long they were allocated but idle is not known" in report.finding) is not known
    assert ("readings of a GPU lie more than 5 minutes apart" in text) is not known
    assert "Nothing was allocated but idle" not in text
    assert (bool(report.waste)) is known


def test_people_read_titles_and_programs_the_action(store: Store) -> None:
    """Markdown and HTML call a recommendation what its card does; JSON keeps the word."""
    report = report_of(store)
    for text in (render_markdown(report), render_html(report)):
        assert "Fewer GPUs" in text
        assert "fewer-gpus" not in text
    document = json.loads(render_json(report))
    assert {recommendation["action"] for recommendation in document["recommendations"]} == {
        "fewer-gpus"
    }


def test_energy_is_the_integral_and_the_parts_are_the_whole(store: Store) -> None:
    """Four boards at 400 W for a day less a minute; jobs and days sum to the fleet."""
    report = report_of(store)
    assert report.energy.statement.total.gpu_energy_kwh is not None
    assert report.energy.statement.total.gpu_energy_kwh.central == pytest.approx(
        4 * 0.4 * 1439 / 60
    )
    assert report.week.end - report.week.start == timedelta(hours=168)
    for rows in (report.energy.statement.rows, report.energy.top_jobs, report.energy.days.rows):
        parts = [row.gpu_energy_kwh for row in rows]
        total = sum(part.central for part in parts if part is not None)
        assert total == pytest.approx(report.energy.statement.total.gpu_energy_kwh.central)


def test_jobs_whose_names_nobody_tells_are_called_unknown(store_url: str) -> None:
    """In every text as in the energy tables; a program reads an empty name."""
    with open_store(store_url) as store:
        job = make_job("slurm:1", namespace="", owner="")
        store.keep(make_collected(make_samples(job_id="slurm:1"), (job,)))
        report = report_of(store)
    assert (report.waste[0].namespace, report.waste[0].owner) == ("", "")
    named = [line.split("|")[1:3] for line in render_markdown(report).splitlines()]
    assert [" \\(unknown\\) ", " \\(unknown\\) "] in named
    assert "<td>(unknown)</td><td>(unknown)</td>" in render_html(report)


def test_json_is_strict_and_has_the_digest(store: Store) -> None:
    """No NaN; recommendations can be followed by their digest."""
    document = json.loads(render_json(report_of(store)), parse_constant=pytest.fail)
    digests = [recommendation["digest"] for recommendation in document["recommendations"]]
    assert make_recommendation().digest in digests


def test_hostile_names_stay_text_in_markdown(store: Store) -> None:
    """No link, no table break, no tag."""
    text = render_markdown(report_of(store))
    assert not re.search(r"(?<!\\)<img|(?<!\\)\[x|(?<!\\)<b", text)


def test_an_empty_week_says_so(store_url: str) -> None:
    """Unknown is shown as unknown."""
    with open_store(store_url) as opened:
        report = report_of(opened)
        assert report.energy.statement.total.gpu_energy_kwh is None
        assert "No samples were kept" in render_markdown(report)
        assert "No samples were kept" in render_html(report)


def test_people_find_what_was_decided_by_its_number(store: Store) -> None:
    """In every form; what is no recommendation keeps the start of its digest."""
    report = report_of(store)
    reference = report.recommendations[0].reference
    digest = report.recommendations[0].recommendation.digest
    said = AuditEntry(
        sequence=1, at=report.week.start, actor="Robin", event="approved", digest=digest, detail="",
        previous_hash="", entry_hash="",
    )  # fmt: skip
    report = replace(report, decided=(said, replace(said, digest="f" * 64)))
    for text in (render_markdown(report), render_html(report)):
        assert reference.startswith("TT-")
        assert reference in text
        assert digest[:12] not in text
        assert "f" * 12 in text


def test_what_was_measured_after_the_week_is_applied_in_it() -> None:
    """The state of then: no outcome beside a saving that is not known yet."""
    at = datetime(2026, 1, 9, tzinfo=UTC)
    week = Week(start=at - timedelta(days=4), end=at + timedelta(hours=1), zone="UTC")
    row = LedgerRow(
        reference="TT-1", recommendation=make_recommendation(), state="verified", applied_at=at,
        measured_at=at + timedelta(hours=2), measurement=None,
    )  # fmt: skip
    (told,) = saved_in(week, [row], (), days=(), until=None).rows
    assert (told.state, told.reason) == ("applied", "not measured yet")
    early = replace(row, measured_at=at)
    assert saved_in(week, [early], (), days=(), until=None).rows == (early,)
