"""The benchmark of returning work: the stated chance beats both peers, missing data is told."""

from pathlib import Path

import numpy as np

from benchmarks.returns import JUDGED, drawn, recorded


def test_the_stated_chance_comes_true_better_than_peers_state_it() -> None:
    """On forty drawn fleets, in the mean and by the squared error."""
    rows = drawn(JUDGED[:40])
    came = np.array([row.came for row in rows], dtype=np.float64)
    chance = np.array([row.chance for row in rows])
    similar = np.array([row.similar for row in rows])
    assert len(rows) > 500
    assert abs(float(chance.mean() - came.mean())) < 0.05
    error = np.mean((chance - came) ** 2)
    assert error < min(np.mean((similar - came) ** 2), np.mean(came))
    stopped = np.array([row.may_stop for row in rows])
    assert came[stopped].mean() < 0.05


def test_a_folder_without_the_recordings_is_told(tmp_path: Path) -> None:
    """Each by name, with the folder that was looked at."""
    lines = [line for line in recorded(tmp_path) if line.startswith("Not there")]
    assert len(lines) == 6
    assert all(str(tmp_path) in line for line in lines)
