"""A Ray head that is away, or is something else: this process computes, and says so once."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from beds.ports import free_port
from forecasting_cases import HOURLY, daily, series

from forecasting.distributed import ray_driver
from forecasting.distributed.ray_driver import absence_reason, present
from forecasting.jobs.forecast_path import PathTask
from forecasting.jobs.path_pool import paths_of


@contextmanager
def listener(said: bytes | None) -> Iterator[int]:
    """Something that listens, and says this to whoever comes; None: it never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def answer() -> None:
            with suppress(OSError):
                while True:
                    held.append(server.accept()[0])
                    if said is not None:
                        held[-1].sendall(said)

        threading.Thread(target=answer, daemon=True).start()
        yield int(server.getsockname()[1])
        for link in held:
            link.close()


@pytest.mark.parametrize("said", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"220 mail\r\n"])
def test_what_is_no_head_is_told(said: bytes | None) -> None:
    """Silence until the deadline, or the words of another protocol."""
    with listener(said) as port:
        assert absence_reason(f"ray://127.0.0.1:{port}", 0.3)
        assert absence_reason(f"127.0.0.1:{port}", 0.3)


def test_a_head_speaks_grpc() -> None:
    """Its settings come first; an address that names no head is left to Ray."""
    with listener(bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))) as port:
        assert absence_reason(f"ray://127.0.0.1:{port}") == ""
    assert absence_reason("auto") == absence_reason("local") == ""


def test_an_absent_head_is_told_once_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing waits for it again within a cycle: what goes on has no address."""
    address = f"ray://127.0.0.1:{free_port()}"
    with caplog.at_level(logging.WARNING):
        assert present(address) == ""
    (warning,) = caplog.messages
    assert warning.startswith(f"no Ray cluster answers at ray.address {address!r}")
    assert warning.endswith("computed by this process instead")


@pytest.mark.slow
def test_a_head_that_never_answers_costs_its_deadline_and_no_result(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Paths are those of this process, after the seconds of a connection."""
    monkeypatch.setattr(ray_driver, "CONNECT_SECONDS", 1.0)
    tasks = [
        PathTask(series=series(daily(4, seed=seed)), first_slot=4 * 86_400, horizon=6)
        for seed in range(3)
    ]
    with listener(None) as port, caplog.at_level(logging.WARNING):
        found = paths_of(tasks, settings=HOURLY, ray_address=f"ray://127.0.0.1:{port}")
    assert found == paths_of(tasks, settings=HOURLY)
    assert sum("no Ray cluster answers" in line for line in caplog.messages) == 1
