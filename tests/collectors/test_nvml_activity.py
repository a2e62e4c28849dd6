"""NVML: what kept the boards at work, in slots of five minutes, from GPM and the driver."""

import math
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from beds.nvml import H100, NOW, WINDOW, Play, collector, stub

from collectors.shared.collector import Window
from data.facts.columns import ACTIVITY
from data.store import open_store

_MIB = 2**20
FIRST = NOW - timedelta(minutes=5)
ALL = (
    "gpu0 gpm 1 90\ngpu0 gpm 5 31.5\ngpu0 gpm 10 44\ngpu0 gpm 12 2\n"
    "gpu0 gpm 20 100\ngpu0 gpm 21 300\ngpu0 gpm 60 1000\ngpu0 gpm 61 2000\ngpu0 clock_reasons 0\n"
)
"""GPM's graphics, any tensor, DRAM, FP32, PCIe sent and received, NVLink received and sent."""
WELL = (
    "gpu0 temperature 61\ngpu0 memory_temperature 70\ngpu0 sm_clock 1980\n"
    "gpu0 ecc_errors 2\ngpu0 remapped 1 3 0 0\n"
)


def activity_of(
    library: Path, play: Play, proc: Path, lines: str, *later: str, window: Window = WINDOW
) -> pd.DataFrame:
    """Return the activity of readings a minute apart from the start of the window on."""
    play(lines=lines)
    one = collector(library, proc)
    readings = []
    with one.reading() as read:
        readings.append(read(lambda: FIRST))
    for minute, changed in enumerate(later, start=1):
        play(lines=changed)
        with one.reading() as read:
            readings.append(read(lambda minute=minute: FIRST + timedelta(minutes=minute)))
    assert stub(library, "nvml_stub_live_samples") == 0
    found: pd.DataFrame = one.collected(readings, window).activity
    return found


def test_gpm_tells_what_a_board_did(library: Path, play: Play, proc: Path) -> None:
    """Percent become shares, MiB/s bytes/s of both directions, power a share of its limit."""
    (row,) = activity_of(library, play, proc, H100.format(0) + ALL + WELL).to_dict("records")
    assert row == {
        "slot_start": pd.Timestamp(FIRST),
        "gpu_uuid": "GPU-0",
        "mig_instance": "",
        "engine_active": pytest.approx(0.90),
        "sm_active": pytest.approx(0.50),
        "tensor_active": pytest.approx(0.315),
        "dram_active": pytest.approx(0.44),
        "fp32_active": pytest.approx(0.02),
        "pcie_bytes_per_second": 400 * _MIB,
        "nvlink_bytes_per_second": 3000 * _MIB,
        "throttled_ratio": 0.0,
        "power_ratio": pytest.approx(300 / 700),
        "temperature_celsius": 61.0,
        "memory_temperature_celsius": 70.0,
        "clock_mhz": 1980.0,
        "uncorrected_errors": 2.0,
        "remapped_rows": 3.0,
        "remap_failed": 0.0,
    }


def test_a_failing_board_is_told_by_its_worst_reading(
    library: Path, play: Play, proc: Path
) -> None:
    """A count is no mean: an error in the last minute of five is an error."""
    well = H100.format(0) + "gpu0 temperature 60\ngpu0 ecc_errors 0\ngpu0 remapped 0 0 0 0\n"
    worse = H100.format(0) + "gpu0 temperature 80\ngpu0 ecc_errors 1\ngpu0 remapped 0 1 0 1\n"
    (row,) = activity_of(library, play, proc, well, worse).to_dict("records")
    assert row["temperature_celsius"] == 70.0
    assert (row["uncorrected_errors"], row["remapped_rows"], row["remap_failed"]) == (1, 1, 1)
    assert math.isnan(row["memory_temperature_celsius"])


def test_a_slot_is_the_mean_of_its_readings(library: Path, play: Play, proc: Path) -> None:
    """Of the readings that know a signal; what none of them knows stays unknown."""
    board = H100.format(0)
    (row,) = activity_of(
        library, play, proc, board + ALL, board + "gpu0 gpm 1 30\ngpu0 clock_reasons 64\n"
    ).to_dict("records")
    assert row["engine_active"] == pytest.approx(0.60)
    assert row["tensor_active"] == pytest.approx(0.315)
    assert row["throttled_ratio"] == pytest.approx(0.5)


def test_what_a_board_does_not_tell_is_unknown(library: Path, play: Play, proc: Path) -> None:
    """A board without NVLink, tensor counters or reasons of slow clocks: unknown, nothing lost."""
    play(lines=H100.format(0))
    one = collector(library, proc)
    with one.reading() as read:
        collected = one.collected([read(lambda: FIRST)], WINDOW)
    (row,) = collected.activity.to_dict("records")
    assert row["sm_active"] == pytest.approx(0.5)
    for name in ("engine_active", "tensor_active", "nvlink_bytes_per_second", "throttled_ratio"):
        assert math.isnan(row[name]), name
    assert collected.report.dropped == ()


def test_a_driver_that_refuses_all_metrics_is_asked_for_one(
    library: Path, play: Play, proc: Path
) -> None:
    """SM activity is what samples rest on: it is not lost with the others."""
    play(lines=H100.format(0) + ALL + "gpu0 gpm_one 1\n")
    collected = collector(library, proc).collect(WINDOW)
    assert collected.samples["utilization_ratio"].tolist() == [0.5]
    assert collected.report.dropped == ()


@pytest.mark.parametrize("broken", ["nan", "150", "-3"])
def test_an_impossible_metric_is_counted(
    library: Path, play: Play, proc: Path, broken: str
) -> None:
    """It is dropped alone: the other metrics of the board stay."""
    play(lines=H100.format(0) + ALL + f"gpu0 gpm 5 {broken}\n")
    one = collector(library, proc)
    with one.reading() as read:
        collected = one.collected([read(lambda: FIRST)], WINDOW)
    (row,) = collected.activity.to_dict("records")
    assert math.isnan(row["tensor_active"])
    assert row["dram_active"] == pytest.approx(0.44)
    assert collected.report.dropped == (("GPM ANY_TENSOR_UTIL: no ratio", 1),)


@pytest.mark.parametrize(("reasons", "slowed"), [(0x4, 0.0), (0x8, 1.0), (0x20, 1.0), (0x80, 1.0)])
def test_heat_and_power_brakes_slow_a_board(
    library: Path, play: Play, proc: Path, reasons: int, slowed: float
) -> None:
    """A board at its power cap is not slowed: a cap is a decision."""
    lines = H100.format(0) + f"gpu0 clock_reasons {reasons}\n"
    (row,) = activity_of(library, play, proc, lines).to_dict("records")
    assert row["throttled_ratio"] == slowed


def test_without_gpm_the_drivers_rate_is_the_engine(library: Path, play: Play, proc: Path) -> None:
    """As for exporters: GPU_UTIL says the same in coarser steps. No limit, no share of it."""
    lines = H100.format(0).replace("sm_util 50", "error nvmlGpmQueryDeviceSupport 3")
    lines = lines.replace("limit_mw 700000", "limit_mw 0")
    (row,) = activity_of(library, play, proc, lines).to_dict("records")
    assert row["engine_active"] == pytest.approx(0.99)
    assert math.isnan(row["sm_active"])
    assert math.isnan(row["power_ratio"])


def test_instances_have_their_own_activity(library: Path, play: Play, proc: Path) -> None:
    """Power and clocks are the board's, GPM the instance's."""
    play("a100_mig_holes", "gpu0.mig0 sm_util 80\ngpu0.mig0 gpm 5 40\ngpu0.mig2 sm_util 12.5\n")
    one = collector(library, proc)
    with one.reading() as read:
        found = one.collected([read(lambda: FIRST)], WINDOW).activity
    told = {row["mig_instance"]: row for row in found.to_dict("records")}
    assert told["2"]["tensor_active"] == pytest.approx(0.4)
    assert told["9"]["sm_active"] == pytest.approx(0.125)
    assert math.isnan(told["9"]["tensor_active"])
    assert {round(row["power_ratio"], 4) for row in told.values()} == {round(143.21 / 400, 4)}


def test_only_whole_slots_of_the_window_are_told(library: Path, play: Play, proc: Path) -> None:
    """A slot is the same whenever it is asked for, so one that the window cuts is left out."""
    late = Window(start=WINDOW.start + timedelta(minutes=1), end=WINDOW.end)
    found = activity_of(library, play, proc, H100.format(0) + ALL, window=late)
    assert found.empty
    assert list(found.columns) == list(ACTIVITY.columns)


def test_the_store_tells_it_by_job(library: Path, play: Play, proc: Path, tmp_path: Path) -> None:
    """So the cause of slow work is told on a node without an exporter."""
    (tmp_path / "0").write_text("4711\n")
    play(lines=H100.format(0) + ALL)
    one = collector(library, proc, mapping=str(tmp_path))
    with one.reading() as read:
        readings = [
            read(lambda minute=minute: FIRST + timedelta(minutes=minute)) for minute in (0, 4)
        ]
    with open_store(f"duckdb:///{tmp_path}/s.duckdb") as store:
        store.keep(one.collected(readings, WINDOW))
        (row,) = store.reader.job_activity(start=FIRST, end=NOW).to_dict("records")
    assert (row["job_id"], row["boards"]) == ("slurm:4711", 1)
    assert row["tensor_active"] == pytest.approx(0.315)


def test_what_a_real_board_answered_is_read(library: Path, play: Play, proc: Path) -> None:
    """As recorded on an H200: a board at its power cap, whose clocks heat does not slow."""
    play("h200_at_work")
    one = collector(library, proc)
    with one.reading() as read:
        collected = one.collected([read(lambda: FIRST)], WINDOW)
    (row,) = collected.activity.to_dict("records")
    (sample,) = collected.samples.to_dict("records")
    assert collected.report.dropped == ()
    assert sample["gpu_model"] == "H200-SXM-141GB"
    assert row["engine_active"] > row["sm_active"] > row["tensor_active"] > row["fp32_active"] > 0
    assert (row["throttled_ratio"], row["nvlink_bytes_per_second"]) == (0.0, 0.0)
    assert 0 < row["pcie_bytes_per_second"] < 64e9
    assert 0.5 < row["power_ratio"] <= 1
