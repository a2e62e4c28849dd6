"""DCGM text: dialects, sentinels and labels as real exporters write them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.readings.dcgm_readings import DroppedReadings
from collectors.readings.device_labels import holder_of
from collectors.readings.exposition_text import parse_exposition, parse_labels, read_dcgm_text
from collectors.simulated.exposition import exposition
from collectors.simulated.fleet import SimulatedFleet
from data.base.errors import UnexpectedAnswerError
from data.catalogue.gpu_catalogue import load_gpu_catalogue

AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
LABELS = 'gpu="0", UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"'


def read(tmp_path: Path, text: str):  # type: ignore[no-untyped-def]
    """The samples of a text."""
    path = tmp_path / "metrics.prom"
    path.write_text(text)
    return read_dcgm_text(path, AT, load_gpu_catalogue())


@pytest.mark.parametrize(
    ("metric", "raw", "reason"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", "9223372036854775794", "blank"),
        ("DCGM_FI_DEV_GPU_UTIL", "2147483632", "blank"),
        ("DCGM_FI_DEV_POWER_USAGE", "140737488355328.0", "blank"),
        ("DCGM_FI_DEV_POWER_USAGE", "NaN", "not-finite"),
        ("DCGM_FI_DEV_POWER_USAGE", "+Inf", "not-finite"),
        ("DCGM_FI_DEV_POWER_USAGE", "-3", "negative"),
        ("DCGM_FI_DEV_GPU_UTIL", "104", "too-large"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "9223372036854775808", "blank"),
    ],
)
def test_what_is_no_reading_is_dropped_and_counted(
    metric: str, raw: str, reason: str, tmp_path: Path
) -> None:
    """Sentinels never become numbers."""
    good = f"DCGM_FI_DEV_FB_USED{{{LABELS}}} 10\n"
    collected = read(tmp_path, good + f"{metric}{{{LABELS}}} {raw}\n")
    assert collected.report.dropped == ((reason, 1),)
    row = collected.samples.iloc[0]
    assert row[["utilization_ratio", "power_watts", "energy_joules"]].isna().all()


def test_signals_are_preferred_in_order(tmp_path: Path) -> None:
    """SM activity wins over engine activity over GPU_UTIL."""
    text = (
        f"DCGM_FI_DEV_GPU_UTIL{{{LABELS}}} 100\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{{{LABELS}}} 0.7\n"
        f"DCGM_FI_PROF_SM_ACTIVE{{{LABELS}}} 0.4\n"
    )
    row = read(tmp_path, text).samples.iloc[0]
    assert (row["utilization_ratio"], row["utilization_signal"]) == (0.4, "sm_active")
    assert row["gpu_model"] == "H100-SXM5-80GB"


def test_new_names_mean_the_same(tmp_path: Path) -> None:
    """The 4.6 names are aliases; units become ours."""
    text = (
        f"DCGM_FI_DEV_BOARD_POWER_WATTS{{{LABELS}}} 500\n"
        f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{LABELS}}} 7200000\n"
        f"DCGM_FI_DEV_FB_USED{{{LABELS}}} 100\nDCGM_FI_DEV_FB_FREE{{{LABELS}}} 900\n"
    )
    row = read(tmp_path, text).samples.iloc[0]
    assert (row["power_watts"], row["energy_joules"]) == (500.0, 7200.0)
    assert row["memory_total_mib"] == 1000.0


@pytest.mark.parametrize(
    ("labels", "job"),
    [
        ({"pod": "p", "namespace": "n"}, "n/p"),
        ({"exported_pod": "p", "exported_namespace": "n", "pod": "dcgm-exporter-x"}, "n/p"),
        ({"pod": "dcgm-exporter-x", "namespace": "monitoring"}, ""),
        ({"hpc_job": "77"}, "slurm:77"),
        ({}, ""),
    ],
)
def test_the_workload_is_found_whatever_prometheus_renamed(
    labels: dict[str, str], job: str
) -> None:
    """The exporter's own pod is no job."""
    assert holder_of(labels) == job


def test_a_text_without_gpus_says_what_was_expected(tmp_path: Path) -> None:
    """Not every /metrics is a GPU exporter's."""
    with pytest.raises(UnexpectedAnswerError, match="UUID"):
        read(tmp_path, "up 1\n")


def test_the_fleets_text_is_its_samples(tmp_path: Path) -> None:
    """What the simulated fleet serves reads back as what it is."""
    fleet = SimulatedFleet(seed=3, nodes=2)
    collected = read(tmp_path, exposition(fleet, AT))
    assert len(collected.samples) == len(fleet.devices)
    assert {job.job_id for job in collected.jobs} == {
        name for name in collected.samples["job_id"] if name
    }


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_counted(text: str) -> None:
    """No input crashes the parser."""
    list(parse_exposition(text, AT, DroppedReadings()))
    parse_labels(text)
