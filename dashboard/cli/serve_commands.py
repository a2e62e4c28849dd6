"""`trimtab serve` and `trimtab fleet`: the commands that keep running."""

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial

from collectors.exposition_server import serve_exposition
from collectors.simulated_fleet import SimulatedFleet
from dashboard.apply import build_appliers
from dashboard.apply.cap_renewal import CapRenewal
from dashboard.apply.worker import Worker
from dashboard.background import Loop
from dashboard.cli.world import settings_of
from dashboard.cycle import World, run_cycle
from dashboard.desk import Desk
from dashboard.notify.deliver import Notifier
from dashboard.notify.report_rounds import ReportRounds
from dashboard.replanning import look_again
from dashboard.scheduler import CycleState, CycleThread
from dashboard.submission.watch import watch_all
from dashboard.wiring import build_world, sampling
from data.clock import utc_now
from data.load_settings import LoadedSettings
from data.settings import Settings
from data.store import Store, open_store

logger = logging.getLogger(__name__)

_WORKER_PAUSE = timedelta(milliseconds=250)
_NOTIFIER_PAUSE = timedelta(seconds=1)
_REPORT_PAUSE = _RENEWAL_PAUSE = timedelta(minutes=1)


def serve_world(
    loaded: LoadedSettings,
    store: Store,
    thread: CycleThread | None,
    settings: Callable[[], Settings],
    *,
    cycle_state: Callable[[], CycleState],
    clock: Callable[[], datetime] = utc_now,
    demo_pace: float | None = None,
) -> int:
    """Serve the pages and run the loops until told to stop; `clock` is the time of all of them.

    `demo_pace` is how fast the clock runs in the demo, None elsewhere.
    """
    from dashboard.web.server import serve as serve_web
    from dashboard.web.world import WebWorld

    appliers = partial(build_appliers, clock=clock)
    worker = Worker(store=store, settings=settings, appliers=appliers, clock=clock)
    notifier = Notifier(store=store, settings=settings, clock=clock)
    working = Loop("trimtab-apply", worker.work_once, _WORKER_PAUSE)
    telling = Loop("trimtab-notify", notifier.deliver_once, _NOTIFIER_PAUSE)
    rounds = ReportRounds(store=store, settings=settings, clock=clock)
    reporting = Loop("trimtab-reports", rounds.file_due, _REPORT_PAUSE)
    renewal = CapRenewal(store=store, settings=settings, clock=clock)
    renewing = Loop("trimtab-caps", renewal.renew_once, _RENEWAL_PAUSE)

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
        desk=Desk(store=store, settings=settings, appliers=appliers, clock=clock),
        cycle_state=cycle_state,
        worker_problem=lambda: working.last_error,
        run_lifespan=run_lifespan,
        clock=clock,
        demo_pace=demo_pace,
    )
    host, port = loaded.settings.serve.host, loaded.settings.serve.port
    print(f"Trimtab on http://{host}:{port} (Ctrl-C ends it)", file=sys.stderr)
    serve_web(web, host=host, port=port)
    return 0


def serve_overrides(options: argparse.Namespace) -> dict[str, str]:
    """Give the settings of the server that the command line names."""
    names = {"host": "serve.host", "port": "serve.port"}
    return {
        setting: str(value)
        for option, setting in names.items()
        if (value := getattr(options, option, None)) is not None
    }


def serve(options: argparse.Namespace) -> int:
    """Serve the dashboard and run a cycle every `serve.cycle_minutes` while sources exist."""
    loaded = settings_of(options, extra=serve_overrides(options))
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
            return serve_world(
                loaded,
                store,
                thread,
                lambda: settings_of(options, extra=serve_overrides(options)).settings,
                cycle_state=lambda: CycleState() if thread is None else thread.state,
            )


def _follow_and_cycle(world: World) -> None:
    """Look at the submitted jobs, so that a cycle that fails does not leave them unwatched."""
    for look in watch_all(world.store, world.settings, now=utc_now()):
        if look.error:
            logger.warning("submission %s: %s", look.submission.submission_id, look.error)
    run_cycle(world, now=utc_now())


def fleet(options: argparse.Namespace) -> int:
    """Serve the simulated fleet on /metrics until interrupted."""
    simulated = SimulatedFleet(seed=options.seed, nodes=options.nodes)
    print(f"fleet on http://{options.host}:{options.port}/metrics", file=sys.stderr)
    serve_exposition(simulated, options.host, options.port)
    return 0
