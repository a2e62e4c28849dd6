"""Free ports of loopback, for servers that must be told theirs before they start."""

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_PORTS = range(20_000, 32_000)
"""Below those that the kernel lends to connections: what is free now still is when the server
listens, however many pages and clients other tests open meanwhile."""
_BLOCK = 50

_blocks: dict[int, socket.socket] = {}
"""Blocks of ports that are this process's own, by their first port, each with its lock."""
_ours: list[int] = []
"""Ports of these blocks that were not given yet."""


# A forked child holds its parent's locks: it must take blocks of its own.
os.register_at_fork(after_in_child=_ours.clear)


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, all different, and that no other test process is given."""
    ports: list[int] = []
    while len(ports) < count:
        if not _ours:
            _ours.extend(_block())
        port = _ours.pop()
        if _is_free(port):
            ports.append(port)
    return ports


def _block() -> range:
    """A block of ports that no other process holds; it is held until this process ends."""
    firsts = _PORTS[::_BLOCK]
    for first in random.SystemRandom().sample(firsts, len(firsts)):
        # A name without a file: the kernel forgets it with the process, however that ends.
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0trimtab-test-ports-{first}")
        except OSError:
            lock.close()
            continue
        _blocks[first] = lock
        return range(first, first + _BLOCK)
    raise AssertionError(f"all {len(firsts)} blocks of ports are held by test processes")


def free_port() -> int:
    """One such port."""
    return free_ports(1)[0]


@contextmanager
def kept_port() -> Iterator[int]:
    """A port that servers listen on one after another, and that nothing else gets meanwhile."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", free_port()))
        yield int(held.getsockname()[1])


def _is_free(port: int) -> bool:
    """Whether nothing listens there, on loopback or on all addresses (as slurmd does)."""
    for address in ("127.0.0.1", ""):
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True
