"""NVML between two collections, and what `trimtab doctor` says of it."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.nvml import H100, NOW, WINDOW, Play, collector, stub

from collectors.nvml.sampler import NvmlSampler, nvml_findings
from collectors.shared.collector import Window
from data.base.errors import SourceUnreachableError
from data.settings.sources import NvmlSettings


class Ticking:
    """A clock that is a step later at every look."""

    def __init__(self, step: timedelta = timedelta(seconds=1)) -> None:
        self.now = NOW - timedelta(minutes=4)
        self.step = step

    def __call__(self) -> datetime:
        """A step later."""
        self.now += self.step
        return self.now


def until(true: Callable[[], bool]) -> None:
    """Wait, a minute at most."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.01)


def test_a_sampler_gives_all_readings_since_the_last_collection(
    library: Path, play: Play, proc: Path
) -> None:
    """Readings of the window come once per window; asked again they come again."""
    play(lines=H100.format(0) + "gpu0 energy_step_mj 300000\n")
    clock = Ticking()
    with NvmlSampler(collector(library, proc, clock=clock), interval_seconds=0.01) as sampler:
        assert sampler.name == "nvml n1"
        until(lambda: clock.now > NOW - timedelta(minutes=3, seconds=50))
        assert sampler.stop()
        first = sampler.collect(WINDOW)
        again = sampler.collect(WINDOW)
        later = Window(start=clock.now - timedelta(seconds=3), end=NOW)
        rest = sampler.collect(later)
    assert len(first.samples) >= 10
    assert again.batch_id == first.batch_id
    assert len(rest.samples) == 3
    assert first.samples["energy_joules"].diff().dropna().tolist() == [300.0] * (
        len(first.samples) - 1
    )
    assert first.samples["sampled_at"].is_unique
    assert stub(library, "nvml_stub_sessions") == 0
    assert stub(library, "nvml_stub_live_samples") == 0


def test_a_reading_is_in_one_window(library: Path, play: Play, proc: Path) -> None:
    """Windows that meet between two whole seconds neither lose nor repeat a reading."""
    play(lines=H100.format(0))
    clock = Ticking(timedelta(milliseconds=300))
    with NvmlSampler(collector(library, proc, clock=clock), interval_seconds=0.005) as sampler:
        until(lambda: clock.now > NOW - timedelta(minutes=3, seconds=54))
        assert sampler.stop()
        middle = NOW - timedelta(minutes=3, seconds=57, milliseconds=200)
        whole = len(sampler.collect(WINDOW).samples)
        before = len(sampler.collect(Window(start=WINDOW.start, end=middle)).samples)
        after = len(sampler.collect(Window(start=middle, end=NOW)).samples)
    assert before
    assert after
    assert before + after == whole


def test_a_sampler_that_nobody_collects_from_keeps_the_newest(
    library: Path, play: Play, proc: Path
) -> None:
    """The buffer is bounded, and what it lost is counted."""
    play(lines=H100.format(0))
    clock = Ticking()
    with NvmlSampler(
        collector(library, proc, clock=clock), interval_seconds=0.01, capacity=3
    ) as sampler:
        until(lambda: clock.now > NOW - timedelta(minutes=3, seconds=50))
        assert sampler.stop()
        collected = sampler.collect(WINDOW)
    assert len(collected.samples) == 3
    assert collected.samples["sampled_at"].max() == pd.Timestamp(clock.now)
    ((reason, count),) = collected.report.dropped
    assert reason == "sampler: not collected in time"
    assert count >= 7


def test_a_sampler_says_why_it_cannot_read_and_recovers(
    library: Path, play: Play, proc: Path
) -> None:
    """A driver that is not loaded fails the collection; once it is, readings come."""
    play(lines="system error nvmlInitWithFlags 9\n")
    with NvmlSampler(collector(library, proc), interval_seconds=0.01) as sampler:
        time.sleep(0.05)
        with pytest.raises(SourceUnreachableError, match="DriverNotLoaded"):
            sampler.collect(WINDOW)
        play(lines=H100.format(0))

        def answers() -> bool:
            # A session is open before its first reading is there.
            try:
                return not sampler.collect(WINDOW).samples.empty
            except SourceUnreachableError:
                return False

        until(answers)
    assert stub(library, "nvml_stub_sessions") == 0


def test_a_sampler_that_is_not_started_reads_now(library: Path, play: Play, proc: Path) -> None:
    """`trimtab cycle` needs no thread."""
    play(lines=H100.format(0))
    assert len(NvmlSampler(collector(library, proc)).collect(WINDOW).samples) == 1


def test_findings_of_a_healthy_machine(library: Path, play: Play, proc: Path) -> None:
    """Doctor sees the library, the driver and each board."""
    play("h100_two_boards")
    found = nvml_findings(NvmlSettings(enabled=True, library=str(library)), proc_root=proc)
    assert {state for _, state, _ in found} == {"ok"}
    assert ("NVIDIA driver", "ok", "550.90.07") in found
    assert [what for what, _, _ in found if what.startswith("GPU ")] == [
        "GPU 0",
        "GPU 0 utilisation",
        "GPU 1",
        "GPU 1 utilisation",
    ]


def test_findings_name_what_is_missing_and_the_fix(
    library: Path, play: Play, proc: Path, tmp_path: Path
) -> None:
    """A lost board, a refused call, a foreign PID namespace and a missing folder each have one."""
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to("pid:[4026532999]")
    play(
        lines=H100.format(0)
        + H100.format(1)
        + "gpu0 error nvmlDeviceGetComputeRunningProcesses_v3 4\n"
        + "gpu1 lost_at nvmlDeviceGetPowerUsage\n"
    )
    settings = NvmlSettings(
        enabled=True, library=str(library), mapping_directory=str(tmp_path / "none")
    )
    missing = {
        what: detail
        for what, state, detail in nvml_findings(settings, proc_root=proc)
        if state == "missing"
    }
    assert "run as root" in missing["GPU 0 processes"]
    assert "GpuIsLost" in missing["GPU 1"]
    assert "hostPID: true" in missing["jobs of GPU processes"]
    assert "prolog" in missing["nvml.mapping_directory"]


def test_findings_of_mig(library: Path, play: Play, proc: Path) -> None:
    """The instances are listed."""
    play("a100_mig_holes")
    found = nvml_findings(NvmlSettings(enabled=True, library=str(library)), proc_root=proc)
    assert ("GPU 0 MIG", "ok", "3 instances: 2=3g.20gb, 9=1g.5gb, 10=1g.5gb") in found


def test_findings_without_a_library_are_one(tmp_path: Path) -> None:
    """Nothing else can be looked at."""
    settings = NvmlSettings(enabled=True, library=str(tmp_path / "none.so"))
    ((what, state, detail),) = nvml_findings(settings)
    assert (what, state) == ("NVML library", "missing")
    assert "Install the NVIDIA driver" in detail
