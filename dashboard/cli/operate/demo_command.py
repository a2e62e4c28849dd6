"""`trimtab demo`: a week of a simulated fleet, then the dashboard on it, with a clock that runs.

Nothing outside this machine is asked or changed: of the user's own settings only those count that
say how to plan, what energy costs and where to listen. See docs/decisions/0006.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType

from collectors.shared.collector import Window
from collectors.simulated.cluster import cluster_of, simulated_collector
from collectors.simulated.layout import BOARDS_PER_NODE
from collectors.simulated.small_services import BOARDS
from dashboard.accounting.cost.prices import price_note
from dashboard.accounting.savings.ledger import sum_of
from dashboard.accounting.savings.shown_money import as_shown
from dashboard.cli.operate.cycle_commands import print_outcome
from dashboard.cli.operate.serve_commands import serve_overrides, serve_pages
from dashboard.cli.operate.serve_roles import claimed_parts
from dashboard.cli.terminal.context import FreshSettings, settings_of
from dashboard.common.figures import range_text
from dashboard.cycle.context import Progress, World
from dashboard.cycle.cycle_thread import CycleState, CycleThread
from dashboard.cycle.run_cycle import CycleOutcome, collect_and_keep, run_cycle
from dashboard.cycle.wiring import build_world
from dashboard.submission.submit.watch import watch_all
from dashboard.web.server.port import require_free_port
from data.base.clock import PacedClock, floor_to_slot, utc_now
from data.base.compiled import compiling
from data.base.counts import count_text
from data.base.errors import SettingsError
from data.base.extras import require_extra
from data.base.state_folder import state_folder
from data.settings.access import AccessSettings, is_loopback
from data.settings.all_settings import Settings
from data.settings.fleet import PowerDomain, TenantShare
from data.settings.load import LoadedSettings
from data.settings.sources import PrometheusSettings
from data.settings.submission import SubmitSettings
from data.store import open_store

STEP_SECONDS = 300
DEMO_PACE = 60.0
"""Simulated seconds in a second: an hour passes in a minute, a change is measured in about one."""
VERIFY_SLOTS = 2
_FEED_INTERVAL = timedelta(seconds=15)
"""Three steps of samples: what it costs to collect depends little on how many they are."""
_PLAN_INTERVAL = timedelta(hours=6)
"""Simulated: long enough to read a recommendation before the next plan replaces it."""
_STALE_MINUTES = 8 * 60.0
"""What a cycle foresaw of services counts until the next one has run."""
_RACKS = tuple(
    PowerDomain(name=f"rack {name}", nodes=f"*-000[{first}-{first + 3}]", limit_kw=20.0)
    for name, first in (("a", 0), ("b", 4))
)
_SHARES = (TenantShare(name="vision", quota=12, borrowable=6),)
"""One team of the simulated fleet holds more than its quota, and borrows."""
_EVERY_SECONDS = 5.0
_WORDS = MappingProxyType(
    {
        "fill": "days of samples",
        "collect": "sources asked",
        "roll up": "hours rolled up",
        "forecast": "jobs forecast",
        "forecast groups": "groups forecast",
        "plan": "steps of the plan",
        "keep": "kept",
    }
)


@dataclass(slots=True)
class StandingClock:
    """A clock that stands at `start` until it is let go, and then runs as the demo's time does."""

    start: datetime
    _running: PacedClock | None = field(default=None, init=False)

    def __call__(self) -> datetime:
        """Return its time, aware, in UTC."""
        return self.start if self._running is None else self._running()

    def let_go(self) -> None:
        """Let it run from where it stands."""
        self._running = PacedClock(start=self.start, pace=DEMO_PACE)


@dataclass(slots=True, kw_only=True)
class Feed:
    """Work of the running demo: a cycle at once, new samples, a cycle when it is due.

    `planned` is told what the first cycle found, before which nothing is `due`.
    """

    world: World
    clock: Callable[[], datetime]
    planned: Callable[[CycleOutcome], None]
    due: datetime | None = field(default=None, init=False)

    def turn(self) -> None:
        """Collect what is new, or run a whole cycle. Errors: TrimtabError."""
        now = self.clock()
        watch_all(self.world.store, self.world.settings, now=now)
        if self.due is not None and now < self.due:
            collect_and_keep(self.world, now)
            return
        outcome = run_cycle(self.world, now=now)
        if self.due is None:
            self.planned(outcome)
        self.due = self.clock() + _PLAN_INTERVAL


@dataclass(slots=True)
class ProgressLines:
    """Says what is being done: each stage when it begins, then every few seconds.

    `doing` is the latest of it, '' before anything began and after `end`.
    """

    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    doing: str = ""
    _has_ended: bool = field(default=False, init=False)
    _began: float = field(init=False)
    _said_at: float = field(init=False)
    _seen: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._began = self._said_at = self.clock()

    def at(self, stage: str, done: int, total: int) -> None:
        """Take note of the progress of a cycle."""
        amount = f"{done} of {total} " if total > 1 else ""
        self._tell(stage, f"{amount}{_WORDS.get(stage, stage)}")

    def compiled(self, count: int) -> None:
        """Take note that so many functions were compiled."""
        self._tell("compile", f"function {count} compiled and kept for the next start")

    def end(self) -> None:
        """Say nothing any more: a later cycle may compile what the first did not need."""
        self.doing, self._has_ended = "", True

    def _tell(self, stage: str, text: str) -> None:
        if self._has_ended:
            return
        now = self.clock()
        self.doing = f"{text}, {now - self._began:.0f} s so far"
        if stage not in self._seen or now - self._said_at >= _EVERY_SECONDS:
            self._seen.add(stage)
            self._said_at = now
            self.say(f"    {self.doing}")


def demo(options: argparse.Namespace) -> int:
    """Fill a store of its own from the simulated fleet, run a cycle, serve the dashboard."""

    def load() -> LoadedSettings:
        url = f"duckdb:///{state_folder(os.environ)}/demo.duckdb"
        extra = {"store.url": url} if options.store is None else {}
        return demo_settings(settings_of(options, extra=extra | serve_overrides(options)))

    def say(text: str) -> None:
        if not options.quiet:
            print(text, file=sys.stderr)

    loaded = load()
    settings = loaded.settings
    if options.days < 1:
        raise SettingsError(f"--days is {options.days}", "Give at least one day of history.")
    if not options.once:
        require_extra("pages", "`trimtab demo` without --once shows pages")
        require_free_port(settings.serve.host, settings.serve.port)
    boards = settings.simulated_fleet.nodes * BOARDS_PER_NODE + len(BOARDS)
    say(f"Trimtab on a simulated fleet of {boards} GPUs. Nothing outside this machine is touched.")
    with open_store(settings.store.url) as store:
        lines = ProgressLines(say)
        world = build_world(settings, store=store, progress=lines.at)
        now = _first_moment(world)
        say(f"1/3 {options.days} days of samples, up to {now:%Y-%m-%d %H:%M} UTC")
        _fill(world, now, options.days)
        place = "" if options.once else " while the pages below show what was collected"
        say(f"2/3 forecasts, a plan, recommendations{place} (slower the first time)")
        if options.once:
            with compiling(lines.compiled):
                print_outcome(run_cycle(world, now=now), settings)
            return 0
        clock = StandingClock(now)

        def planned(outcome: CycleOutcome) -> None:
            feed.world = replace(world, progress=thread.at)
            clock.let_go()
            lines.end()
            say(f"3/3 {_worth(outcome, settings)}")

        feed = Feed(world=world, clock=clock, planned=planned)
        thread = CycleThread(feed.turn, _FEED_INTERVAL)
        feed.world = replace(world, progress=_both(lines.at, thread.at))
        fresh = FreshSettings(options, lambda: load().settings)
        with (
            compiling(lines.compiled),
            claimed_parts(store, None, fresh, lambda _claim: thread, clock=clock) as parts,
        ):
            return serve_pages(
                loaded,
                parts,
                cycle_state=lambda: _in_demo_time(thread.state, feed, lines),
                demo_pace=DEMO_PACE,
            )


def demo_settings(loaded: LoadedSettings) -> LoadedSettings:
    """Return demo's settings: of the user's own, what reaches neither a source nor a cluster."""
    base = loaded.settings
    # Elsewhere than on loopback nobody is known, so everybody may look and nobody may apply.
    alone = is_loopback(base.serve.host)
    fleet = replace(
        base.simulated_fleet,
        enabled=True,
        small_services=True,
        state_file=base.simulated_fleet.state_file or f"{_stem(base.store.url)}-cluster.json",
    )
    settings = Settings(
        store=base.store,
        serve=base.serve,
        planning=base.planning,
        energy=base.energy,
        retention=base.retention,
        tenants=replace(base.tenants, shares=_SHARES),
        power=base.power if base.power.domains else replace(base.power, domains=_RACKS),
        serving=replace(
            base.serving, stale_minutes=max(base.serving.stale_minutes, _STALE_MINUTES)
        ),
        prometheus=PrometheusSettings(step_seconds=STEP_SECONDS),
        simulated_fleet=fleet,
        apply=replace(base.apply, enabled=alone, verify_slots=VERIFY_SLOTS, auto_rollback=True),
        submit=SubmitSettings(enabled=alone),
        access=AccessSettings(mode="local" if alone else "open"),
    )
    origins = {
        name: origin if _value(settings, name) == _value(base, name) else "demo"
        for name, origin in loaded.origins.items()
    }
    return LoadedSettings(settings=settings, origins=origins)


def _value(settings: Settings, name: str) -> object:
    section, _, field_name = name.partition(".")
    return getattr(getattr(settings, section), field_name)


def _stem(url: str) -> Path:
    """Return the store's file without its ending; a place of its own for a store on a server."""
    file, _, path = url.partition(":///")
    return (
        Path(path).with_suffix("") if file == "duckdb" else Path(state_folder(os.environ)) / "demo"
    )


def _first_moment(world: World) -> datetime:
    """Return the time that the demo starts at: now, or where an earlier one has got to."""
    latest = world.store.reader.latest_sample_at()
    if latest is None:
        cluster_of(world.settings.simulated_fleet).forget()
    return floor_to_slot(max(utc_now(), latest or utc_now()), STEP_SECONDS)


def _fill(world: World, now: datetime, days: int) -> None:
    """Keep the missing days of history, a day at a time, so that a second demo starts quickly."""
    collector = simulated_collector(world.settings)
    latest = world.store.reader.latest_sample_at()
    start = now - timedelta(days=days)
    done_until = max(start, latest) if latest else start
    for day in range(days):
        end = start + timedelta(days=day + 1)
        if end > done_until:
            window = Window(start=max(done_until, end - timedelta(days=1)), end=end)
            world.store.keep(collector.collect(window))
        world.progress("fill", day + 1, days)


def _worth(outcome: CycleOutcome, settings: Settings) -> str:
    """Return the result of the first cycle in words."""
    costs = (as_shown(item, settings).savings.cost for item in outcome.recommendations)
    worth = sum_of([cost for cost in costs if cost is not None])
    if worth is None:
        return "nothing to recommend: the plan keeps every job as it is"
    return (
        f"{count_text(len(outcome.recommendations), 'recommendation')}, together worth "
        f"{range_text(worth)} a day{price_note(settings)}"
    )


def _both(first: Progress, second: Progress) -> Progress:
    """Return the progress that tells both."""

    def tell(stage: str, done: int, total: int) -> None:
        first(stage, done, total)
        second(stage, done, total)

    return tell


def _in_demo_time(state: CycleState, feed: Feed, lines: ProgressLines) -> CycleState:
    """Return the thread's state with the time of the next cycle on the demo's clock."""
    return replace(state, last_finished_at=None, next_at=feed.due, doing=lines.doing)
