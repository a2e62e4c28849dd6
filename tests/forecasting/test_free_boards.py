"""The idle power of a fleet's free boards replaces the catalogue's."""

import numpy as np
import pandas as pd
import pytest

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from forecasting.power.free_boards import with_measured_idle

L4 = "L4-24GB"


def readings(boards: int, *, job: str = "", used: float = 0.0, watts: float = 28.0) -> pd.DataFrame:
    """Twelve readings of each board."""
    return pd.concat(
        pd.DataFrame(
            {
                "gpu_model": L4,
                "gpu_uuid": f"GPU-{job}-{board}",
                "mig_instance": "",
                "job_id": job,
                "utilization_ratio": used,
                "power_watts": watts + np.linspace(-1, 1, 12) + board * 0.1,
            },
            index=range(12),
        )
        for board in range(boards)
    )


def test_free_boards_teach_their_idle_power() -> None:
    """Three free boards are enough; boards that are held or at work say nothing."""
    held = pd.concat([readings(3, job="a/b", watts=60.0), readings(3, used=0.5, watts=60.0)])
    measured = with_measured_idle(load_gpu_catalogue(), pd.concat([readings(4), held])).get(L4)
    assert measured.idle_watts == pytest.approx(28.15, abs=0.2)
    assert measured.idle_watts_low < measured.idle_watts < measured.idle_watts_high


@pytest.mark.parametrize("boards", [0, 1, 2])
def test_too_few_free_boards_leave_the_catalogue(boards: int) -> None:
    """Fewer than three boards teach nothing."""
    frame = readings(3, job="a/b") if not boards else readings(boards)
    assert with_measured_idle(load_gpu_catalogue(), frame).get(L4) == load_gpu_catalogue().get(L4)
