"""A figure that stands in several places is the same in each: pages, API, commands, report.

Of drawn fleets, of fleets in unhappy states, and of recordings in the formats that people make,
every figure is collected by its name and time.
"""

import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from beds.api_clients import LOCAL, clients
from beds.page_world import page_at, register_world
from beds.stated_time import clock_at
from factories import NOW as CREATED
from factories import make_collected, make_samples
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cli import main
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from dashboard.reports.week.week import week_to
from dashboard.reports.week.weekly_report import make_weekly_report
from data.records.actions import ADVICE, Action
from data.settings.all_settings import Settings
from data.settings.store import StoreSettings
from data.store import StoreReader, open_store

pytestmark = pytest.mark.slow
NOW = datetime(2026, 3, 4, 14, tzinfo=UTC)
HAPPY, SILENT_NODE, NO_PLAN = "happy", "a node is silent", "no plan"
DCGM, SMI = "recorded by dcgm-exporter", "recorded by nvidia-smi"
MAPS = {
    DCGM: """
source = "dcgm"
[time]
column = "timestamp"
unit = "milliseconds"
start = "1970-01-01T00:00:00Z"
[columns]
job_id = { column = "pod" }
node = { column = "Hostname" }
gpu_uuid = { column = "UUID" }
gpu_index = { column = "gpu" }
gpu_model = { column = "modelName" }
mig_instance = { column = "GPU_I_ID" }
mig_profile = { column = "GPU_I_PROFILE" }
utilization_ratio = { column = "DCGM_FI_DEV_GPU_UTIL", unit = "percent" }
memory_used_mib = { column = "DCGM_FI_DEV_FB_USED", unit = "mib" }
power_watts = { column = "DCGM_FI_DEV_POWER_USAGE", unit = "watts" }
[constants]
utilization_signal = "gpu_util"
""",
    SMI: """
source = "nvidia-smi"
[time]
column = "timestamp"
format = "%Y/%m/%d %H:%M:%S.%f"
timezone = "UTC"
[columns]
job_id = { column = "uuid", prefix = "board/" }
gpu_uuid = { column = "uuid" }
gpu_index = { column = "index" }
gpu_model = { column = "name" }
utilization_ratio = { column = "utilization.gpu [%]", unit = "percent" }
memory_used_mib = { column = "memory.used [MiB]", unit = "mib" }
memory_total_mib = { column = "memory.total [MiB]", unit = "mib" }
power_watts = { column = "power.draw [W]", unit = "watts" }
[constants]
node = "workstation"
utilization_signal = "gpu_util"
""",
}
NUMBER = r"([\d,]+(?:\.\d+)?)"
USAGE = rf"{NUMBER} of {NUMBER} GPUs? (?:is|are|was|were) allocated, {NUMBER} (?:are|were) in use"
FLEET = rf"{NUMBER} GPUs?.* on .*: {NUMBER} allocated, {NUMBER} in use, {NUMBER} allocated but idle"
IDLE = rf"{NUMBER} (?:are|were) forecast to be idle: {NUMBER} can be freed now"
SENTENCE = (
    rf"{NUMBER} are forecast to be idle: {NUMBER} are free now.*?; {NUMBER} after a change.*?"
    rf"{NUMBER} are needed"
)
WORTH = rf"{NUMBER} \((-?[\d,.]+)(?:–| to )(-?[\d,.]+)\) EUR a day"
WORTHS = tuple(f"EUR a day {bound}, findings to decide" for bound in ("central", "low", "high"))
HOURS = rf"{NUMBER} of all {NUMBER} GPU-hours of the last 24 h were idle"
ROUNDING = {"GPUs": 0.051, "GPU-h": 0.0051, "EUR": 0.51}
"""One decimal of GPUs; three digits of GPU-hours, in parts of the figure; whole EUR."""

Place = tuple[str, float]
Figures = dict[tuple[str, str], list[Place]]


def draw(url: str, seed: int, state: str) -> Settings:
    """Keep two days of a drawn fleet, and run a cycle on them."""
    settings = Settings(store=StoreSettings(url=url))
    world = build_world(settings)
    source = SimulatedFleetCollector(
        fleet=SimulatedFleet(seed=seed, nodes=2 + seed % 3), step_seconds=300
    )
    told = source.collect(Window(start=NOW - timedelta(days=2), end=NOW))
    assert told.samples is not None
    if state in MAPS:
        return recorded(url, told.samples, state)
    if state == SILENT_NODE:
        late = told.samples["sampled_at"] > NOW - timedelta(minutes=40)
        silent = late & (told.samples["node"] == told.samples["node"].min())
        told = replace(told, samples=told.samples[~silent].reset_index(drop=True))
    with world.store as store:
        store.keep(told)
        if state != NO_PLAN:
            run_cycle(world, now=NOW)
    return settings


def recorded(url: str, samples: pd.DataFrame, state: str) -> Settings:
    """Import what a program would have written of these boards, and run a cycle as of its end."""
    folder = Path(url.removeprefix("duckdb:///")).parent
    percent, watts = samples["utilization_ratio"] * 100, samples["power_watts"].round(2)
    used = samples["memory_used_mib"].round()
    if state == DCGM:
        written = pd.DataFrame({
            "timestamp": samples["sampled_at"].astype("datetime64[ms, UTC]").astype("int64"),
            "Hostname": samples["node"], "UUID": samples["gpu_uuid"], "gpu": samples["gpu_index"],
            "modelName": samples["gpu_model"], "pod": samples["job_id"],
            "GPU_I_ID": samples["mig_instance"], "GPU_I_PROFILE": samples["mig_profile"],
            "DCGM_FI_DEV_GPU_UTIL": percent.round(), "DCGM_FI_DEV_FB_USED": used,
            "DCGM_FI_DEV_POWER_USAGE": watts,
        })  # fmt: skip
    else:
        times = samples["sampled_at"].dt.strftime("%Y/%m/%d %H:%M:%S.000")
        written = pd.DataFrame({
            "timestamp": times, "uuid": samples["gpu_uuid"], "index": samples["gpu_index"],
            "name": samples["gpu_model"],
            "utilization.gpu [%]": percent.round().map("{:.0f} %".format),
            "memory.used [MiB]": used.map("{:.0f} MiB".format),
            "memory.total [MiB]": samples["memory_total_mib"].map("{:.0f} MiB".format),
            "power.draw [W]": watts.map("{:.2f} W".format),
        })[samples["mig_instance"].eq("")]  # fmt: skip
    written.to_csv(folder / "recording.csv", index=False)
    (folder / "map.toml").write_text(MAPS[state], encoding="utf-8")
    trace = [str(folder / "recording.csv"), "--map", str(folder / "map.toml")]
    command(url, "import", *trace)
    command(url, "cycle")
    return Settings(store=StoreSettings(url=url))


def figure(text: str) -> float:
    """The number that a text holds."""
    return float(text.replace(",", ""))


class Collection:
    """Every figure by name and time, with where it stands."""

    def __init__(self) -> None:
        self.figures: Figures = defaultdict(list)

    def take(self, where: str, pattern: str, text: str, *names: str) -> None:
        """Take the numbers of a pattern as these figures; without a match nothing is said."""
        match = re.search(pattern, text)
        for name, value in zip(names, match.groups() if match else (), strict=bool(match)):
            self.note(where, name, figure(value))

    def note(self, where: str, name: str, value: float) -> None:
        """Take one figure, `name` being what it is and its time."""
        self.figures[tuple(name.split(", ", 1))].append((where, value))  # type: ignore[index]

    def differences(self) -> list[str]:
        """The figures that have two values."""
        wrong = []
        for (name, time), places in self.figures.items():
            values = [value for _where, value in places]
            unit = next((unit for unit in ("GPU-h", "EUR") if unit in name), "GPUs")
            room = ROUNDING[unit] * (max(values) if unit == "GPU-h" else 1) * 2
            if max(values) - min(values) > room:
                wrong.append(f"{name} ({time}): {places}")
        return wrong


def words_of(app: AppTest) -> str:
    """What a page says, its escapes taken away."""
    assert not app.exception
    parts = [*app.markdown, *app.caption, *app.metric]
    return "\n".join(str(part.value).replace("\\", "") for part in parts)


def collect(url: str, settings: Settings) -> Collection:
    """Every figure of the fleet's use, now, ahead and of the last day, wherever it stands."""
    all_of_it = Collection()
    ahead = ("forecast idle GPUs, ahead", "free now GPUs, ahead", "after a change GPUs, ahead")
    use = ("GPUs allocated, now", "GPUs, now", "GPUs in use, now")
    with open_store(url) as store:
        register_world(store, settings, clock=lambda: NOW)
        views: dict[str, dict[str, str]] = {
            "overview": {}, "findings": {}, "fleet": {}, "jobs": {"show": "ever seen"},
        }  # fmt: skip
        drawn = {view: page_at(view, **words).run() for view, words in views.items()}
        pages = {view: words_of(app) for view, app in drawn.items()}
        overview = pages["overview"]
        all_of_it.take("Overview", USAGE, overview, *use)
        all_of_it.take("Overview, figure", rf"\n{NUMBER} of {NUMBER}\n", overview, use[2], use[1])
        all_of_it.take(
            "Overview, note", rf"{NUMBER} allocated but idle", overview, "GPUs idle, now"
        )
        all_of_it.take("Fleet", FLEET, pages["fleet"], use[1], use[0], use[2], "GPUs idle, now")
        all_of_it.take("Overview", IDLE, overview, *ahead[:2])
        hours = ("idle GPU-h, last day", "allocated GPU-h, last day")
        all_of_it.take("Jobs", HOURS, pages["jobs"], *hours)
        all_of_it.take("Overview", rf"\n{NUMBER} GPU-h\n", overview, hours[0])
        plan = store.reader.latest_plan()
        for place in ("overview", "findings") if plan else ():
            for name, segment in (("free now", "can be freed now"), ("after a change", "after a")):
                all_of_it.take(
                    f"{place}, bar", rf"{NUMBER} GPUs {segment}", bar(drawn[place]),
                    f"{name} GPUs, ahead",
                )  # fmt: skip
            words = pages[place]
            all_of_it.take(f"{place}, headline", f"# .*worth {WORTH}", words, *WORTHS)
            all_of_it.take(f"{place}, headline", IDLE, words, *ahead[:2])
            if "can be freed now" in bar(drawn[place]):  # its first part
                all_of_it.take(f"{place}, bar", rf"jobs? · [a-z ]*{WORTH}", words, *WORTHS)
        with clients(store, LOCAL, lambda: NOW, settings=settings) as client:
            api = client(peer="127.0.0.1")
            span = f"from={NOW - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}&to={NOW:%Y-%m-%dT%H:%M:%SZ}"
            total = api.get(f"/api/v1/energy?by=fleet&{span}").json()["total"]
            all_of_it.note("API", hours[0], total["idle_gpu_hours"])
            all_of_it.note("API", hours[1], total["gpu_hours"])
            at_work = "score's high of GPU-h, week"
            all_of_it.take("Overview", rf"–{NUMBER} %; \S+ %? ?the week before", overview, at_work)
            all_of_it.note("API", at_work, api.get("/api/v1/score").json()["share"]["high"])
            note_week(all_of_it, store.reader, settings, api)
            if plan:
                rows = api.get("/api/v1/idle").json()
                sums = [sum(row[key] or 0.0 for row in rows) for key in ("idle", "freed", "after")]
                for name, value in zip(ahead, sums, strict=True):
                    all_of_it.note("API", name, value)
                every = api.get("/api/v1/findings?state=open").json()["items"]
                note_worth(all_of_it, "API", [row["revision"] for row in every])
                week = api.get("/api/v1/reports/weekly").json()["recommendations"]
                waiting = [row for row in week if row["state"] == "proposed"]
                note_worth(all_of_it, "report", waiting)
    all_of_it.take(
        "command", rf"–{NUMBER}\) % of the GPU-hours bought", command(url, "score"), at_work
    )
    if plan:
        rows = json.loads(command(url, "findings", "list", "--state", "open", "--format", "json"))
        note_worth(all_of_it, "command", [row["revision"] for row in rows])
        all_of_it.take(
            "command", SENTENCE, command(url, "findings", "idle"), *ahead, "needed, ahead"
        )
    return all_of_it


def note_worth(all_of_it: Collection, where: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Take the worth of the findings to decide on with its range, as rows add up."""
    for name in WORTHS:
        bound = name.removeprefix("EUR a day ").partition(",")[0]
        money = [
            row["savings"]["cost"][bound] * 24 / max(24, row["savings"]["horizon_hours"])
            for row in rows
            if row["savings"]["cost"] and Action(row["action"]) not in ADVICE
        ]
        all_of_it.note(where, name, sum(money))


def note_week(
    all_of_it: Collection, reader: StoreReader, settings: Settings, api: TestClient
) -> None:
    """Take the idle GPU-hours of the week that the report and the API say."""
    week = week_to(NOW, "UTC")
    report = make_weekly_report(
        reader,
        week=week,
        settings=settings,
    )
    name = "idle GPU-h, week"
    all_of_it.note("report", name, sum(row.idle_gpu_hours for row in report.waste))
    span = f"from={week.start:%Y-%m-%dT%H:%M:%SZ}&to={week.end:%Y-%m-%dT%H:%M:%SZ}"
    total = api.get(f"/api/v1/energy?by=fleet&{span}").json()["total"]
    all_of_it.note("API", name, total["idle_gpu_hours"])


def bar(app: AppTest) -> str:
    """What the bar of idle GPUs of a page says to who hears it."""
    return "\n".join(str(part.body) for part in app.get("html"))


def command(url: str, *words: str) -> str:
    """What a command prints, on one line."""
    with redirect_stdout(StringIO()) as said:
        assert main(["--quiet", "--store", url, *words]) in (0, 3)
    return " ".join(said.getvalue().split())


CASES = [(1, HAPPY), (2, SILENT_NODE), (3, NO_PLAN), (1, DCGM), (2, SMI)]
"""In every run; ten fleets at the slow end."""
MORE = [(seed, HAPPY) for seed in range(4, 12)]


@pytest.mark.parametrize(
    ("seed", "state"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow_end) for case in MORE)],
)
def test_no_figure_has_two_values(
    seed: int, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever says it, and however the fleet fares; each stands in two places at least."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with clock_at(NOW):
        collection = collect(url, draw(url, seed, state))
    assert collection.differences() == []
    twice = [name for name, places in collection.figures.items() if len(places) > 1]
    assert len(twice) >= (6 if state == NO_PLAN else 10), collection.figures
    assert len(collection.figures["score's high of GPU-h", "week"]) == 3


def test_three_minutes_say_nothing_of_the_day_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody watched is unknown: a dash, and no zero; what is known of now is said."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        store.keep(make_collected(make_samples(gpus=2, minutes=3)))
        register_world(store, Settings(), clock=lambda: CREATED)
        overview, findings = page_at("overview").run(), page_at("findings").run()
    said = words_of(overview)
    assert "— the day before" in said
    assert re.search(USAGE, said)
    assert "no plan has been made yet" in said
    # From the first sample to the last.
    assert "History 2 min → reclaim of idle GPUs at" in said
    assert not overview.get("plotly_chart")
    assert "0 of 0 jobs" not in said
    assert "No plan has been made yet" in words_of(findings)
    assert not findings.info
    assert "search" not in words_of(findings).lower()


def test_a_difference_is_seen() -> None:
    """One GPU more, or a hundredth of the hours."""
    collection = Collection()
    for name, values in {"GPUs, now": (4.0, 5.0), "GPU-h, day": (100.0, 102.0)}.items():
        for value in values:
            collection.note("somewhere", name, value)
    assert len(collection.differences()) == 2
