"""Ports that tests give their servers: no two processes are given the same one."""

import socket
import subprocess
import sys
from pathlib import Path

from beds.ports import free_port, free_ports

_TESTS = Path(__file__).parent
_DRAW = "from beds.ports import free_ports; print(*free_ports({count}), flush=True); input()"


def test_processes_that_draw_beside_each_other_get_different_ports() -> None:
    """Six processes draw 400 each; by chance alone some 240 would repeat."""
    drawers = [
        subprocess.Popen(
            [sys.executable, "-c", _DRAW.format(count=400)],
            cwd=_TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(6)
    ]  # fmt: skip
    try:
        ports = [
            [int(port) for port in drawer.stdout.readline().split()]
            for drawer in drawers
            if drawer.stdout is not None
        ]
    finally:
        for drawer in drawers:
            drawer.communicate("\n")
    assert [len(drawn) for drawn in ports] == [400] * 6
    assert len({port for drawn in ports for port in drawn}) == 2_400


def test_one_process_is_never_given_a_port_twice() -> None:
    """Neither in one draw nor in several."""
    ports = free_ports(60) + [free_port() for _ in range(60)]
    assert len(set(ports)) == len(ports)


def test_a_port_that_is_taken_on_all_addresses_is_not_given() -> None:
    """The next port of a block is taken on all addresses, as slurmd takes it."""
    given = [port for port in free_ports(3) if port % 50][-1]
    with socket.socket() as held:
        held.bind(("", given - 1))
        held.listen()
        assert given - 1 not in free_ports(60)
