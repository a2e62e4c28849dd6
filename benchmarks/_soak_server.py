"""`trimtab serve` on a simulated fleet whose time a cycle moves on: cycle after cycle, no pause.

Pages, apply worker, notifier, reports and the local door run beside the cycles as they do in
`trimtab serve`; only the clock is another. The time reached goes to a file after each cycle.
"""

import argparse
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from collectors.shared.collector import Window
from dashboard.cli.operate.demo_command import DEMO_PACE
from dashboard.cli.operate.serve_commands import serve_pages
from dashboard.cli.operate.serve_roles import claimed_parts
from dashboard.cycle.cycle_thread import CycleThread
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from data.settings.load import load_settings
from data.store import open_store

START = datetime(2026, 1, 15, 9, tzinfo=UTC)
PAST = timedelta(days=2)


class SteppedClock:
    """A clock that stands until it is moved on."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def __call__(self) -> datetime:
        """Return its time, aware, in UTC."""
        return self._now

    def move_on(self, by: timedelta) -> datetime:
        """Move it on; return its time then."""
        self._now += by
        return self._now


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, required=True, help="between two cycles")
    parser.add_argument("--reached", type=Path, required=True, help="file for the time reached")
    options = parser.parse_args()
    loaded = load_settings(None, environ=os.environ)
    every, clock = timedelta(minutes=options.minutes), SteppedClock(START)
    with open_store(loaded.settings.store.url) as store:
        world = build_world(loaded.settings, store=store)
        for collector in world.collectors:
            store.keep(collector.collect(Window(start=START - PAST, end=START)))

        def turn() -> None:
            now = clock.move_on(every)
            run_cycle(world, now=now)
            options.reached.write_text(f"{(now - START) / timedelta(hours=1)}", encoding="utf-8")

        thread = CycleThread(turn, timedelta(0), clock=clock)
        with claimed_parts(
            store, None, lambda: loaded.settings, lambda _claim: thread, clock=clock
        ) as parts:
            serve_pages(loaded, parts, demo_pace=DEMO_PACE)


if __name__ == "__main__":
    main()
