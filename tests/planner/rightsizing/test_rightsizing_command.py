"""`python -m benchmarks.rightsizing`: the store's own jobs under every rule."""

import json
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from beds.stores import filled
from factories import NOW, make_collected, make_job, make_samples

from benchmarks.rightsizing.command import main
from data.store import Store, open_store


def fill(store: Store) -> None:
    """Keep two days of one board, half used, and one nobody can price."""
    minutes = 2 * 24 * 60
    rng = np.random.default_rng(1)
    known = make_samples(minutes=minutes, utilization_ratio=rng.uniform(0.3, 0.6, minutes))
    strange = make_samples(
        minutes=minutes, job_id="lab/odd", gpu_uuid="GPU-odd", gpu_model="Abacus-9000"
    )
    store.keep(make_collected(known))
    job = make_job("lab/odd", gpu_model="Abacus-9000")
    store.keep(make_collected(strange, jobs=(job,)))


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """The options of a store of these days."""
    url = f"duckdb:///{tmp_path}/s.duckdb"
    with filled(url, fill):
        pass
    return ["--quiet", "--store", url]


def test_every_rule_is_replayed_on_demand_and_memory(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The oracle is first and cheapest; memory has no energy of its own; the unpriced is named."""
    assert main([*arguments, "--format", "json"]) == 0
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["currency"] == "EUR"
    assert "lab/odd" in captured.err
    assert "Abacus-9000" in captured.err
    by_quantity: dict[str, list[dict[str, object]]] = {}
    for row in document["rules"]:
        by_quantity.setdefault(str(row["quantity"]), []).append(row)
    assert set(by_quantity) == {"effective_gpus", "memory_used_mib"}
    for quantity, rows in by_quantity.items():
        assert len(rows) == 15
        assert rows[0]["cost_above_oracle_ratio"] == 0
        assert all(row["cost_above_oracle_ratio"] >= -1e-9 for row in rows)  # type: ignore[operator]
        assert all(row["jobs"] == 1 for row in rows)
        assert (rows[0]["energy_kwh"] is None) == (quantity == "memory_used_mib")


def test_without_forecasts_only_rules_of_the_past_are_replayed(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """CSV has one line per rule; nothing on stdout but data."""
    assert main([*arguments, "--forecast-every", "0", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("quantity,rule,jobs,cost_above_oracle_ratio")
    assert len(lines) == 1 + 2 * 12
    assert not any("forecast path" in line for line in lines)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--step", "7"], "multiple of 5"),
        (["--days", "0"], "more than 0 days"),
        (["--forecast-every", "-1"], "0 for no forecasts"),
    ],
)
def test_wrong_options_are_refused(
    arguments: list[str], extra: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, the option and the way out."""
    assert main([*arguments, *extra]) == 2
    assert said in capsys.readouterr().err


def test_a_short_history_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half an hour has no four steps of an hour."""
    url = f"duckdb:///{tmp_path}/short.duckdb"
    with open_store(url) as store:
        store.keep(make_collected(make_samples(minutes=30, end=NOW - timedelta(minutes=1))))
    assert main(["--quiet", "--store", url]) == 1
    assert "--days" in capsys.readouterr().err
