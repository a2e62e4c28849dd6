"""Real `trimtab` processes that are told to stop: by the kill switch from elsewhere, by signals.

The server and the command of the first test are programs that are started, the others forks.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa
from beds.apply_bench import JOB, fill
from beds.file_cluster import FileCluster
from beds.heard_trimtab import PATIENCE, HeardTrimtab, heard_trimtab
from beds.ports import free_port
from factories import make_recommendation

from dashboard.decisions import approvals
from data.base.clock import utc_now
from data.store import open_store

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "beds" / "serve_with_file_cluster.py"
SETTINGS = """
[apply]
enabled = true
stop_file = "state/STOP"
[store]
url = "duckdb:///{store}"
[serve]
port = {port}
[simulated_fleet]
nodes = 1
[prometheus]
lookback_hours = 2
"""


@contextmanager
def trimtab(
    folder: Path, *words: str, cwd: Path | None = None, program: bool = False, **environ: str
) -> Iterator[HeardTrimtab]:
    """Run a command with the folder's settings; it is killed if it runs after the block."""
    words = ("--settings", str(folder / "trimtab.toml"), *words)
    environ["TRIMTAB_TEST_CLUSTER"] = str(folder / "cluster.json")
    pipe = folder / f"said-{uuid4()}"
    with heard_trimtab(
        words, cwd or folder, pipe, script=PROGRAM, program=program, **environ
    ) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Settings, a cluster in a file, and a store with an approved change that is asked for."""
    made = tmp_path / "site"
    made.mkdir()
    cluster = FileCluster(made / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    store = made / "t.duckdb"
    (made / "trimtab.toml").write_text(SETTINGS.format(store=store, port=free_port()))
    return made


def ask(folder: Path) -> str:
    """Approve the change and ask for it; give its digest."""
    now = utc_now()
    one = make_recommendation(created_at=now, expires_at=now + timedelta(hours=24))
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        fill(store, one)
        approvals.approve(store, one.digest, by="Robin", now=now)
        store.commands.ask(
            kind=approvals.CommandKind.APPLY, digest=one.digest, subject=one.digest,
            target=JOB, person=approvals.Person(name="Robin"), at=now,
        )  # fmt: skip
    return one.digest


def state(folder: Path, digest: str) -> str:
    """What became of the change."""
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        assert store.reader.verify_audit() == ()
        return str(store.reader.states()[digest])


def test_a_stop_from_another_folder_reaches_the_server(folder: Path, tmp_path: Path) -> None:
    """The server obeys, whoever's folder the relative path of the stop file was read in."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with trimtab(folder, "apply", "stop", "--by", "Kim", cwd=elsewhere) as early:
        assert early.ended() == 1
        assert "no running process applies from this store" in early.said
    for left in (elsewhere / "state" / "STOP", folder / "state" / "STOP"):
        left.unlink(missing_ok=True)
    with trimtab(folder, "serve", program=True) as server:
        server.wait_for("Trimtab on")
        stop = subprocess.run(
            [sys.executable, "-c", "from dashboard.cli import program; program()",
             "--settings", str(folder / "trimtab.toml"), "apply", "stop", "--by", "Kim"],
            cwd=elsewhere, env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert stop.returncode == 0, stop.stderr
        printed = stop.stdout
        assert str(folder / "state" / "STOP") in printed
        assert f"process {server.process.pid} has stopped" in printed
        assert (folder / "state" / "STOP").exists()
        with trimtab(folder, "apply", "resume", "--by", "Kim", cwd=elsewhere) as resume:
            assert resume.ended() == 0
        assert not (folder / "state" / "STOP").exists()
        assert server.end() == 0
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        said = [(entry.actor, entry.event) for entry in store.reader.audit()]
    switched = [who for who, event in said if event in ("stopped", "resumed")]
    assert switched == ["Kim (by file)", "Kim"], said
    with trimtab(folder, "apply", "stop", "--by", "Kim") as late:
        assert late.ended() == 1


def test_a_cycle_that_hangs_is_cut(folder: Path) -> None:
    """A source that takes the question and never answers: the server ends, and keeps nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with trimtab(folder, "serve", TRIMTAB_PROMETHEUS_URL=url) as server:
            server.wait_for("cycle started")
            silent.settimeout(PATIENCE)
            connection, _peer = silent.accept()
            with connection:
                assert server.end() == 0
            assert "trimtab-cycle does not end in time and is cut" in server.said
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        assert store.reader.last_cycle() is None


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow_end) for seed in (0, 2, 3))]
)
def test_a_server_told_to_end_at_any_moment_ends_whole(folder: Path, seed: int) -> None:
    """SIGTERM at a drawn moment of a cycle: exit code 0, every part of a cycle there or none."""
    with trimtab(folder, "serve", TRIMTAB_SIMULATED_FLEET_ENABLED="true") as server:
        server.wait_for("cycle started")
        moment = random.Random(seed).uniform(0, 20)  # noqa: S311 - a moment, no secret
        threading.Event().wait(moment)
        assert server.end() == 0, f"seed {seed}, {moment:.1f} s: {server.said}"
    whole = (
        "SELECT count(*) FROM cycles ANTI JOIN plans USING (plan_id)",
        "SELECT count(*) FROM plans ANTI JOIN cycles USING (plan_id)",
        "SELECT count(*) FROM forecasts ANTI JOIN cycles USING (cycle_id)",
        "SELECT count(*) FROM samples ANTI JOIN batches USING (batch_id)",
    )
    with open_store(f"duckdb:///{folder}/t.duckdb") as store, store._engine.connect() as connection:
        assert [connection.execute(sa.text(name)).scalar_one() for name in whole] == [0] * len(
            whole
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("words", [("apply", "work"), ("findings", "apply")])
def test_an_apply_told_to_end_says_who_goes_on(
    folder: Path, number: int, words: tuple[str, ...]
) -> None:
    """The effect is still coming: what is under way is named, and the next worker ends it."""
    digest = ask(folder)
    cluster = FileCluster(folder / "cluster.json")
    cluster.change(JOB, mood="pending")
    if words[0] == "findings":
        words = (*words, digest[:12], "--by", "Robin")
    with trimtab(folder, *words) as apply:
        while cluster.read(JOB)["note"] != digest:  # type: ignore[index]
            assert apply.process.poll() is None, apply.said
            time.sleep(0.02)
        assert apply.end(number) == 128 + number, apply.said
        assert f"{signal.Signals(number).name}: the step under way ends first" in apply.said
        assert f"{digest[:12]} is applying" in apply.said
        assert "`trimtab apply work` goes on with it" in apply.said
    cluster.change(JOB, mood="")
    with trimtab(folder, "apply", "work") as work:
        assert work.ended() == 0, work.said
    assert state(folder, digest) == "applied"
    assert [entry for entry in cluster.read(JOB)["log"] if entry[0] == "gpus"] == [["gpus", "2"]]  # type: ignore[index]


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_ends_while_a_thread_still_asks_the_store(code: int) -> None:
    """C++ ends a process by SIGABRT whose exit finds a thread inside DuckDB."""
    script = """
import sys
import threading
import duckdb
from dashboard.common.threads import end_process
connection = duckdb.connect()
endless = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"
asking = threading.Thread(target=lambda: connection.execute(endless), daemon=True)
asking.start()
asking.join(0.3)
print("whole", end="")
end_process(int(sys.argv[1]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script, str(code)], cwd=ROOT, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "whole", "")


HALTED = """
import os, signal, sys, threading, time
from argparse import Namespace
from contextlib import nullcontext
from types import SimpleNamespace
from dashboard.cli.operate import serve_commands

for step in range(60):
    ready, told = os.pipe()
    pid = os.fork()
    if not pid:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        sys.stderr = os.fdopen(told, "w", buffering=1)
        parts = SimpleNamespace(claims={}, running=nullcontext)
        os._exit(serve_commands._serve_part(Namespace(only="cycle", port=None), None, parts))
    os.read(ready, 1)
    os.kill(pid, signal.SIGSTOP)
    os.waitpid(pid, os.WUNTRACED)
    os.kill(pid, signal.SIGCONT)
    time.sleep(step * 5e-6)
    os.kill(pid, signal.SIGTERM)
    give_up_at = time.monotonic() + 30
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > give_up_at:
            os.kill(pid, signal.SIGKILL)
            sys.exit("it did not end")
        time.sleep(0.005)
"""


def test_a_part_that_was_halted_ends_when_it_is_told_to() -> None:
    """As a paused container that is stopped: the signal may come between two waits."""
    done = subprocess.run(
        [sys.executable, "-c", HALTED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
