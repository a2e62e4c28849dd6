"""The demo at other hours of the week: a newcomer finds something to decide whenever they come."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from beds.api_clients import LOCAL, clients
from beds.demo_store import make_demo
from beds.stated_time import clock_at

from dashboard.cli import main
from data.store import open_store

HOURS = {
    "saturday evening": datetime(2026, 3, 7, 19, 5, tzinfo=UTC),
    "sunday night": datetime(2026, 3, 8, 3, tzinfo=UTC),
    "monday midnight": datetime(2026, 3, 9, 0, tzinfo=UTC),
    "weekday morning": datetime(2026, 3, 10, 6, 35, tzinfo=UTC),
    "weekday noon": datetime(2026, 3, 11, 12, tzinfo=UTC),
    "friday evening": datetime(2026, 3, 13, 21, 50, tzinfo=UTC),
    "end of a month": datetime(2026, 4, 30, 23, 55, tzinfo=UTC),
    "end of a year": datetime(2026, 12, 31, 23, 55, tzinfo=UTC),
    "29 February": datetime(2028, 2, 29, 13, tzinfo=UTC),
    "summer time begins": datetime(2026, 3, 29, 1, 5, tzinfo=UTC),
    "summer time ends": datetime(2026, 10, 25, 1, 5, tzinfo=UTC),
}
EVERY_RUN = ("sunday night",)


@pytest.mark.parametrize(
    "hour",
    [
        pytest.param(hour, id=hour, marks=() if hour in EVERY_RUN else [pytest.mark.slow_end])
        for hour in HOURS
    ],
)
def test_a_newcomer_finds_something_to_decide(
    hour: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Idle GPUs, a report; nothing is taken from services that their requests fill."""
    url, end = f"duckdb:///{tmp_path}/demo.duckdb", HOURS[hour]
    make_demo(url, end)
    with clock_at(end + timedelta(seconds=30)):
        with open_store(url) as store, clients(store, LOCAL) as client:
            page = client(peer="127.0.0.1")
            findings = page.get("/api/v1/findings").json()["items"]
            services, plan = store.reader.serving_outlook(), store.reader.latest_plan()
        capsys.readouterr()
        assert main(["--quiet", "--store", url, "report", "weekly"]) == 0
    report = capsys.readouterr().out
    assert plan is not None
    assert len(findings) >= 5
    assert "reclaim" in {finding["action"] for finding in findings}
    assert all(finding["finding"] in report for finding in findings[:1])

    targets = {finding["target"] for finding in findings}
    loads = {service.job_id: service.peak_load_ratio for service in services}
    overloaded = {job_id for job_id, load in loads.items() if load is not None and load >= 1}
    assert overloaded
    assert not overloaded & targets
    idle = {job.job_id: job.idle for job in plan.jobs if job.idle is not None}
    entries = [idle[job_id] for job_id in overloaded if job_id in idle]
    assert any(entry.work < entry.held / 2 for entry in entries)
    assert all(entry.peaks == pytest.approx(entry.held - entry.work) for entry in entries)
