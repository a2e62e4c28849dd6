"""`trimtab energy`: the statement as table, JSON and CSV, from a real store."""

import csv
import io
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from beds.stores import filled
from factories import NOW, make_collected, make_job, make_samples

from dashboard.cli import main
from data.store import Store, open_store

HOSTILE = "=cmd|' /C calc'!A0"
Run = Callable[..., str]


def fill(store: Store) -> None:
    """Keep a day of two jobs, one in a namespace that would be a formula."""
    samples = make_samples(gpus=2, minutes=1441)
    samples.loc[samples["gpu_uuid"] == "GPU-0001", "job_id"] = "evil/job"
    jobs = (make_job(), make_job("evil/job", namespace=HOSTILE, owner=HOSTILE))
    store.keep(make_collected(samples, jobs))


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command on that day."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with filled(url, fill):
        pass

    def ran(*options: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(["--store", url, "energy", *options]) == code
        return capsys.readouterr().out

    return ran


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file of the folder that tests are run in."""
    monkeypatch.chdir(tmp_path)


def test_the_table_has_a_row_per_tenant_and_the_total(run: Run) -> None:
    """By default the last week by tenant; unknown is a dash."""
    lines = run().splitlines()
    assert {line.split()[1] for line in lines[1:3]} == {"search", HOSTILE.split()[0]}
    assert lines[-1].split()[1] == "total"
    assert "19.2 (18.2–20.2) kWh" in lines[-1]


def test_csv_cells_are_no_formulas_and_rows_stand_alone(run: Run) -> None:
    """Hostile names are prefixed; every row has its bounds, factors, source and year."""
    rows = list(csv.DictReader(io.StringIO(run("--format", "csv", "--by", "owner"))))
    assert {row["group"] for row in rows} == {"search", f"'{HOSTILE}", "(not observed)"}
    first = rows[0]
    assert float(first["gpu_energy_kwh"]) == pytest.approx(9.6)
    assert float(first["gpu_energy_kwh_low"]) < 9.6 < float(first["gpu_energy_kwh_high"])
    assert "2019" in first["grid_source"]
    assert first["market_based_kgco2e"] == ""


def test_json_is_strict_and_whole(run: Run) -> None:
    """One object with rows, total, method, factors, and what is unknown and not included."""
    made = json.loads(run("--format", "json", "--by", "job"), parse_constant=pytest.fail)
    assert made["total"]["gpu_energy_kwh"] == pytest.approx(19.2)
    assert sum(row["gpu_energy_kwh"] or 0 for row in made["rows"]) == pytest.approx(19.2)
    assert {"method", "factors", "not_included", "unknown"} <= set(made)
    assert made["completeness_ratio"] == pytest.approx(1 / 7)


def test_hours_of_a_range_add_up(run: Run) -> None:
    """`--by hour` is the whole fleet hour by hour, between two times."""
    start, end = (f"{NOW - timedelta(hours=back):%Y-%m-%dT%H:%M}Z" for back in (6, 0))
    out = run("--by", "hour", "--from", start, "--to", end, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["group"] for row in rows] == ["fleet"] * 6
    assert [float(row["gpu_energy_kwh"]) for row in rows] == pytest.approx([0.8] * 6)
    assert rows[0]["period"] == "2026-01-05 06:00 UTC"


def test_a_range_backwards_is_a_usage_error(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, one line with the way out."""
    run("--from", "2027-01-01T00:00:00Z", "--to", "2026-01-01T00:00:00Z", code=2)
    assert capsys.readouterr().out == ""


def test_nothing_measured_is_partial(run: Run) -> None:
    """Exit code 3 and no number that is made up."""
    out = run("--to", "2020-01-01T00:00:00Z", "--format", "json", code=3)
    assert json.loads(out)["total"]["gpu_energy_kwh"] is None


@pytest.mark.parametrize("minute", [0, 5, 25])
def test_the_total_counts_what_nobody_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], minute: int
) -> None:
    """Two of three boards end at noon: a sixth of the day is missing, wherever the range begins."""
    samples = make_samples(gpus=3, minutes=2 * 1440)
    late = samples["sampled_at"] > NOW - timedelta(hours=12)
    gap = late & samples["gpu_uuid"].ne("GPU-0000") & (samples["sampled_at"] < NOW)
    gap &= samples["sampled_at"] <= NOW - timedelta(hours=6)
    url = f"duckdb:///{tmp_path}/gap.duckdb"
    with open_store(url) as store:
        store.keep(make_collected(samples[~gap], (make_job(),)))
    start = NOW - timedelta(hours=24) + timedelta(minutes=minute)
    asked = ["--store", url, "energy", "--by", "node", "--from", start.isoformat()]
    asked += ["--to", NOW.isoformat()]
    assert main([*asked, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["total"]["measured_ratio"] == document["completeness_ratio"]
    (missing,) = [row for row in document["rows"] if row["group"] == "(not observed)"]
    assert missing["board_hours"] == pytest.approx(12.0, abs=0.2)
    whole = 72.0 - 3 * minute / 60
    assert document["completeness_ratio"] == pytest.approx(1 - 12 / whole, abs=0.003)
    assert main(asked) == 0
    (total,) = [line for line in capsys.readouterr().out.splitlines() if " total " in line]
    assert f"{100 * document['completeness_ratio']:.1f} %" in total
