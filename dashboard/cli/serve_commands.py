"""`trimtab serve`, `trimtab demo` and `trimtab fleet`: the commands that keep running."""

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta

from collectors.base import Window
from collectors.exposition_server import serve_exposition
from collectors.simulated_fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.apply.cap_renewal import CapRenewal
from dashboard.apply.worker import Worker
from dashboard.background import Loop
from dashboard.cli.cycle_commands import print_outcome
from dashboard.cli.world import progress_on_stderr, settings_of
from dashboard.cycle import World, run_cycle
from dashboard.desk import Desk
from dashboard.notify.deliver import Notifier
from dashboard.notify.report_rounds import ReportRounds
from dashboard.replanning import look_again
from dashboard.scheduler import CycleState, CycleThread
from dashboard.submission.watch import watch_all
from dashboard.web.port import require_free_port
from dashboard.wiring import build_world, sampling
from data.clock import floor_to_slot, utc_now
from data.load_settings import LoadedSettings
from data.settings import Settings
from data.store import open_store

logger = logging.getLogger(__name__)

DEMO_STORE = "duckdb:///.trimtab/demo.duckdb"
DEMO_STEP_SECONDS = 300
_WORKER_PAUSE = timedelta(milliseconds=250)
_NOTIFIER_PAUSE = timedelta(seconds=1)
_REPORT_PAUSE = _RENEWAL_PAUSE = timedelta(minutes=1)


def _serve_world(
    loaded: LoadedSettings,
    world: World,
    thread: CycleThread | None,
    settings: Callable[[], Settings],
) -> int:
    from dashboard.web.server import serve as serve_web
    from dashboard.web.world import WebWorld

    store = world.store
    worker = Worker(store=store, settings=settings)
    notifier = Notifier(store=store, settings=settings)
    working = Loop("trimtab-apply", worker.work_once, _WORKER_PAUSE)
    telling = Loop("trimtab-notify", notifier.deliver_once, _NOTIFIER_PAUSE)
    rounds = ReportRounds(store=store, settings=settings)
    reporting = Loop("trimtab-reports", rounds.file_due, _REPORT_PAUSE)
    renewal = CapRenewal(store=store, settings=settings)
    renewing = Loop("trimtab-caps", renewal.renew_once, _RENEWAL_PAUSE)

    def cycle_state() -> CycleState:
        return CycleState() if thread is None else thread.state

    @contextmanager
    def run_lifespan() -> Iterator[None]:
        with ExitStack() as stack:
            if thread is not None:
                stack.enter_context(thread.running())
            stack.enter_context(telling.running())
            stack.enter_context(reporting.running())
            stack.enter_context(renewing.running())
            stack.enter_context(working.running())
            yield

    web = WebWorld(
        store=store,
        settings=loaded,
        desk=Desk(store=store, settings=settings),
        cycle_state=cycle_state,
        worker_problem=lambda: working.last_error,
        run_lifespan=run_lifespan,
    )
    host, port = loaded.settings.serve.host, loaded.settings.serve.port
    print(f"Trimtab on http://{host}:{port} (Ctrl-C ends it)", file=sys.stderr)
    serve_web(web, host=host, port=port)
    return 0


def _serve_overrides(options: argparse.Namespace) -> dict[str, str]:
    names = {"host": "serve.host", "port": "serve.port"}
    return {
        setting: str(value)
        for option, setting in names.items()
        if (value := getattr(options, option, None)) is not None
    }


def serve(options: argparse.Namespace) -> int:
    """Serve the dashboard and run a cycle every `serve.cycle_minutes` while sources exist."""
    loaded = settings_of(options, extra=_serve_overrides(options))
    with open_store(loaded.settings.store.url) as store:
        world = build_world(loaded.settings, store=store, serving=True)
        thread = None
        if world.collectors:
            pause = timedelta(minutes=loaded.settings.serve.cycle_minutes)
            thread = CycleThread(
                lambda: _follow_and_cycle(world),
                pause,
                early=lambda: look_again(world, now=utc_now()),
                look_every=timedelta(minutes=loaded.settings.planning.slot_minutes),
            )
        with sampling(world.collectors):
            return _serve_world(
                loaded,
                world,
                thread,
                lambda: settings_of(options, extra=_serve_overrides(options)).settings,
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
        return _serve_world(
            loaded,
            quiet_world,
            thread,
            lambda: settings_of(options, extra=extra | _serve_overrides(options)).settings,
        )


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
