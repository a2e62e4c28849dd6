"""What is heard of a driver: its answers, and once in the log that others are missing."""

import logging
from multiprocessing import Pipe

import pytest

from forecasting.distributed import ray_driver
from forecasting.distributed.ray_driver import END, Driver


def test_what_ray_gave_up_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The answers after it still come."""
    near, far = Pipe()
    for said in (b"one", END, END, b"four"):
        far.send_bytes(said)
    driver = Driver(near, cpus=2)
    with caplog.at_level(logging.WARNING):
        assert [driver.hear() for _ in range(4)] == [b"one", None, None, b"four"]
    assert caplog.messages == ["Ray gave an answer up: computed by this process instead"]


def test_a_lost_driver_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Every later answer is missing at once."""
    near, far = Pipe()
    far.close()
    driver = Driver(near, cpus=2)
    with caplog.at_level(logging.WARNING):
        assert [driver.hear(), driver.hear()] == [None, None]
    assert caplog.messages == ["the Ray cluster was lost: computed by this process instead"]


def test_an_answer_that_never_comes_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes too late is no answer to a later question."""
    monkeypatch.setattr(ray_driver, "ANSWER_SECONDS", 0.05)
    near, far = Pipe()
    driver = Driver(near, cpus=2)
    with caplog.at_level(logging.WARNING):
        assert driver.hear() is None
        far.send_bytes(b"late")
        assert driver.hear() is None
    assert caplog.messages == ["Ray gave no answer within 0 s: computed by this process instead"]
