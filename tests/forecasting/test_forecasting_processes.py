"""Processes that forecast, when the process that they work for is killed."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from forecasting.jobs.path_pool import remove_used_folder

ROOT = Path(__file__).parents[2]
PATIENCE, ENDED_WITHIN = 300, 30
PROGRAM = """
import os
from dataclasses import replace
from forecasting_cases import HOURLY, daily, series
from forecasting.jobs.forecast_path import PathTask
from forecasting.jobs.path_pool import paths_of

values = [series(daily(14, seed=seed)) for seed in range(400)]
tasks = [PathTask(series=found, first_slot=14 * 86_400, horizon=6) for found in values]
os.cpu_count = lambda: 2
paths_of(tasks, settings=replace(HOURLY, model="prophet"))
"""


def forecasting_below(parent: int) -> set[int]:
    """The processes of a pool below a process."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if above == parent and b"LokyProcess" in words:
            found.add(int(folder.name))
    return found


@pytest.mark.slow
def test_they_end_with_a_killed_parent(tmp_path: Path) -> None:
    """SIGKILL in the middle of Prophet's forecasts: none works on, and none leaves files."""
    environ = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env=environ) as parent:
        give_up_at = time.monotonic() + PATIENCE
        while len(working := forecasting_below(parent.pid)) < 2 or not [*tmp_path.rglob("*.csv")]:
            assert time.monotonic() < give_up_at
            assert parent.poll() is None
            time.sleep(0.1)
        parent.kill()
    give_up_at = time.monotonic() + ENDED_WITHIN
    while left := [pid for pid in working if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < give_up_at, left
        time.sleep(0.1)
    assert [*tmp_path.glob("trimtab-forecast-*")] == []


def test_a_folder_goes_that_is_still_written_to(tmp_path: Path) -> None:
    """A fit that goes on beside the removal puts files where one has just looked."""
    for round_number in range(20):
        folder = tmp_path / str(round_number)
        folder.mkdir()
        writer = threading.Thread(target=write_until_it_is_gone, args=(folder,))
        writer.start()
        while not [*folder.iterdir()]:
            time.sleep(0.001)
        remove_used_folder(str(folder))
        writer.join()
        assert not folder.exists()


def write_until_it_is_gone(folder: Path) -> None:
    """Write a file now and again, as fits do."""
    for number in range(20_000):
        try:
            (folder / f"{number}.csv").touch()
        except FileNotFoundError:
            return
        time.sleep(0)
