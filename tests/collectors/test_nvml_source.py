"""NVML through the real pynvml and a compiled library that answers what a scenario says."""

import math
from datetime import datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.nvml import H100, NOW, WINDOW, Play, collector, rows, stub

from collectors.shared.collect import collect_all
from data.base.errors import SourceUnreachableError
from data.facts.fleet import SourceState


def test_readings_carry_our_units(library: Path, play: Play, proc: Path) -> None:
    """mW, mJ, bytes and percent become W, J, MiB and 0..1; reserved memory is apart."""
    play("h100_two_boards")
    collected = collector(library, proc).collect(WINDOW)
    busy, idle = rows(collected)
    assert busy["sampled_at"] == pd.Timestamp(NOW)
    assert (busy["gpu_uuid"], busy["gpu_index"], busy["node"]) == (
        "GPU-11111111-2222-3333-4444-555555555501",
        "0",
        "n1",
    )
    assert busy["gpu_model"] == "H100-SXM5-80GB"
    assert busy["power_watts"] == 610.0
    assert busy["energy_joules"] == 987654.321
    assert busy["power_limit_watts"] == 700.0
    assert busy["memory_used_mib"] == 61440.0
    assert busy["memory_total_mib"] == 81559.0
    assert (busy["utilization_ratio"], busy["utilization_signal"]) == (0.635, "sm_active")
    assert (busy["mig_instance"], busy["mig_profile"], busy["job_id"]) == ("", "", "")
    assert (idle["power_watts"], idle["utilization_ratio"]) == (71.0, 0.0)
    assert collected.report.state is SourceState.RAN
    assert collected.report.dropped == ()
    assert collected.report.warnings == ()
    assert collected.report.completeness_ratio == 1.0


def test_init_and_shutdown_are_paired(library: Path, play: Play, proc: Path) -> None:
    """After a collection no session and no GPM sample is left, also when it failed."""
    play("h100_two_boards")
    collector(library, proc).collect(WINDOW)
    assert stub(library, "nvml_stub_sessions") == 0
    play(lines=H100.format(0) + "gpu0 lost_at nvmlDeviceGetPowerUsage\n")
    with pytest.raises(SourceUnreachableError):
        collector(library, proc).collect(WINDOW)
    assert stub(library, "nvml_stub_sessions") == 0
    assert stub(library, "nvml_stub_live_samples") == 0


def test_the_same_reading_has_the_same_batch_id(library: Path, play: Play, proc: Path) -> None:
    """Keeping a batch twice is harmless; another content is another batch."""
    play("h100_two_boards")
    first = collector(library, proc).collect(WINDOW).batch_id
    assert collector(library, proc).collect(WINDOW).batch_id == first
    play("h100_two_boards", "gpu1 power_mw 72000\n")
    assert collector(library, proc).collect(WINDOW).batch_id != first


@pytest.mark.parametrize(
    ("late", "stamp"),
    [(timedelta(seconds=2, microseconds=7), NOW), (timedelta(days=1), NOW + timedelta(days=1))],
)
def test_a_reading_is_stamped_with_now(
    library: Path, play: Play, proc: Path, late: timedelta, stamp: datetime
) -> None:
    """A window that just ended ends now; NVML does not pretend to know a past one."""
    play("h100_two_boards")
    collected = collector(library, proc, clock=lambda: NOW + late).collect(WINDOW)
    assert set(collected.samples["sampled_at"]) == {pd.Timestamp(stamp)}


def test_a_board_lost_in_the_middle_does_not_lose_the_others(
    library: Path, play: Play, proc: Path
) -> None:
    """The half-read board gives no row and is counted; its neighbours are whole."""
    play("h100_one_lost")
    collected = collector(library, proc).collect(WINDOW)
    assert [row["gpu_index"] for row in rows(collected)] == ["0", "2"]
    assert collected.report.dropped == (("nvmlDeviceGetPowerUsage: GpuIsLost", 1),)
    assert collected.report.completeness_ratio == pytest.approx(2 / 3)
    assert "GpuIsLost" in collected.report.warnings[0]


def test_a_lost_board_starts_its_activity_anew(library: Path, play: Play, proc: Path) -> None:
    """What was held of it is freed: its counters may have been reset when it comes back."""
    play("h100_one_lost")
    with collector(library, proc).reading() as read:
        assert read(lambda: NOW).boards_read == 2
        assert stub(library, "nvml_stub_live_samples") == 2
        assert read(lambda: NOW).boards_read == 2


def test_a_machine_whose_every_board_is_lost_fails(library: Path, play: Play, proc: Path) -> None:
    """No reading at all is no success: the report of the source says why."""
    play(lines=H100.format(0) + "gpu0 lost_at nvmlDeviceGetHandleByIndex_v2\n")
    (collected,) = collect_all([collector(library, proc)], WINDOW)
    assert collected.report.state is SourceState.FAILED
    assert "nvmlDeviceGetHandleByIndex: GpuIsLost" in collected.report.reason


def test_a_machine_without_boards_says_so(library: Path, play: Play, proc: Path) -> None:
    """A driver that sees no GPU ran well and gave nothing."""
    play(lines="system driver 550\n")
    collected = collector(library, proc).collect(WINDOW)
    assert collected.report.reason == "no GPU on this machine"
    assert collected.samples.empty


def test_boards_before_volta_have_no_energy(library: Path, play: Play, proc: Path) -> None:
    """No counter is unknown, not zero; the driver's rate stands in for SM activity."""
    play("p100_before_volta")
    collected = collector(library, proc).collect(WINDOW)
    (row,) = rows(collected)
    assert math.isnan(float(str(row["energy_joules"])))
    assert (row["utilization_ratio"], row["utilization_signal"]) == (0.42, "gpu_util")
    assert row["gpu_model"] == "P100-PCIE-16GB"
    assert collected.report.dropped == (("nvmlDeviceGetTotalEnergyConsumption: NotSupported", 1),)


@pytest.mark.parametrize(("code", "name"), [(3, "NotSupported"), (999, "Unknown"), (77, "code 77")])
def test_a_refused_call_loses_that_reading_only(
    library: Path, play: Play, proc: Path, code: int, name: str
) -> None:
    """The other readings of the board stay."""
    call = "nvmlDeviceGetEnforcedPowerLimit"
    play(lines=H100.format(0) + f"gpu0 error {call} {code}\n")
    collected = collector(library, proc).collect(WINDOW)
    (row,) = rows(collected)
    assert math.isnan(float(str(row["power_limit_watts"])))
    assert row["power_watts"] == 300.0
    assert collected.report.dropped == ((f"{call}: {name}", 1),)


def test_processes_without_permission_leave_the_job_unknown(
    library: Path, play: Play, proc: Path
) -> None:
    """The reading stays, the job is unknown, and the warning names the way out."""
    play(lines=H100.format(0) + "gpu0 error nvmlDeviceGetComputeRunningProcesses_v3 4\n")
    collected = collector(library, proc).collect(WINDOW)
    assert rows(collected)[0]["job_id"] == ""
    assert collected.report.dropped == (
        ("nvmlDeviceGetComputeRunningProcesses_v3: NoPermission", 1),
    )
    assert "hostPID" in collected.report.warnings[0]


def test_a_driver_that_stops_in_the_middle_is_a_lost_board(
    library: Path, play: Play, proc: Path
) -> None:
    """Uninitialized and DriverNotLoaded end the reading of the board."""
    play(
        lines=H100.format(0)
        + H100.format(1)
        + "gpu0 error nvmlDeviceGetMemoryInfo_v2 1\ngpu1 error nvmlDeviceGetMemoryInfo_v2 9\n"
    )
    with pytest.raises(SourceUnreachableError, match=r"Uninitialized.*DriverNotLoaded"):
        collector(library, proc).collect(WINDOW)
