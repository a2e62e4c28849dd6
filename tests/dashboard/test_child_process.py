"""The child of a server that plans: the same plan, its end in words or with its parent."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from beds.computed import allocated, broken, endless, killed, niceness, process_of, refused
from beds.demo_store import DEMO_END, demo_day
from browser.bed import running_server

from dashboard.api.unix_socket import LocalDoor, local_app
from dashboard.common.child_process import ChildProcess
from dashboard.cycle.context import silent
from dashboard.cycle.cycle_thread import CycleCutError
from dashboard.cycle.run_cycle import CycleOutcome, run_cycle
from dashboard.cycle.wiring import build_world
from dashboard.decisions.service import DecisionService
from data.base.errors import StoreBusyError, TrimtabError
from data.settings.load import load_settings
from data.store import open_store
from data.store.engine.record_json import to_json

PATIENCE = 300


@pytest.fixture
def child() -> Iterator[ChildProcess]:
    """A child that ends with the test."""
    process = ChildProcess()
    yield process
    process.end()


def until(condition: Callable[[], bool]) -> None:
    """Wait for what must come."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children_of(parent: int) -> list[int]:
    """Return the processes that plan for a server."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"answer_calls(" in (words := read(path)) and f", {parent}, ".encode() in words
    ]


def read(path: Path) -> bytes:
    """Return what a file holds, nothing where it is gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def is_alive(process: int) -> bool:
    """Return whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_it_is_kept_gives_way_and_logs_here(
    child: ChildProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """One process for all calls, whose lines come into the log of its parent."""
    first = child.call(process_of, progress=silent)
    assert first != os.getpid()
    assert child.call(process_of, progress=silent) == first
    assert child.call(niceness, progress=silent) > os.getpriority(os.PRIO_PROCESS, 0)
    assert [record.getMessage() for record in caplog.records] == ["computed by the child"] * 2


def test_its_end_is_told_and_the_next_call_begins_another(child: ChildProcess) -> None:
    """As by a kernel that lacks memory."""
    first = child.call(process_of, progress=silent)
    with pytest.raises(TrimtabError, match="the process that computes was ended by SIGKILL"):
        child.call(killed, progress=silent)
    assert child.call(process_of, progress=silent) != first


def test_its_errors_are_raised_here(child: ChildProcess) -> None:
    """One of ours with its hint, a defect under its name."""
    with pytest.raises(StoreBusyError) as raised:
        child.call(refused, progress=silent)
    assert str(raised.value) == "the store is held. Wait."
    with pytest.raises(RuntimeError, match="ValueError"):
        child.call(broken, progress=silent)


def test_one_that_has_grown_is_not_kept(child: ChildProcess) -> None:
    """What a large cycle took is given back when its answer is there."""
    large = child.call(allocated, 1100, progress=silent)
    until(lambda: not is_alive(large))
    assert child.call(process_of, progress=silent) != large


def test_a_call_that_is_cut_ends_it(child: ChildProcess, tmp_path: Path) -> None:
    """Whoever is told to stop waits for no answer."""
    file = tmp_path / "process"

    def at(_stage: str, _done: int, _total: int) -> None:
        if file.exists():
            raise CycleCutError("cut")

    with pytest.raises(CycleCutError):
        child.call(endless, file, progress=at)
    assert not is_alive(int(file.read_text("ascii")))


def test_it_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Nobody would take its answer."""
    program = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "from pathlib import Path; from beds.computed import endless\n"
        "from dashboard.common.child_process import ChildProcess\n"
        f"ChildProcess().call(endless, Path({str(tmp_path / 'process')!r}), progress=print)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL) as parent:
        until((tmp_path / "process").exists)
        process = int((tmp_path / "process").read_text("ascii"))
        assert is_alive(process)
        os.kill(process, signal.SIGTERM)  # as systemd sends it to all: the parent decides
        parent.kill()
    until(lambda: not is_alive(process))


def test_it_plans_as_this_process_does(
    child: ChildProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Plan, advice and forecasts are the same, read through the process that holds the store."""

    def outcome(by: ChildProcess | None) -> CycleOutcome:
        overrides = {"store.url": demo_day(tmp_path_factory.mktemp("planned"))}
        settings = load_settings(None, environ={}, overrides=overrides).settings
        with open_store(settings.store.url) as store:
            service = DecisionService(store=store, settings=lambda: settings)
            assert store.file is not None
            with LocalDoor(local_app(store, service, lambda: DEMO_END), store.file).running():
                world = replace(build_world(settings, store=store), child=by)
                return run_cycle(world, now=DEMO_END)

    here, there = outcome(None), outcome(child)
    assert here.plan is not None
    assert there.plan is not None
    assert there.plan.plan_id == here.plan.plan_id
    assert there.recommendations == here.recommendations
    assert there.kept == here.kept
    for name in ("forecasts", "group_forecasts", "jobs"):
        assert to_json(getattr(there, name)) == to_json(getattr(here, name)), name


@pytest.mark.slow_end
def test_a_server_whose_child_is_killed_says_so_and_plans_again(tmp_path: Path) -> None:
    """A failed cycle in words; probes go on, and the next cycle ends."""
    environ = {
        "TRIMTAB_SIMULATED_FLEET_ENABLED": "true",
        "TRIMTAB_SIMULATED_FLEET_NODES": "1",
        "TRIMTAB_PROMETHEUS_LOOKBACK_HOURS": "2",
        "TRIMTAB_SERVE_CYCLE_MINUTES": "0.01",
    }
    with running_server(f"duckdb:///{tmp_path}/t.duckdb", tmp_path, **environ) as server:

        def killed_in_a_cycle() -> bool:
            for process in children_of(server.process.pid):
                os.kill(process, signal.SIGKILL)
            return "the process that computes was ended by SIGKILL" in server.log.read_text("utf-8")

        until(killed_in_a_cycle)
        ended = server.log.read_text("utf-8").count(" ended in ")
        until(lambda: server.log.read_text("utf-8").count(" ended in ") > ended)
        (last,) = children_of(server.process.pid)
        assert server.stop() == 0
    until(lambda: not is_alive(last))
