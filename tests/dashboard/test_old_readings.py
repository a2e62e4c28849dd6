"""A live source that fell silent: nothing is proposed from its old readings, and it is said."""

import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from beds.page_world import page_at, register_world
from factories import NOW, make_collected, make_job, make_samples

from collectors.shared.collect import collect_all, is_incomplete
from collectors.shared.collector import Window
from dashboard.cli import main
from dashboard.cycle.run_cycle import CycleOutcome, collect_and_keep, run_cycle
from dashboard.cycle.wiring import build_world
from dashboard.resources.alerts import urgent_facts
from data.facts.collected import Collected
from data.facts.fleet import SourceState
from data.settings.all_settings import PlanningSettings, Settings
from data.store import Store, open_store

JOBS = ("a/idle", "b/idle")
PLANNING = PlanningSettings(horizon_slots=12, budget_seconds=0.1)


def keep_idle_jobs(store: Store, *, recorded: bool = False) -> None:
    """Keep a day of two jobs whose boards do nothing, as a live source or an import tells it."""
    for node, job_id in enumerate(JOBS):
        frame = make_samples(gpus=2, minutes=1440, job_id=job_id, utilization_ratio=0.0)
        frame = frame.assign(gpu_uuid=f"{node}-" + frame["gpu_uuid"], node=f"node-{node}")
        found = make_collected(frame, (make_job(job_id, gpu_count=2),), batch_id=job_id)
        store.keep(replace(found, report=replace(found.report, recorded=recorded)))


def cycle_after(store: Store, minutes: int) -> CycleOutcome:
    """Run a cycle so long after the newest reading."""
    world = build_world(replace(Settings(), planning=PLANNING), store=store)
    return run_cycle(world, now=NOW + timedelta(minutes=minutes))


@pytest.mark.parametrize("minutes", [61, 300, 12 * 1440])
def test_nothing_is_proposed_from_old_readings_and_what_was_is_withdrawn(
    store: Store, minutes: int
) -> None:
    """Every job says why, and the proposals of the cycle before are not open any more."""
    keep_idle_jobs(store)
    fresh = cycle_after(store, 59)
    assert {row.job_id for row in fresh.recommendations} == set(JOBS)
    assert not fresh.withheld
    later = cycle_after(store, minutes)
    assert later.recommendations == ()
    assert set(later.kept) == set(JOBS)
    assert set(later.kept.values()) == {later.withheld}
    assert f"{NOW:%Y-%m-%d %H:%M} UTC" in later.withheld
    assert store.reader.current_recommendations(now=NOW + timedelta(minutes=minutes)) == ()


def test_a_recording_has_no_age(store: Store) -> None:
    """An import is planned as of its end, whenever that is asked for."""
    keep_idle_jobs(store, recorded=True)
    assert cycle_after(store, 12 * 1440).withheld == ""


def test_the_command_says_how_old_the_readings_are_and_ends_as_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3, the age and the way out on stderr."""
    monkeypatch.chdir(tmp_path)
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as store:
        keep_idle_jobs(store)
    asked = ["--store", url, "cycle", "--now"]
    assert main([*asked, NOW.isoformat()]) == 0
    assert main([*asked, (NOW + timedelta(days=12)).isoformat()]) == 3
    err = capsys.readouterr().err
    assert "12.0 d old" in err
    assert "older than 60 min" in err
    assert "trimtab doctor" in err
    assert "worth recommending" not in err


def test_pages_speak_of_old_readings_in_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be freed now, what was found has expired, and the outage is the one alert."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    later = NOW + timedelta(hours=30)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        keep_idle_jobs(store)
        cycle_after(store, 0)
        for at, past in ((NOW, False), (later, True)):
            register_world(store, Settings(), clock=lambda at=at: at)
            pages = {view: page_at(view).run() for view in ("overview", "findings")}
            assert not any(page.exception for page in pages.values())
            said = {
                view: [str(part.value).replace("\\", "") for part in page.markdown]
                for view, page in pages.items()
            }
            (answer,) = [text for text in said["overview"] if text.startswith("# ")]
            assert ("GPUs were allocated" in answer) is past
            assert ("the last plan has expired" in answer) is past
            assert ("can be freed now" in answer) is not past
            assert (
                "# No finding waits for a decision: 2 have expired." in said["findings"]
            ) is past
            banners = [part.value for part in pages["overview"].warning]
            assert any("Run `trimtab doctor`" in text for text in banners) is past
            facts = urgent_facts(store.reader, now=at, settings=Settings())
            assert [fact.about for fact in facts] == ["readings"] * past


class Silent:
    """A source that answered up to `until`, and then not."""

    name = "prometheus p"

    def __init__(self, until: timedelta, *warnings: str) -> None:
        self.until, self.warnings = until, warnings

    def collect(self, window: Window) -> Collected:
        """Return an hour of samples, long before the end of the window."""
        found = make_collected(make_samples(end=window.end - self.until))
        report = replace(
            found.report,
            source=self.name,
            warnings=self.warnings,
            window_start=window.start,
            window_end=window.end,
        )
        return replace(found, report=report)


@pytest.mark.parametrize(
    ("until", "warnings", "short"),
    [
        (timedelta(minutes=2), (), False),
        (timedelta(minutes=2), ("a hint",), False),
        (timedelta(minutes=15), (), False),
        (timedelta(minutes=15), ("500",), True),
        (timedelta(days=12), (), True),
    ],
)
def test_a_source_that_ends_early_gives_the_time(
    until: timedelta, warnings: tuple[str, ...], *, short: bool
) -> None:
    """Its report says up to when it is complete; a step of 15 minutes is no shortfall."""
    window = Window(start=NOW - timedelta(days=14), end=NOW)
    (found,) = collect_all((Silent(until, *warnings),), window)
    assert found.report.state is SourceState.RAN
    assert is_incomplete(found.report) is short
    said = f"complete only up to {NOW - until:%Y-%m-%d %H:%M} UTC"
    assert found.report.reason.startswith(said) is short


@pytest.mark.parametrize(("hours", "told"), [(336.0, False), (350.0, True)])
def test_a_look_back_beyond_what_is_kept_is_told(
    store: Store, caplog: pytest.LogCaptureFixture, hours: float, *, told: bool
) -> None:
    """Both settings are named, with the hours that are asked for instead."""
    chosen = replace(Settings(), prometheus=replace(Settings().prometheus, lookback_hours=hours))
    world = replace(build_world(chosen, store=store), collectors=(Silent(timedelta()),))
    collect_and_keep(world, NOW)
    said = "prometheus.lookback_hours (350)" in caplog.text and "336 h" in caplog.text
    assert said is told
    assert ("retention.raw_days" in caplog.text) is told
    caplog.clear()
    collect_and_keep(world, NOW + timedelta(minutes=15))
    assert "prometheus.lookback_hours" not in caplog.text  # it is of the first collection alone
