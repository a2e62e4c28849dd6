"""A host clock that jumps by hours and back: no hole, nothing twice, no cycle left out."""

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
import sqlalchemy as sa
from beds.mail_sink import running_mail_sink
from drawn import examples
from factories import make_collected, make_samples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from collectors.shared.collector import Window
from dashboard.cli import main
from dashboard.cycle.context import World
from dashboard.cycle.cycle_thread import CycleThread
from dashboard.cycle.run_cycle import collect_and_keep, run_cycle
from dashboard.cycle.wiring import build_world
from dashboard.notify.deliver import Notifier
from dashboard.notify.report_delivery import ReportRounds
from data.facts.collected import Collected
from data.facts.identifiers import digest_of
from data.settings.access import NotifySettings
from data.settings.all_settings import RetentionSettings, Settings
from data.settings.load import load_settings
from data.settings.reports import ReportSettings
from data.store import Store, open_store

START = datetime(2026, 3, 28, 12, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
HOUR = timedelta(hours=1)


@dataclass
class Exporter:
    """A source of one board, up to the real time, or that it takes for real: `ahead` of ours."""

    real: datetime
    ahead: timedelta = timedelta()
    name: str = "exporter"

    def collect(self, window: Window) -> Collected:
        """Return the samples in (start, end] that have happened."""
        end = min(window.end + self.ahead, self.real + self.ahead)
        minutes = max(0, int((end - window.start) / timedelta(minutes=1)))
        samples = make_samples(minutes=minutes, end=end)
        given = make_collected(samples, batch_id=digest_of([window.start, window.end, self.real]))
        report = replace(
            given.report, source=self.name, window_start=window.start, window_end=window.end
        )
        return replace(given, report=report)


def world_of(store: Store, exporter: Exporter) -> World:
    """A world with this source alone."""
    return replace(build_world(Settings(), store=store), collectors=(exporter,))


def minutes_kept(store: Store) -> pd.Series:
    """The times of all samples, in order."""
    with store._engine.connect() as connection:
        found = connection.execute(sa.text("SELECT sampled_at FROM samples ORDER BY 1")).all()
    return pd.Series(pd.to_datetime([row.sampled_at for row in found], utc=True))


@pytest.mark.parametrize(
    "jumps",
    [
        [0, 4, 0],
        [0, 10, 0, 0],
        [0, 300, 300, 0, 0],
        [1800, 0, 0],
        [0, -180, -180, 0],
        [0, 300, -300, 12, -7, 0],
    ],
    ids=lambda jumps: ",".join(map(str, jumps)),
)
def test_a_clock_that_jumps_and_is_set_right_leaves_no_hole(
    tmp_path: Path, jumps: list[int]
) -> None:
    """Minutes ahead or back at each collection, the last one right: every sample once."""
    exporter = Exporter(real=START)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        world = world_of(store, exporter)
        collect_and_keep(world, START)
        for ahead in jumps:
            exporter.real += QUARTER
            collect_and_keep(world, exporter.real + timedelta(minutes=ahead))
        times = minutes_kept(store)
    assert times.iloc[-1] == exporter.real
    assert (times.diff().dropna() == pd.Timedelta(minutes=1)).all()


@dataclass
class Board:
    """A source on this host: its samples carry the host's clock, right or wrong."""

    name: str = "board"

    def collect(self, window: Window) -> Collected:
        """Return the last quarter of an hour by the host's clock."""
        samples = make_samples(minutes=15, end=window.end)
        given = make_collected(samples, batch_id=digest_of([window.start, window.end]))
        report = replace(
            given.report, source=self.name, window_start=window.start, window_end=window.end
        )
        return replace(given, report=report)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.one_of(st.just(0), st.integers(3 * 24, 200_000), st.integers(-2_000, -1)),
        min_size=3,
        max_size=12,
    )
)
@example([87_600, 0, 0, 87_600, 175_200, 0])
def test_a_host_clock_that_jumps_far_deletes_nothing_young(
    tmp_path_factory: pytest.TempPathFactory, jumps: list[int]
) -> None:
    """Hours ahead or back at each collection: what is younger than its retention stays.

    That goes for the five-minute roll-ups too, and no later sample of the right clock is refused.
    """
    retention = RetentionSettings(raw_days=2, five_minute_days=3, hourly_days=400)
    with open_store(f"duckdb:///{tmp_path_factory.mktemp('j')}/t.duckdb") as store:
        history = make_samples(minutes=6 * 24 * 12, end=START)
        history["sampled_at"] = pd.date_range(end=START, periods=len(history), freq="5min")
        store.keep(make_collected(history.astype({"sampled_at": "datetime64[us, UTC]"})))
        world = replace(
            build_world(Settings(retention=retention), store=store), collectors=(Board(),)
        )
        real = START
        for hours in jumps:
            real += QUARTER
            collect_and_keep(world, real + hours * HOUR)
            passed = (real - START) // timedelta(minutes=5) + 1
            assert young(store, "samples", "sampled_at", real, 2) >= 2 * 24 * 12 - passed
            assert young(store, "five_minute", "slot_start", real, 3) >= 3 * 24 * 12 - passed
        for _again in range(2):
            real += QUARTER
            _reports, rows = collect_and_keep(world, real)
            assert rows == 15
        assert young(store, "samples", "sampled_at", real, 9) < 4 * 24 * 12  # it does forget


def young(store: Store, table: str, column: str, real: datetime, days: int) -> int:
    """How many rows of the table are younger than so many days, by the right clock."""
    with store._engine.connect() as connection:
        found = connection.execute(
            sa.text(
                f"SELECT count(*) FROM {table}"  # noqa: S608
                f" WHERE {column} > :since AND {column} <= :real"
            ),
            {"since": real - timedelta(days=days), "real": real},
        )
        return int(found.scalar_one())


def test_a_time_that_has_not_come_deletes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A far-future --now with a source that obeys it: said, and every row stays."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_SIMULATED_FLEET_ENABLED", "true")
    monkeypatch.setenv("TRIMTAB_SIMULATED_FLEET_NODES", "1")
    monkeypatch.setenv("TRIMTAB_PROMETHEUS_STEP_SECONDS", "300")
    url = f"duckdb:///{tmp_path}/t.duckdb"
    assert main(["--store", url, "--quiet", "collect"]) == 0
    with open_store(url) as store:
        before = store.reader.counts()
    assert main(["--store", url, "--quiet", "collect", "--now", "2046-01-01T00:00:00Z"]) == 0
    assert "nothing is deleted for its age" in capsys.readouterr().err
    with open_store(url) as store:
        after = store.reader.counts()
    assert all(after[table] >= rows for table, rows in before.items())
    assert main(["--store", url, "--quiet", "collect"]) == 0
    with open_store(url) as store:
        assert store.reader.counts()["samples"] >= after["samples"]


def test_a_source_whose_clock_is_ahead_hides_nothing(tmp_path: Path) -> None:
    """Its future is dropped and counted; what it says later of the same time is kept."""
    exporter = Exporter(real=START, ahead=5 * HOUR)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        world = world_of(store, exporter)
        ((report,), _rows) = collect_and_keep(world, START)
        assert dict(report.dropped) == {"in-the-future": 295}
        (warning,) = report.warnings
        assert "295 samples lie up to 18,000 s ahead of this clock" in warning
        assert report.source in warning
        exporter.real, exporter.ahead = START + HOUR, timedelta()
        collect_and_keep(world, START + HOUR)
        times = minutes_kept(store)
    assert times.iloc[-1] == START + HOUR
    assert (times.diff().dropna() == pd.Timedelta(minutes=1)).all()


def test_cycles_come_on_time_when_the_clock_is_set_back() -> None:
    """Three hours back after every cycle: the next one still comes after the pause."""
    ran = threading.Semaphore(0)
    times = iter(START - hours * 3 * HOUR for hours in range(10_000))
    thread = CycleThread(ran.release, timedelta(milliseconds=1), clock=lambda: next(times))
    with thread.running():
        for _cycle in range(5):
            assert ran.acquire(timeout=30)


def test_each_week_is_reported_once_whatever_the_clock_does(store: Store) -> None:
    """Hours and a day ahead, days back, over the change to summer time: one mail a week."""
    end = datetime(2026, 4, 8, tzinfo=UTC)
    store.keep(make_collected(make_samples(minutes=60 * 24, end=end, utilization_ratio=0.0)))
    clock = datetime(2026, 3, 23, 8, tzinfo=UTC)
    with running_mail_sink() as sink:
        settings = Settings(
            notify=NotifySettings(smtp_url=sink.url),
            report=ReportSettings(mail_to="ops@site.example", timezone="Europe/Berlin"),
        )
        rounds = ReportRounds(store=store, settings=lambda: settings, clock=lambda: clock)
        notifier = Notifier(store=store, settings=lambda: settings, clock=lambda: clock)
        for hours in (0, 5, -5, 24, -30, 168, -50, 3, 26, 24, 168, -168, 168):
            clock += hours * HOUR
            rounds.file_due()
            while notifier.deliver_once():
                pass
        clock += HOUR
        while notifier.deliver_once():
            pass
        subjects = [mail.text.partition("Subject: ")[2].splitlines()[0] for mail in sink.mails]
    weeks = [subject.rpartition("-to-")[2] for subject in subjects]
    assert weeks == ["2026-03-23", "2026-03-30", "2026-04-06"]


@pytest.mark.slow
def test_a_cycle_before_the_last_plan_still_plans(tmp_path: Path) -> None:
    """Set back by five hours, it plans on what was known then, and so does the one after."""
    environ = {
        "TRIMTAB_SIMULATED_FLEET_ENABLED": "true",
        "TRIMTAB_SIMULATED_FLEET_NODES": "1",
        "TRIMTAB_PROMETHEUS_LOOKBACK_HOURS": "8",
        "TRIMTAB_PLANNING_BUDGET_SECONDS": "0.05",
        "TRIMTAB_PLANNING_HORIZON_SLOTS": "8",
    }
    settings = load_settings(None, environ=environ).settings
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        world = build_world(settings, store=store)
        for hours in (0, -5, 1):
            now = START + hours * HOUR
            outcome = run_cycle(world, now=now)
            assert outcome.as_of == now
            assert outcome.plan is not None
            assert timedelta() <= outcome.plan.slot_starts[0] - now <= QUARTER
        assert len(store.reader.recommendations(now=now)) >= len(outcome.recommendations)
