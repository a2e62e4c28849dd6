"""`trimtab serve`, `trimtab demo` and `trimtab fleet`: the commands that keep running."""

import argparse
import logging
import signal
import sys
import threading
from contextlib import ExitStack
from datetime import datetime, timedelta

from collectors.base import Window
from collectors.exposition_server import serve_exposition
from collectors.simulated_fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cli.cycle_commands import print_outcome
from dashboard.cli.health import answering_health
from dashboard.cli.serve_parts import Parts, claimed_parts
from dashboard.cli.world import progress_on_stderr, settings_of
from dashboard.cycle import World, run_cycle
from dashboard.desk import Desk
from dashboard.replanning import look_again
from dashboard.scheduler import CycleThread
from dashboard.submission.watch import watch_all
from dashboard.web.port import require_free_port
from dashboard.wiring import build_world, sampling
from data.clock import floor_to_slot, utc_now
from data.errors import TrimtabError
from data.load_settings import LoadedSettings
from data.store import open_store
from data.store.sole_holder import SoleHolder

logger = logging.getLogger(__name__)

DEMO_STORE = "duckdb:///.trimtab/demo.duckdb"
DEMO_STEP_SECONDS = 300


def _serve_web(loaded: LoadedSettings, parts: Parts) -> int:
    from dashboard.web.server import serve as serve_web
    from dashboard.web.world import WebWorld

    web = WebWorld(
        store=parts.store,
        settings=loaded,
        desk=Desk(store=parts.store, settings=parts.settings),
        cycle_state=parts.cycle_state,
        worker_problem=parts.worker_problem,
        run_lifespan=parts.running,
    )
    host, port = loaded.settings.serve.host, loaded.settings.serve.port
    print(f"Trimtab on http://{host}:{port} (Ctrl-C ends it)", file=sys.stderr)
    serve_web(web, host=host, port=port)
    return 0


def _serve_part(options: argparse.Namespace, loaded: LoadedSettings, parts: Parts) -> int:
    """Do one part without a page until SIGTERM or Ctrl-C; with --port, tell how it fares."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())

    def problem() -> str:
        try:
            for claim in parts.claims.values():
                claim.require()
        except TrimtabError as error:
            return str(error)
        return parts.working.last_error if options.only == "apply" else ""

    with ExitStack() as stack:
        if options.port is not None:
            serve_settings = loaded.settings.serve
            require_free_port(serve_settings.host, serve_settings.port)
            stack.enter_context(answering_health(serve_settings.host, serve_settings.port, problem))
        stack.enter_context(parts.running())
        print(f"Trimtab does the part {options.only} (Ctrl-C ends it)", file=sys.stderr)
        ended.wait()
    return 0


def _serve_overrides(options: argparse.Namespace) -> dict[str, str]:
    names = {"host": "serve.host", "port": "serve.port"}
    return {
        setting: str(value)
        for option, setting in names.items()
        if (value := getattr(options, option, None)) is not None
    }


def serve(options: argparse.Namespace) -> int:
    """Serve the dashboard, run a cycle every `serve.cycle_minutes` while sources exist, and apply.

    With `--only`, do one of the three.
    """
    extra = _serve_overrides(options)
    loaded = settings_of(options, extra=extra)
    with open_store(loaded.settings.store.url) as store, ExitStack() as stack:

        def cycles(claim: SoleHolder) -> CycleThread | None:
            world = build_world(loaded.settings, store=store, serving=True)
            stack.enter_context(sampling(world.collectors))
            return _cycle_thread(world, claim) if world.collectors else None

        parts = stack.enter_context(
            claimed_parts(
                store, options.only, lambda: settings_of(options, extra=extra).settings, cycles
            )
        )
        if options.only in ("cycle", "apply"):
            return _serve_part(options, loaded, parts)
        return _serve_web(loaded, parts)


def _cycle_thread(world: World, claim: SoleHolder) -> CycleThread:
    def follow_and_cycle() -> None:
        claim.require()
        _follow_and_cycle(world)

    return CycleThread(
        follow_and_cycle,
        timedelta(minutes=world.settings.serve.cycle_minutes),
        early=lambda: look_again(world, now=utc_now()),
        look_every=timedelta(minutes=world.settings.planning.slot_minutes),
    )


def _follow_and_cycle(world: World) -> None:
    """Look at the submitted jobs, so that a cycle that fails does not leave them unwatched."""
    for look in watch_all(world.store, world.settings, now=utc_now()):
        if look.error:
            logger.warning("submission %s: %s", look.submission.submission_id, look.error)
    run_cycle(world, now=utc_now())


def demo(options: argparse.Namespace) -> int:
    """Fill a store of its own from the simulated fleet, run a cycle, serve the dashboard."""
    extra = {"fleet.enabled": "true", "prometheus.step_seconds": str(DEMO_STEP_SECONDS)}
    if options.store is None:
        extra["store.url"] = DEMO_STORE
    loaded = settings_of(options, extra=extra | _serve_overrides(options))
    if not options.once:
        require_free_port(loaded.settings.serve.host, loaded.settings.serve.port)
    fleet_settings = loaded.settings.fleet
    fleet = SimulatedFleet(seed=fleet_settings.seed, nodes=fleet_settings.nodes)
    with open_store(loaded.settings.store.url) as store:
        with progress_on_stderr(options) as progress:
            now = floor_to_slot(utc_now(), DEMO_STEP_SECONDS)
            world = build_world(loaded.settings, store=store, progress=progress)
            _fill(world, fleet, now, options.days)
            print_outcome(run_cycle(world, now=now))
        if options.once:
            return 0
        pause = timedelta(minutes=loaded.settings.serve.cycle_minutes)
        quiet_world = build_world(loaded.settings, store=store)
        thread = CycleThread(lambda: run_cycle(quiet_world, now=utc_now()), pause)
        overrides = extra | _serve_overrides(options)
        with claimed_parts(
            store,
            None,
            lambda: settings_of(options, extra=overrides).settings,
            lambda _claim: thread,
        ) as parts:
            return _serve_web(loaded, parts)


def _fill(world: World, fleet: SimulatedFleet, now: datetime, days: int) -> None:
    """Keep the missing days of history, a day at a time, so that a second demo starts quickly."""
    collector = SimulatedFleetCollector(fleet=fleet, step_seconds=DEMO_STEP_SECONDS)
    latest = world.store.reader.latest_sample_at()
    start = now - timedelta(days=days)
    done_until = max(start, latest) if latest else start
    for day in range(days):
        end = start + timedelta(days=day + 1)
        if end > done_until:
            window = Window(start=max(done_until, end - timedelta(days=1)), end=end)
            world.store.keep(collector.collect(window))
        world.progress("fill", day + 1, days)


def fleet(options: argparse.Namespace) -> int:
    """Serve the simulated fleet on /metrics until interrupted."""
    simulated = SimulatedFleet(seed=options.seed, nodes=options.nodes)
    print(f"fleet on http://{options.host}:{options.port}/metrics", file=sys.stderr)
    serve_exposition(simulated, options.host, options.port)
    return 0
