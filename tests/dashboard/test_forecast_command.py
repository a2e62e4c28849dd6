"""`trimtab forecast`: the same forecasts as table, CSV and JSON."""

from pathlib import Path

import numpy as np
import pytest
from factories import make_collected, make_samples

from dashboard.cli import main
from data.store import open_store


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """The options of a store with four days of one board."""
    url = f"duckdb:///{tmp_path}/f.duckdb"
    minutes = 4 * 24 * 60
    clock = np.arange(minutes) / 1440 * 2 * np.pi
    rng = np.random.default_rng(1)
    samples = make_samples(
        minutes=minutes,
        utilization_ratio=np.clip(0.5 + 0.3 * np.sin(clock) + rng.normal(0, 0.05, minutes), 0, 1),
    )
    with open_store(url) as store:
        store.keep(make_collected(samples))
    return ["--quiet", "--store", url]


def test_forecasts_before_any_cycle_say_so(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Facts without a cycle have no forecasts yet."""
    for by in ("job", "group"):
        assert main([*arguments, "forecast", "--by", by]) == 0
        assert "trimtab cycle" in capsys.readouterr().err
