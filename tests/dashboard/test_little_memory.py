"""A cycle that is given too little memory: named, nothing half done, and the next one works."""

from pathlib import Path

import pytest
from beds.mortal_programs import running_mortals
from drawn import examples
from reliability import Measured

from data.store import open_store

_ROOMS_MIB = (1, 2, 4, 8, 16, 32, 64, 96)
ROOMS_MIB = _ROOMS_MIB if examples(100) == 100 else _ROOMS_MIB[::2]
"""Too little to collect with, to read with, to plan with; every second of them in every run."""
WORDS = ("trimtab: the process ran out of memory", "trimtab: a statement broke off")
"""The second where DuckDB says only that it was interrupted: another of its threads failed."""


@pytest.mark.hypothesis  # the slow end takes all rooms
@pytest.mark.slow
def test_a_cycle_without_memory_says_so_and_leaves_the_store_whole(
    tmp_path: Path, measured: Measured
) -> None:
    """Whatever it may take beyond the start: one line of words or success, and facts whole."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    command = ["--store", url, "cycle", "--now", "2024-01-08T12:00:00+00:00", "--format", "json"]
    fleet = {"TRIMTAB_SIMULATED_FLEET_NODES": 4, "TRIMTAB_PROMETHEUS_LOOKBACK_HOURS": 12}
    failed = []
    with running_mortals(tmp_path, makes_reports=False) as mortals:
        for room in ROOMS_MIB:
            ended = mortals.run([command], tmp_path, room_mib=room, **fleet)
            with open_store(url) as store:
                counts = store.reader.counts()
                assert store.reader.verify_audit() == ()
            assert counts["cycles"] == counts["plans"]
            assert (counts["samples"] > 0) == (counts["batches"] > 0)
            if ended.code == 0:
                break
            assert ended.code == 1
            assert ended.said.startswith(WORDS), ended.said
            assert "Traceback" not in ended.said
            failed.append(room)
        assert failed[:2] == list(ROOMS_MIB[:2])
        assert mortals.run([command], tmp_path, **fleet).code == 0
    rooms = ", ".join(map(str, failed))
    measured(f"cycles with {rooms} MiB to take: named, nothing half kept, the next one works")
