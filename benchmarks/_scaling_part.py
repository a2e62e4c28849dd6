"""One part of a cycle on a stored fleet, in a process of its own: what it takes, as one JSON line.

`python -m benchmarks._scaling_part PART STORE NODES DAYS`, PART one of make, collect, forecast,
plan, page. The peak of memory is that of this process, Python and libraries included; of a page
that of the server.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa

from benchmarks._complete_report import complete_report
from benchmarks._stored_cycle import write_cycle
from benchmarks._stored_fleet import StoredFleet, next_samples, write_facts
from benchmarks._stored_fleet_sql import SOURCE
from benchmarks.pages import Server, measured, served
from data.base.units import BYTES_PER_MIB
from data.facts.collected import Collected
from data.facts.columns import SAMPLES, check_frame
from data.settings.all_settings import PlanningSettings, Settings
from data.store import open_store
from data.store.engine.duckdb_engine import open_engine
from data.store.engine.migrate import migrate
from forecasting.forecast import forecast_demand
from forecasting.groups.group_forecasts import forecast_groups

END = datetime(2026, 1, 15, 10, tzinfo=UTC)
SLOT_SECONDS = 60 * PlanningSettings().slot_minutes
CYCLE_SLOTS = 3
"""Slots of five minutes in a cycle of `server.cycle_minutes`."""
VIEWS = ("overview", "fleet", "jobs", "plan")
Found = dict[str, Any]


def fleet_of(nodes: int, days: int) -> StoredFleet:
    """Return the fleet; five-minute rows of all its days, as default retention keeps them."""
    return StoredFleet(
        seed=7, nodes=nodes, days=days, end=END, five_minute_days=days, sample_hours=1
    )


def settings_of() -> Settings:
    """Return the defaults on one thread, so that CPU time is what one core takes."""
    settings = Settings()
    return replace(settings, planning=replace(settings.planning, budget_seconds=60.0))


def make(path: Path, nodes: int, days: int) -> Found:
    """Write the fleet, and keep its history as the cycles of these days would have."""
    engine = open_engine(path, create=True)
    migrate(engine)
    with engine.begin() as connection:
        write_facts(connection, fleet_of(nodes, days))
    engine.dispose()
    with open_store(f"duckdb:///{path}") as store:
        return timed(lambda: store.keep_history(slot_seconds=SLOT_SECONDS))


def collect(path: Path, nodes: int, days: int) -> Found:
    """Keep the samples of the next cycle, one a minute: merge and roll-ups."""
    fleet = fleet_of(nodes, days)
    source = sa.create_engine("duckdb:///:memory:")
    with source.connect() as connection:
        samples = next_samples(connection, fleet, CYCLE_SLOTS)
    source.dispose()
    with open_store(f"duckdb:///{path}") as store:
        end = END + timedelta(minutes=5 * CYCLE_SLOTS)
        report = complete_report(SOURCE, len(samples), start=END, end=end)
        batch = Collected(
            batch_id="next cycle", samples=check_frame(samples, SAMPLES), report=report
        )
        found = timed(lambda: (store.keep(batch), store.keep_history(slot_seconds=SLOT_SECONDS)))
    return found | {"rows": len(samples)}


def forecast(path: Path, _nodes: int, _days: int) -> Found:
    """Read what is planned on and forecast every running job, bands and group totals included."""
    planning = settings_of().planning
    with open_store(f"duckdb:///{path}") as store:
        started = time.process_time()
        view = store.reader.planning_view(
            END, slot_seconds=SLOT_SECONDS, history_days=planning.history_days
        )
        read = time.process_time() - started
    found = timed(
        lambda: (
            forecast_demand(view.history, jobs=view.jobs, as_of=view.as_of, settings=planning),
            forecast_groups(view.groups, as_of=view.as_of, jobs=view.known_jobs, settings=planning),
        )
    )
    return found | {
        "cpu": found["cpu"] + read,
        "read": read,
        "jobs": len(view.jobs),
        "running": sum(job.scheduler is None or job.scheduler.ended_at is None
                       for job in view.jobs),
    }  # fmt: skip


def plan(path: Path, _nodes: int, _days: int) -> Found:
    """Make the problem, plan, recommend and keep; forecasts are patterns made for a few jobs."""
    stages: dict[str, float] = {}
    last = [time.process_time()]

    def passed(stage: str) -> None:
        now = time.process_time()
        stages[stage] = now - last[0]
        last[0] = now

    with open_store(f"duckdb:///{path}") as store:
        found = timed(lambda: write_cycle(store, now=END, settings=settings_of(), passed=passed))
        stored = store.reader.latest_plan()
    cpu = sum(stages[name] for name in ("problem", "plan", "advice", "kept"))
    gap = stored.gap_ratio if stored else None
    planned = len(stored.jobs) if stored else 0
    return found | {"cpu": cpu, "stages": stages, "gap": gap, "planned": planned}


def page(path: Path, _nodes: int, _days: int) -> Found:
    """Open views of a real server, once cold and then warm; the slowest of each counts."""
    with TemporaryDirectory() as place, served(path, Path(place)) as server:
        made = [measured(server, view, "", 1) for view in VIEWS]
        peak = _peak_of(server)
    errors = [text for entry in made for answer in entry.answers for text in answer.errors]
    if errors:
        raise RuntimeError(errors[0])
    return {
        "cpu": max(entry.cpu_seconds[0] for entry in made),
        "wall": max(entry.answers[0].seconds for entry in made),
        "warm": max(min(entry.cpu_seconds[1:]) for entry in made),
        "peak_mib": peak,
        "views": {entry.view: entry.cpu_seconds[0] for entry in made},
    }


def _peak_of(server: Server) -> float:
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8")
    kibibytes = next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]
    return int(kibibytes) / 1024


def timed(work: Callable[[], object]) -> Found:
    """Return the seconds of some work, of the clock and of all cores."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


PARTS: dict[str, Callable[[Path, int, int], Found]] = {
    "make": make,
    "collect": collect,
    "forecast": forecast,
    "plan": plan,
    "page": page,
}


def main() -> None:
    """Print what the part took."""
    part, store, nodes, days = sys.argv[1:]
    path = Path(store)
    found = PARTS[part](path, int(nodes), int(days))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = sum(entry.stat().st_size for entry in path.parent.glob(f"{path.name}*")) / BYTES_PER_MIB
    print(json.dumps({"peak_mib": peak, "disk_mib": size} | found))


if __name__ == "__main__":
    main()
