"""Free ports of loopback, for servers that must be told theirs before they start."""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_PORTS = range(20_000, 32_000)
"""Below those that the kernel lends to connections: what is free now still is when the server
listens, however many pages and clients other tests open meanwhile."""


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, all different."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        if _is_free(port):
            found.append(port)
    assert len(found) == count, f"only {len(found)} of {count} ports are free"
    return found


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
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
