"""A store of recordings lives in its own time: planned as of its end, told in the past tense."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
from beds.heard_trimtab import HeardTrimtab, heard_trimtab
from beds.page_world import page_at, register_world
from beds.ports import free_port
from factories import make_collected, make_samples
from streamlit.testing.v1 import AppTest

from dashboard.cli import main
from dashboard.common.escaping import markdown
from dashboard.common.replay_clock import long_time, present
from data.base.clock import floor_to_slot, utc_now
from data.facts.fleet import SourceState
from data.settings.all_settings import Settings
from data.store import Store, open_store

APP = Path(__file__).parents[2] / "dashboard/web/app.py"
AGES = [timedelta(hours=1), timedelta(days=1), timedelta(days=365)]
# Without summer time: its second hour at the end is read as no time, whenever that is.
ZONES = ["UTC", "Pacific/Marquesas", "Asia/Kolkata"]
VIEWS = [
    "overview", "fleet", "facility", "jobs", "job", "serving", "forecasts", "plan", "findings",
    "energy", "reports", "costs", "savings", "health",
]  # fmt: skip
NOT_OF_THE_PAST = (" ago", "trimtab cycle", "today", "are allocated", "Expires", "wait for")
MAP = """
source = "{source}"
[time]
column = "time"
format = "%Y-%m-%d %H:%M:%S"
timezone = "{zone}"
[columns.job_id]
column = "pod"
prefix = "old/"
[columns.gpu_uuid]
column = "pod"
prefix = "board-"
[columns.utilization_ratio]
column = "use"
unit = "percent"
confirmed = true
[columns.memory_used_mib]
column = "memory"
unit = "mib"
confirmed = true
[constants]
node = "n1"
gpu_model = "A100-SXM4-80GB"
utilization_signal = "gpu_util"
memory_total_mib = 81920.0
platform = "kubernetes"
kind = "inference"
"""


def ended(age: timedelta) -> datetime:
    """The last sample of a recording that ended so long ago."""
    return floor_to_slot(utc_now() - age, 300)


def imported(
    url: str, folder: Path, end: datetime, *, zone: str = "UTC", source: str = "old-cluster"
) -> None:
    """Import two idle pods and a busy one of the day before `end`, in the clock of a zone."""
    times = pd.date_range(end=end, periods=288, freq="5min").tz_convert(ZoneInfo(zone))
    written = times.strftime("%Y-%m-%d %H:%M:%S")
    rows = pd.concat(
        pd.DataFrame({"time": written, "pod": pod, "use": use, "memory": 9000.0})
        for pod, use in (("idle-1", 0.0), ("idle-2", 0.0), ("busy", 90.0))
    )
    rows.to_csv(folder / f"{source}.csv", index=False)
    (folder / "map.toml").write_text(MAP.format(source=source, zone=zone), encoding="utf-8")
    trace = [str(folder / f"{source}.csv"), "--map", str(folder / "map.toml")]
    assert main(["--quiet", "--store", url, "import", *trace]) == 0


def cycled(url: str) -> None:
    """Run `trimtab cycle` without a source."""
    assert main(["--quiet", "--store", url, "cycle", "--format", "json"]) == 0


def listed(url: str, capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], str]:
    """What `trimtab findings list` prints, and what it says beside it."""
    capsys.readouterr()
    assert main(["--store", url, "findings", "list", "--format", "json"]) == 0
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err


class Serving:
    """A `trimtab serve` without any source, and the cycles that it told of."""

    def __init__(self, heard: HeardTrimtab) -> None:
        self.heard = heard

    def cycles(self) -> int:
        """How many cycles have ended."""
        return sum(" ended in " in line for line in self.heard.lines)

    def wait_for_cycles(self, count: int) -> None:
        """Wait until so many cycles have ended."""
        self.heard.wait_until(lambda: self.cycles() >= count, f"{count} cycles")
        assert self.cycles() == count, self.heard.said


@contextmanager
def serving(url: str, folder: Path) -> Iterator[Serving]:
    """Serve until the block ends, and end as at a service manager's word."""
    words = ["--store", url, "serve", "--port", str(free_port())]
    with heard_trimtab(words, folder, folder / "said") as heard:
        yield Serving(heard)
        assert heard.end() == 0, heard.said


def drawn(store: Store, view: str, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """A page of the store, by the clock of the pages of `trimtab serve`."""
    # Streamlit puts the page in the place of `__main__`.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    settings = Settings()
    register_world(store, settings, clock=lambda: present(store.reader))
    job = {"job": next(iter(store.reader.jobs())).job_id} if view == "job" else {}
    app = page_at(view, **job)
    app.run()
    assert not app.exception
    return app


def said_on(app: AppTest) -> str:
    """All words of a page."""
    return "\n".join(
        str(entry.value) for entry in (*app.markdown, *app.caption, *app.info, *app.error)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("age", "zone"), list(zip(AGES, ZONES, strict=True)))
def test_serve_plans_a_recording_once_at_its_end(
    store_url: str,
    tmp_path: Path,
    age: timedelta,
    zone: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One cycle as of the last sample; its proposals stand, in the recording's own time."""
    end = ended(age)
    imported(store_url, tmp_path, end, zone=zone)
    with serving(store_url, tmp_path) as served:
        served.wait_for_cycles(1)
    with open_store(store_url) as store:
        last, plan = store.reader.last_cycle(), store.reader.latest_plan()
    assert last is not None
    assert plan is not None
    assert (last.started_at, plan.created_at) == (end, end)
    found, beside = listed(store_url, capsys)
    assert {entry["state"] for entry in found} == {"open"}
    assert f"As of {long_time(end)}, the end of the recording old-cluster" in beside


@pytest.mark.slow
@pytest.mark.postgres
def test_a_further_import_is_planned_and_nothing_is_for_nothing(
    postgres_url: str, tmp_path: Path
) -> None:
    """While `serve` runs: one cycle each for the first recording and for one that ends later."""
    first, second = ended(timedelta(days=30)), ended(timedelta(days=29, hours=12))
    imported(postgres_url, tmp_path, first)
    with serving(postgres_url, tmp_path) as served:
        served.wait_for_cycles(1)
        imported(postgres_url, tmp_path, second, source="later-cluster")
        served.wait_for_cycles(2)
    with open_store(postgres_url) as store:
        last = store.reader.last_cycle()
        assert last is not None
        assert last.started_at == second
        assert store.reader.counts()["cycles"] == 2


@pytest.mark.parametrize("age", AGES, ids=str)
@pytest.mark.parametrize("zone", ZONES)
def test_the_end_of_a_recording_is_its_present(
    store_url: str, tmp_path: Path, age: timedelta, zone: str
) -> None:
    """Whatever zone its times are written in, and however long ago it ended."""
    end = ended(age)
    imported(store_url, tmp_path, end, zone=zone)
    with open_store(store_url) as store:
        found = store.reader.recording()
        assert found is not None
        assert (found.names, found.end) == (("old-cluster",), present(store.reader))
        assert present(store.reader) == end or age == AGES[0]
        store.keep(make_collected(make_samples(minutes=1, end=utc_now())))
        assert store.reader.recording() is None, "a live source has today's clock"
        assert utc_now() - present(store.reader) < timedelta(minutes=1)


def test_a_live_source_that_only_failed_has_today_s_clock(store_url: str, tmp_path: Path) -> None:
    """A source that was asked and did not answer is connected all the same."""
    imported(store_url, tmp_path, ended(AGES[2]))
    with open_store(store_url) as store:
        given = make_collected(make_samples(minutes=1, end=ended(AGES[2])))
        failed = replace(given.report, state=SourceState.FAILED)
        store.keep(replace(given, report=failed, samples=given.samples.iloc[:0]))
        assert utc_now() - present(store.reader) < timedelta(minutes=1)


@pytest.mark.slow
def test_every_page_tells_a_recording_in_the_past_tense(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page names the recording and its end; none says how old it is or offers a decision."""
    end = ended(timedelta(days=365))
    imported(store_url, tmp_path, end)
    cycled(store_url)
    with open_store(store_url) as store:
        as_of = markdown(f"As of {long_time(end)}, the end of the recording old-cluster")
        wrong_words = {}
        for view in VIEWS:
            app = drawn(store, view, monkeypatch)
            words = said_on(app)
            buttons = [entry.label for entry in app.button]
            found = [wrong for wrong in NOT_OF_THE_PAST if wrong in words]
            found += [button for button in buttons if button.startswith(("Approve", "Reject"))]
            if as_of not in words:
                found.append("no end of the recording")
            wrong_words[view] = found
        assert not any(wrong_words.values()), wrong_words
        assert "would have" in said_on(drawn(store, "findings", monkeypatch))


def test_nothing_from_a_recording_can_be_applied(
    store_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every decision is refused, and the refusal names the recording."""
    imported(store_url, tmp_path, ended(timedelta(hours=1)))
    cycled(store_url)
    found, _beside = listed(store_url, capsys)
    assert found
    first = str(found[0]["revision"]["id"])
    for act in ("approve", "dismiss", "apply"):
        words = ["findings", act, first, "--by", "ada"]
        assert main(["--store", store_url, *words]) == 1
        assert "recording old-cluster" in capsys.readouterr().err
        assert {entry["state"] for entry in listed(store_url, capsys)[0]} == {"open"}
