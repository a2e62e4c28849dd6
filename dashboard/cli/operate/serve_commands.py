"""`trimtab serve` and `trimtab demo-exporter`: the commands that keep running."""

import argparse
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from collectors.simulated.exposition import serve_exposition
from collectors.simulated.fleet import SimulatedFleet
from dashboard.cli.operate.serve_roles import Parts, claimed_parts
from dashboard.cli.terminal.context import FreshSettings, settings_of
from dashboard.common.child_process import ChildProcess
from dashboard.common.replay_clock import present
from dashboard.cycle.context import World
from dashboard.cycle.cycle_thread import CycleState, CycleThread
from dashboard.cycle.wiring import build_world, sampling
from dashboard.decisions.service import DecisionService
from dashboard.submission.submit.watch import watch_all
from dashboard.web.server.port import require_free_port
from data.base.clock import utc_now
from data.base.errors import TrimtabError
from data.base.extras import absent_module, install_command
from data.facts.fleet import Recording
from data.settings.load import LoadedSettings, files_read
from data.store import open_store
from data.store.engine.process_locks import SoleHolder

logger = logging.getLogger(__name__)
_LOOK_FOR_IMPORTS = timedelta(seconds=10)
_SIGNAL_SECONDS = 0.5


def serve_pages(
    loaded: LoadedSettings,
    parts: Parts,
    *,
    cycle_state: Callable[[], CycleState] | None = None,
    demo_pace: float | None = None,
) -> int:
    """Serve the pages, and the parts behind them, until told to stop.

    `demo_pace` is how fast the clock of the parts runs in the demo, None elsewhere.
    """
    from dashboard.api.unix_socket import LocalDoor, local_app
    from dashboard.web.access.context import WebWorld
    from dashboard.web.access.local_peer import printed_address
    from dashboard.web.server.server import serve as serve_web

    host, port = loaded.settings.serve.host, loaded.settings.serve.port
    local = loaded.settings.access.mode == "local"
    address = printed_address(host, port) if local else f"http://{host}:{port}"

    @contextmanager
    def running() -> Iterator[None]:
        # A stop that is ordered once the address is printed finds the process that applies.
        with parts.running():
            print(f"Trimtab on {address} (Ctrl-C ends it)", file=sys.stderr)
            if absent_module("pages"):
                sentence = f"Its API alone: pages are not installed. {install_command('pages')}"
                print(sentence, file=sys.stderr)
                yield
                return
            from dashboard.web.server.first_answers import asking_first

            with asking_first(web).running():
                yield

    web = WebWorld(
        store=parts.store,
        settings=loaded,
        decision_service=DecisionService(
            store=parts.store,
            settings=parts.settings,
            appliers=parts.appliers,
            clock=parts.clock,
        ),
        cycle_state=cycle_state or parts.cycle_state,
        worker_problem=parts.worker_problem,
        run_lifespan=running,
        clock=parts.clock if demo_pace else partial(present, parts.store.reader_for_pages()),
        demo_pace=demo_pace,
    )
    require_free_port(host, port)
    with ExitStack() as stack:
        if (file := parts.store.file) is not None:
            door = LocalDoor(local_app(parts.store, web.decision_service, web.clock), file)
            stack.enter_context(door.running())
        print(f"Trimtab: {files_read(loaded)}", file=sys.stderr)
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
        # After a halt the signal may come just before this waits again, which then has no end.
        while not ended.wait(_SIGNAL_SECONDS):
            pass
    return 0


def serve_overrides(options: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the server that the command line names."""
    names = {"host": "serve.host", "port": "serve.port"}
    return {
        setting: str(value)
        for option, setting in names.items()
        if (value := getattr(options, option, None)) is not None
    }


def serve(options: argparse.Namespace) -> int:
    """Serve the dashboard, run a cycle every `serve.cycle_minutes` while sources exist, and apply.

    A store of recordings has one cycle at its end, and another one after a further import. With
    `--only`, do one of the three.
    """
    extra = serve_overrides(options)
    loaded = settings_of(options, extra=extra)
    with open_store(loaded.settings.store.url) as store, ExitStack() as stack:

        def cycles(claim: SoleHolder) -> CycleThread:
            child = ChildProcess()
            stack.callback(child.end)
            world = replace(build_world(loaded.settings, store=store), child=child)
            stack.enter_context(sampling(world.collectors))
            make = _cycle_thread if world.collectors else _recording_thread
            return make(world, claim)

        now = FreshSettings(options, lambda: settings_of(options, extra=extra).settings)
        parts = stack.enter_context(claimed_parts(store, options.only, now, cycles))
        if options.only in ("cycle", "apply"):
            return _serve_part(options, loaded, parts)
        return serve_pages(loaded, parts)


def _cycle_thread(world: World, claim: SoleHolder) -> CycleThread:
    def follow_and_cycle() -> None:
        claim.require()
        _follow_and_cycle(context)

    thread = CycleThread(follow_and_cycle, timedelta(minutes=world.settings.serve.cycle_minutes))
    context = replace(world, progress=thread.at)
    return thread


def _recording_thread(world: World, claim: SoleHolder) -> CycleThread:
    """Return the thread that plans a recording once, and again when more of it was imported."""
    planned: list[Recording] = []

    def plan_once() -> None:
        from dashboard.cycle.run_cycle import run_cycle

        claim.require()
        recording = context.store.reader.recording()
        if recording is not None and recording not in planned:
            run_cycle(context, now=recording.end)
            planned[:] = [recording]

    thread = CycleThread(plan_once, _LOOK_FOR_IMPORTS, keeps_time=False)
    context = replace(world, progress=thread.at)
    return thread


def _follow_and_cycle(world: World) -> None:
    """Look at the submitted jobs, so that a cycle that fails does not leave them unwatched."""
    from dashboard.cycle.run_cycle import (
        run_cycle,  # loads numba, SciPy and HiGHS: the pages come first
    )

    for look in watch_all(world.store, world.settings, now=utc_now()):
        if look.error:
            logger.warning("submission %s: %s", look.submission.submission_id, look.error)
    run_cycle(world, now=utc_now())


def demo_exporter(options: argparse.Namespace) -> int:
    """Serve the simulated fleet on /metrics until interrupted."""
    simulated = SimulatedFleet(seed=options.seed, nodes=options.nodes)
    print(f"fleet on http://{options.host}:{options.port}/metrics", file=sys.stderr)
    serve_exposition(simulated, options.host, options.port)
    return 0


def _handler(problem: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Answer(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            if self.path == "/livez":
                self._say(200, "text/plain", "ok\n")
            elif self.path == "/readyz":
                reason = problem()
                ready = {"ready": not reason} | ({"reason": reason} if reason else {})
                self._say(503 if reason else 200, "application/json", json.dumps(ready))
            else:
                self._say(404, "text/plain", "only /livez and /readyz are here\n")

        def _say(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            """Keep the log for what matters."""

    return Answer


@contextmanager
def answering_health(host: str, port: int, problem: Callable[[], str]) -> Iterator[None]:
    """Answer while the block runs; `problem` gives why the process is not ready, '' when it is."""
    server = ThreadingHTTPServer((host, port), _handler(problem))
    thread = threading.Thread(target=server.serve_forever, name="trimtab-health")
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
