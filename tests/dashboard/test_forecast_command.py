"""`trimtab forecast`: the same forecasts as table, CSV and JSON, and the models side by side."""

import json
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from factories import NOW, make_collected, make_samples

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


@pytest.mark.slow
def test_models_are_compared_on_what_the_store_holds(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """By group: every model has a row, naive is the measure, the mix beats it on a daily curve."""
    command = [*arguments, "forecast", "--backtest", "--by", "group", "--format", "json"]
    assert main(command) == 0
    rows = {row["model"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == ["naive", "mix", "prophet", "seasonal-naive"]
    assert rows["naive"]["pinball_to_naive"] == pytest.approx(1.0)
    assert rows["mix"]["pinball_to_naive"] < 0.8
    assert rows["mix"]["failures"] == 0


def test_a_short_history_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An hour of samples cannot be backtested; the command says so and does not fail."""
    url = f"duckdb:///{tmp_path}/s.duckdb"
    with open_store(url) as store:
        store.keep(make_collected(make_samples(end=NOW - timedelta(minutes=1))))
    assert main(["--quiet", "--store", url, "forecast", "--backtest"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "a day of history" in captured.err


def test_forecasts_before_any_cycle_say_so(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Facts without a cycle have no forecasts yet."""
    for by in ("job", "group"):
        assert main([*arguments, "forecast", "--by", by]) == 0
        assert "trimtab cycle" in capsys.readouterr().err
