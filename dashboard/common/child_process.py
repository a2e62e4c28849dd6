"""A child process that computes, so that the threads of this one go on answering.

All threads of a process share one interpreter lock: a cycle took half of it from the pages, the
probes and the kill switch (benchmarks/results/load.md). Function, arguments and answer travel as
pickles on a pair of sockets that nobody else has. What it logs comes into the log of this process.
"""

import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from data.base.errors import MORE_MEMORY, TrimtabError

Progress = Callable[[str, int, int], None]
logger = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.5
_POLL_SECONDS = 1.0
_NICE = 3
"""Half of the CPU time that this process has, which answers people, where both want all of it."""
_OOM_SCORE = 300
"""Added to the share of memory, in thousandths, by which Linux selects a process to end."""
_KEPT_MIB = 1024
"""Memory above which the child is not kept for the next call."""
_END_SECONDS = 5.0


class ChildProcess:
    """A child that begins with the first call, is kept for the next ones, and ends with its parent.

    One thread calls at a time.
    """

    def __init__(self) -> None:
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None

    def call(self, function: Callable[..., Any], *args: Any, progress: Progress) -> Any:
        """Return `function(*args, progress)` as the child computes it.

        `progress` is called here, at least twice a second: what it raises ends the child.
        Errors: those of the function; TrimtabError where the child ends before it answers.
        """
        if self._running is not None and self._running[0].poll() is not None:
            self.end()
        process, line = self._running = self._running or _begun()
        try:
            line.send((function, args))
            answer = _answer_of(line, progress)
        except (EOFError, ConnectionError) as error:
            why = f"the process that computes {_end_of(process)}"
            self.end()
            raise TrimtabError(why, MORE_MEMORY) from error
        except BaseException:
            self.end()
            raise
        if _resident_mib(process.pid) > _KEPT_MIB:
            self.end()
        return answer

    def end(self) -> None:
        """End the child, whatever it is at."""
        if self._running is not None:
            process, line = self._running
            line.close()
            process.kill()
            process.wait()
            self._running = None


def _begun() -> tuple[subprocess.Popen[bytes], Connection]:
    """Return a new child and the line to it."""
    ours, theirs = socket.socketpair()
    levels = {
        name: level
        for name in ("", *logging.root.manager.loggerDict)
        if (level := logging.getLogger(name).level)
    }
    # The path of this process: in an installed one the packages are in a folder of their own.
    program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import answer_calls; "
    program += f"answer_calls({theirs.fileno()}, {os.getpid()}, {levels!r})"
    line = Connection(ours.detach())
    with theirs:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", "-c", program],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        ), line


def _answer_of(line: Connection, progress: Progress) -> Any:
    """Return the answer, once there; log and progress until then are told here."""
    state: tuple[str, int, int] = ("begin", 0, 1)
    while True:
        progress(*state)
        if not line.poll(_PAUSE_SECONDS):
            continue
        kind, content = line.recv()
        if kind == "progress":
            state = content
        elif kind == "log":
            logging.getLogger(content["name"]).handle(logging.makeLogRecord(content))
        elif kind == "error":
            raise content
        else:
            return content


def _end_of(process: subprocess.Popen[bytes]) -> str:
    """Return the end of the child in words."""
    try:
        code = process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        return "answers no more"
    if code >= 0:
        return f"ended with exit status {code}"
    return f"was ended by {signal.Signals(-code).name}"


def _resident_mib(process: int) -> float:
    """Return the memory of a process, 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class _LogToParent(QueueHandler):
    """Sends records to the parent, which has the log."""

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send a record whose message is text."""
        self.queue("log", vars(record))  # type: ignore[operator]


def answer_calls(descriptor: int, parent: int, levels: dict[str, int]) -> None:
    """Answer calls, as the child, until the parent hangs up or ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal and systemd send them to all
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    os.nice(_NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE), encoding="ascii")
    line, lock = Connection(descriptor), threading.Lock()

    def send(kind: str, content: Any) -> None:
        with lock:
            line.send((kind, content))

    logging.getLogger().addHandler(_LogToParent(send))  # type: ignore[arg-type]
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    with suppress(EOFError, ConnectionError):
        while True:
            function, args = line.recv()
            send(*_answer(function, args, lambda *state: send("progress", state)))


def _answer(
    function: Callable[..., Any], args: tuple[Any, ...], progress: Progress
) -> tuple[str, Any]:
    try:
        return "answer", function(*args, progress)
    except Exception as failure:
        if not isinstance(failure, TrimtabError):
            logger.warning("a defect in the process that computes", exc_info=True)
        try:
            pickle.loads(pickle.dumps(failure))  # noqa: S301 - made here
        except Exception:  # noqa: BLE001 - some take other arguments than they keep
            return "error", RuntimeError(f"{type(failure).__name__}: {failure}")
        return "error", failure


def _end_with(parent: int) -> None:
    """End the process once its parent is another one: nobody would take its answer."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
