"""Ray's driver in a process of its own; messages are bytes, and it may end at any time.

Ray ends the process that drives it, without an exception, in more ways than one: when the raylet
of its machine dies, when the head stays away for a minute, and when another thread frees an object
of Ray's while `ray.shutdown` runs (a quarter of a second). It prints to stdout and takes SIGTERM
over, too. So nothing of Ray comes into the process that asks: it stays whole, and what the driver
has not answered it does itself.

Whatever goes out and back is a pickle's bytes, which the driver carries unread: functions are named
ones of modules. Arrays that Ray itself unpacks could not be written to, and compiled functions
would be compiled a second time for these.
"""

import logging
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from loky.backend import get_context

from data.base.errors import scrub
from data.base.extras import require_extra

LOCAL = "local"
"""An address that starts a cluster on this machine, for trying it out."""
RETRIES = 3
"""How often Ray repeats what a worker died of before it gives it up."""
END = b""
"""Ends a list of packed things; as an answer, says that Ray has given it up."""
ANSWER_SECONDS = 600.0
"""How long an answer is waited for: then the driver counts as lost."""
CONNECT_SECONDS = 30.0
"""How long a cluster that should be there has to answer."""
_ABSENT = "no Ray cluster answers at ray.address %r (%s): computed by this process instead"
_CONNECTING = "connecting"
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_FRAME_HEAD, _SETTINGS = 9, b"\x04"
_SECONDS_TO_END = 20.0
_WORKER_SETUP_HOOK = "trimtab.own_packages_first"
"""Ray puts this process's working directory first on its workers' path: docs/decisions/0009."""
_log = logging.getLogger(__name__)

Work = Callable[[Any, Connection], None]
"""The work of a driver; arguments are Ray, connected, and the line to the caller."""


class Driver:
    """A driver that is running, or has been lost."""

    def __init__(self, line: Connection, cpus: int, *, lost: bool = False) -> None:
        self._line = line
        self._lost = self._warned = lost
        self.cpus = cpus
        """How many the cluster had at first."""

    def say(self, packed: bytes) -> None:
        """Send bytes to the driver's work; nothing to a lost driver."""
        with suppress(OSError):
            self._line.send_bytes(packed)

    def hear(self) -> bytes | None:
        """Return the next answer; None when Ray has given it up or the driver is lost."""
        answer, why = END, "Ray gave an answer up"
        try:
            if not self._lost and self._line.poll(ANSWER_SECONDS):
                answer = self._line.recv_bytes()
            else:
                self._lost, why = True, f"Ray gave no answer within {ANSWER_SECONDS:.0f} s"
        except (EOFError, OSError):
            self._lost, why = True, "the Ray cluster was lost"
        if not answer and not self._warned:
            _log.warning("%s: computed by this process instead", why)
            self._warned = True
        return answer or None


@contextmanager
def ray_driver(address: str, work: Work) -> Iterator[Driver]:
    """Yield a driver of the cluster at `address` that does `work`; it ends with the block.

    Where nobody answers within `CONNECT_SECONDS` the driver counts as lost, and says so once.

    Errors: SettingsError when Ray is not installed.
    """
    require_extra("ray", f"ray.address is {address!r}")
    # Loky's processes do not run the parent's __main__ again, which may be a page of Streamlit.
    context = get_context("loky")
    line, its_line = context.Pipe()
    process = context.Process(target=_drive, args=(its_line, address, work), daemon=True)
    process.start()
    its_line.close()
    try:
        yield _connected(line, address)
    finally:
        line.close()
        process.join(_SECONDS_TO_END)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            process.join()


def packed(value: Any) -> bytes:
    """Return the value as bytes."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(value: bytes) -> Any:
    """Return the unpacked value."""
    return pickle.loads(value)  # noqa: S301 - made by `packed` on a machine of the same cluster


def worker_answer(ray: Any, answer: Any) -> bytes:
    """Return the bytes of a worker's answer once it is there, END when Ray gives it up."""
    try:
        return bytes(ray.get(answer))
    except ray.exceptions.RayError:
        return END


def _connected(line: Connection, address: str) -> Driver:
    """Return the driver, with the cluster's CPUs, or as lost where there is no cluster."""
    seconds = ANSWER_SECONDS if address == LOCAL else CONNECT_SECONDS
    try:
        connecting = line.poll(ANSWER_SECONDS) and line.recv() == _CONNECTING
        word = (
            line.recv()
            if connecting and line.poll(seconds)
            else f"no answer within {seconds:.0f} s"
        )
    except (EOFError, OSError):
        word = "Ray ended its process while it connected"
    if isinstance(word, int):
        return Driver(line, word)
    _log.warning(_ABSENT, address, word)
    return Driver(line, 1, lost=True)


def present(address: str) -> str:
    """Return the address of a cluster that answers, '' where none does, which is logged."""
    why = absence_reason(address)
    if why:
        _log.warning(_ABSENT, address, why)
    return "" if why else address


def absence_reason(address: str, seconds: float = CONNECT_SECONDS) -> str:
    """Return why no Ray head answers at an address that names one, '' where one does.

    Both of Ray's ports speak gRPC, whose server says its settings first (RFC 9113, 3.4).
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return ""
    ends = time.monotonic() + seconds
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds) as link:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return ""
            link.sendall(_HTTP2_PREFACE)
            link.settimeout(max(0.1, ends - time.monotonic()))
            head = link.recv(_FRAME_HEAD)
    except (OSError, OverflowError) as error:
        return scrub(str(error)) or type(error).__name__
    return "" if head[3:4] == _SETTINGS else "what answers is no Ray head"


def _drive(line: Connection, address: str, work: Work) -> None:
    """Run the driver until its line closes."""
    os.dup2(2, 1)  # what Ray prints is not data
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller gets it, and closes the line
    ray: Any = import_module("ray")
    line.send(_CONNECTING)
    options: dict[str, Any] = {"runtime_env": {"worker_process_setup_hook": _WORKER_SETUP_HOOK}}
    if address == LOCAL:
        options["include_dashboard"] = False
    try:
        # "local" is Ray's own word: "auto" connects to a cluster that was left behind.
        ray.init(address=address, log_to_driver=False, configure_logging=False, **options)
    except Exception as error:  # noqa: BLE001 - Ray raises bare ones when a node starts too slowly
        line.send(scrub(str(error)) or type(error).__name__)
        return
    try:
        line.send(int(ray.cluster_resources().get("CPU", 1)))
        work(ray, line)
    except (EOFError, OSError, ray.exceptions.RayError):
        pass  # whoever asked has ended, or the cluster
    finally:
        ray.shutdown()
