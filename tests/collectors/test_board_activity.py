"""What kept boards at work, as exporters tell it: means of whole slots of five minutes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from beds.prometheus import backfill, running_prometheus

from benchmarks._exporter_dialects import openmetrics
from benchmarks._slow_jobs import slow_shape
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.readings.board_activity import activity_of
from collectors.readings.dcgm_readings import DroppedReadings, Series
from collectors.readings.metric_names import HEALTH_QUANTITIES
from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.columns import ACTIVITY
from data.settings.sources import PrometheusSettings

AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = Window(start=AT, end=AT + timedelta(hours=1))
BOARD = {"gpu": "3", "UUID": "GPU-1", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "n1"}


def series(metric: str, *values: float, first: int = 0, step: int = 60, **labels: str) -> Series:
    """Readings of one board from so many seconds after AT on."""
    times = AT.timestamp() + first + step * np.arange(len(values), dtype=np.float64)
    return Series(metric=metric, labels=BOARD | labels, times=times, values=np.array(values))


def told(*found: Series, window: Window = HOUR) -> pd.DataFrame:
    """The activity of these series."""
    return activity_of(found, load_gpu_catalogue(), window, DroppedReadings())


def only(*found: Series, window: Window = HOUR) -> pd.Series:
    """The one row of these series."""
    frame = told(*found, window=window)
    assert len(frame) == 1
    return frame.iloc[0]


def test_signals_are_means_of_a_slot_in_our_units() -> None:
    """Ratios, both directions of a link together, power by its limit; the rest is unknown."""
    row = only(
        series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1.0, 0.5),
        series("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.2, 0.4),
        series("DCGM_FI_PROF_PCIE_TX_BYTES", 1e9),
        series("DCGM_FI_PROF_PCIE_RX_BYTES", 3e9),
        series("DCGM_FI_PROF_NVLINK_TX_BYTES", 5e9),
        series("DCGM_FI_DEV_POWER_USAGE", 350.0),
        series("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", 700.0),
    )
    assert (row["gpu_uuid"], row["mig_instance"], row["slot_start"]) == ("GPU-1", "", AT)
    assert row["engine_active"] == pytest.approx(0.75)
    assert row["tensor_active"] == pytest.approx(0.3)
    assert row["pcie_bytes_per_second"] == pytest.approx(4e9)
    assert row["power_ratio"] == pytest.approx(0.5)
    unknown = ["sm_active", "dram_active", "nvlink_bytes_per_second", "throttled_ratio"]
    assert row[unknown].isna().all()


def test_only_whole_slots_of_the_window_are_told() -> None:
    """Also when asked in pieces: a slot is the same whenever it is asked for."""
    readings = series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", *np.linspace(0, 1, 60))
    part = Window(start=AT + timedelta(minutes=3), end=AT + timedelta(minutes=22))
    whole, cut = told(readings), told(readings, window=part)
    assert len(whole) == 12
    assert list(cut["slot_start"]) == [AT + timedelta(minutes=5 * slot) for slot in (1, 2, 3)]
    pd.testing.assert_frame_equal(cut, whole.iloc[1:4].reset_index(drop=True))


@pytest.mark.parametrize(
    ("reasons", "share"),
    [((0x0, 0x1), 0.0), ((0x4, 0x4), 0.0), ((0x40, 0x44), 1.0), ((0x8, 0x20, 0x80, 0x0), 0.75)],
)
def test_heat_and_brakes_throttle_a_power_cap_does_not(
    reasons: tuple[int, ...], share: float
) -> None:
    """Idle clocks and the cap are no fault; NVML's reasons are bits."""
    row = only(series("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", *reasons))
    assert row["throttled_ratio"] == pytest.approx(share)


def test_gpu_utilization_stands_in_for_the_engine_of_whole_boards() -> None:
    """Of a MIG instance it says nothing."""
    assert only(series("DCGM_FI_DEV_GPU_UTIL", 80, 40))["engine_active"] == pytest.approx(0.6)
    better = series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.9)
    assert only(series("DCGM_FI_DEV_GPU_UTIL", 80), better)["engine_active"] == 0.9
    instance = {"GPU_I_ID": "1", "GPU_I_PROFILE": "3g.40gb"}
    assert told(series("DCGM_FI_DEV_GPU_UTIL", 80, **instance)).empty


def test_two_boards_and_replicas_that_say_the_same_are_told_apart() -> None:
    """In whatever order the series come."""
    found = [
        series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.2, 0.4),
        series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.2, 0.4, instance="b"),
        series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.8, UUID="GPU-2"),
        series("DCGM_FI_PROF_SM_ACTIVE", 0.7, UUID="GPU-2"),
    ]
    for order in (found, found[::-1]):
        rows = told(*order).set_index("gpu_uuid")
        assert rows["engine_active"].to_dict() == pytest.approx({"GPU-1": 0.3, "GPU-2": 0.8})
        assert np.isnan(rows["sm_active"]["GPU-1"])
        assert rows["sm_active"]["GPU-2"] == 0.7


def test_what_is_no_reading_is_left_out_and_counted() -> None:
    """Blanks of DCGM, and series without a board."""
    dropped = DroppedReadings()
    found = activity_of(
        [
            series("DCGM_FI_PROF_DRAM_ACTIVE", 0.5, 2**47, float("nan"), -1.0),
            series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5, UUID=""),
        ],
        load_gpu_catalogue(),
        HOUR,
        dropped,
    )
    assert list(found["dram_active"]) == [0.5]
    assert dropped.counts == {"blank": 1, "not-finite": 1, "negative": 1}
    assert told().empty


@pytest.mark.prometheus
def test_a_prometheus_tells_what_the_fleet_tells(tmp_path: Path) -> None:
    """The simulated fleet through exposition text, a real server and the collector."""
    fleet = SimulatedFleet(seed=5, nodes=2, shape_of=slow_shape)
    window = Window(start=AT, end=AT + timedelta(minutes=40))
    samples = fleet.history(window.start, window.end, 60)
    direct = SimulatedFleetCollector(fleet=fleet, step_seconds=60).collect(window).activity
    backfill(openmetrics(fleet, samples), tmp_path)
    with running_prometheus(tmp_path) as url:
        settings = PrometheusSettings(url=url, step_seconds=60)
        source = PrometheusDcgmCollector(PrometheusClient(settings), settings, load_gpu_catalogue())
        asked = source.collect(window).activity
    key = ["slot_start", "gpu_uuid", "mig_instance"]
    both = direct.merge(asked, on=key, suffixes=("", "_asked"))
    assert len(both) == len(asked) > 50
    tells = set(ACTIVITY.names[3:]) - {"power_ratio", "uncorrected_errors"}
    for name in tells - set(HEALTH_QUANTITIES):
        known = both[name].notna() & both[f"{name}_asked"].notna()
        assert known.any()
        # A server answers the last reading in the holes that the fleet leaves.
        same = np.isclose(both.loc[known, name], both.loc[known, f"{name}_asked"], rtol=1e-3)
        assert same.mean() > 0.9, name
    for name in tells & set(HEALTH_QUANTITIES):  # one reading a slot, not the mean of five
        apart = (both[name] - both[f"{name}_asked"]).abs() / both[name].clip(lower=1.0)
        assert apart.notna().any()
        assert apart.median() < 0.02, name


def test_temperatures_are_means_and_errors_the_largest() -> None:
    """An error in one of five minutes is an error; Hz are MHz; a flag is no share."""
    row = only(
        series("DCGM_FI_DEV_GPU_TEMP", 60.0, 70.0),
        series("nvidia_smi_temperature_memory", 80.0),
        series("nvidia_smi_clocks_current_sm_clock_hz", 1.98e9),
        series("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 0.0, 0.0, 2.0),
        series("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 3.0),
        series("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0.0, 1.0),
    )
    assert row[list(HEALTH_QUANTITIES)].tolist() == pytest.approx([65, 80, 1980, 2, 3, 1])


def test_a_board_with_mig_tells_its_temperature_through_each_instance() -> None:
    """Exporters repeat the board's own readings for every instance of it."""
    both = [
        series("DCGM_FI_DEV_GPU_TEMP", 60.0, GPU_I_PROFILE="3g.40gb", GPU_I_ID=instance)
        for instance in ("1", "2")
    ]
    frame = told(*both)
    assert frame["mig_instance"].tolist() == ["1", "2"]
    assert frame["temperature_celsius"].tolist() == [60.0, 60.0]
