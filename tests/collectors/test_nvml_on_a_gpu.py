"""Our readings of this machine's GPUs beside those of nvidia-smi; skipped without an NVML."""

import csv
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = textwrap.dedent(
    """
    from datetime import timedelta
    from collectors.shared.collector import Window
    from collectors.nvml.sampler import NvmlCollector
    from data.catalogue.gpu_catalogue import GpuCatalogue
    from data.base.clock import utc_now
    from data.settings.sources import NvmlSettings
    end = utc_now()
    one = NvmlCollector(NvmlSettings(enabled=True), GpuCatalogue(()), "here")
    found = one.collect(Window(start=end - timedelta(minutes=5), end=end))
    keys = ["gpu_uuid", "gpu_index", "gpu_model", "utilization_signal", "utilization_ratio"]
    keys += ["power_watts", "power_limit_watts", "energy_joules", "memory_used_mib"]
    keys += ["memory_total_mib", "mig_instance"]
    print(found.samples[keys].to_json(orient="records"))
    """
)
"""In a process of its own: other tests give pynvml a library that is not the driver's."""


def nvml_is_here() -> bool:
    """Whether the loader of a fresh process finds the driver's library."""
    looking = [sys.executable, "-c", "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')"]
    return subprocess.run(looking, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.fixture(scope="module")
def ours() -> list[dict[str, float | str | None]]:
    """Whole boards as the collector reads them."""
    if not nvml_is_here():
        pytest.skip("no libnvidia-ml.so.1 on this machine")
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    rows: list[dict[str, float | str | None]] = json.loads(answer.stdout)
    assert rows, answer.stdout
    return rows


@pytest.fixture(scope="module")
def theirs(ours: list[dict[str, float | str | None]]) -> dict[str, dict[str, str]]:
    """Boards as nvidia-smi reads them, by UUID, right after ours."""
    assert ours
    names = ["uuid", "index", "name", "power.draw", "enforced.power.limit"]
    names += ["memory.used", "memory.total", "mig.mode.current"]
    answer = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    rows = csv.reader(answer.stdout.splitlines(), skipinitialspace=True)
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


def test_every_board_is_there(
    ours: list[dict[str, float | str | None]], theirs: dict[str, dict[str, str]]
) -> None:
    """The same boards under the same names and numbers."""
    assert {our["gpu_uuid"] for our in ours} == set(theirs)
    for entry in ours:
        other = theirs[str(entry["gpu_uuid"])]
        assert (entry["gpu_model"], entry["gpu_index"]) == (other["name"], other["index"])


@pytest.mark.parametrize(
    ("ours_name", "theirs_name", "relative", "absolute"),
    [
        ("power_watts", "power.draw", 0.10, 15.0),
        ("power_limit_watts", "enforced.power.limit", 0.0, 0.01),
        ("memory_total_mib", "memory.total", 0.0, 1.0),
        ("memory_used_mib", "memory.used", 0.02, 16.0),
    ],
)
def test_numbers_agree_with_nvidia_smi(
    ours: list[dict[str, float | str | None]],
    theirs: dict[str, dict[str, str]],
    ours_name: str,
    theirs_name: str,
    relative: float,
    absolute: float,
) -> None:
    """Power within 10 % or 15 W (other moments), memory within 16 MiB; limit and size exactly."""
    compared = 0
    for entry in ours:
        if "memory" in ours_name and entry["mig_instance"]:
            continue
        other = theirs[str(entry["gpu_uuid"])][theirs_name]
        try:
            expected = float(other)
        except ValueError:
            assert entry[ours_name] is None, f"nvidia-smi says {other}"
            continue
        assert entry[ours_name] == pytest.approx(expected, rel=relative, abs=absolute)
        compared += 1
    assert compared or any(our["mig_instance"] for our in ours)


def test_readings_are_possible(ours: list[dict[str, float | str | None]]) -> None:
    """Activity is a share, energy is more than none since the driver was loaded."""
    for our in ours:
        if our["utilization_ratio"] is not None:
            assert 0 <= float(our["utilization_ratio"]) <= 1
            assert our["utilization_signal"] in {"sm_active", "gpu_util"}
        assert our["energy_joules"] is None or float(our["energy_joules"]) > 0
