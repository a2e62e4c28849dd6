"""`trimtab statement` and GET /statement: the same figures in every format, from a real store."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from beds.api_clients import LOCAL, clients, problem
from beds.stores import filled
from factories import make_collected, make_job, make_samples

from dashboard.cli import main
from data.store import Store, open_store

HOSTILE = "=cmd|' /C calc'!A0"
RANGE = ("--from", "2026-01-04T12:00:00Z", "--to", "2026-01-05T12:00:00Z")
COST = 2 * 24 * 2.5 + 2 * 24 * 0.4 * 1.54 * 0.2
"""Two H100 for a day at the catalogue's price, and 400 W each."""


def fill(store: Store) -> None:
    """Keep a day of two jobs, one in a namespace that would be a formula."""
    samples = make_samples(gpus=2, minutes=1441, power_watts=400.0)
    samples.loc[samples["gpu_uuid"] == "GPU-0001", "job_id"] = "evil/job"
    jobs = (make_job(), make_job("evil/job", namespace=HOSTILE, owner=HOSTILE))
    store.keep(make_collected(samples, jobs))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The address of a store of that day."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with filled(url, fill):
        pass
    return url


@pytest.fixture
def run(
    url: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., bytes]:  # fmt: skip
    """Runs the command where no settings file is."""
    monkeypatch.chdir(tmp_path)

    def ran(*options: str, code: int = 0) -> bytes:
        capfdbinary.readouterr()
        assert main(["--store", url, "statement", *options]) == code
        return capfdbinary.readouterr().out

    return ran


def test_every_format_has_the_same_cost(run: Callable[..., bytes], tmp_path: Path) -> None:
    """Table, CSV, JSON, FOCUS as CSV and Parquet, and OpenCost."""
    document = json.loads(run("--format", "json", *RANGE))
    assert document["total"]["cost"] == pytest.approx(COST)
    assert {row["tenant"] for row in document["rows"]} == {"search", HOSTILE}
    assert any("planning prices" in line for line in document["unknown"])
    rows = list(csv.DictReader(io.StringIO(run("--format", "csv", *RANGE).decode())))
    assert sum(float(row["cost"]) for row in rows) == pytest.approx(COST)
    assert {row["tenant"] for row in rows} == {"search", f"'{HOSTILE}"}
    focus = list(csv.DictReader(io.StringIO(run("--format", "focus-csv", *RANGE).decode())))
    assert sum(float(row["BilledCost"]) for row in focus) == pytest.approx(COST)
    out = tmp_path / "charges.parquet"
    assert run("--format", "focus-parquet", "--out", str(out), *RANGE) == b""
    assert sum(pq.read_table(out)["BilledCost"].to_pylist()) == pytest.approx(COST)
    found = json.loads(run("--format", "opencost", *RANGE))["data"][0]
    assert sum(entry["totalCost"] for entry in found.values()) == pytest.approx(COST)
    lines = run(*RANGE).decode().splitlines()
    assert len(lines) == 4
    assert lines[-1].startswith("total")


@pytest.mark.parametrize("command", ["statement", "energy"])
@pytest.mark.parametrize(
    ("from_", "to", "named", "fix"),
    [
        ("12:02:00Z", "18:00:00Z", "`from`", "12:00Z or 2026-01-04T12:05Z"),
        ("12:00:00Z", "18:00:01Z", "`to`", "18:00Z or 2026-01-04T18:05Z"),
        ("12:00:00+05:30", "18:00:00.5Z", "`to`", "18:00Z or 2026-01-04T18:05Z"),
        ("12:00:00+05:28", "18:00:00Z", "`from`", "06:30Z or 2026-01-04T06:35Z"),
    ],
)
def test_a_range_that_cuts_five_minutes_is_refused(
    url: str, command: str, from_: str, to: str, named: str, fix: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """By the command line in every format and by the API: it was rounded and not told."""
    start, end = (f"2026-01-04T{at}" for at in (from_, to))
    for form in ("table", "csv", "json", *(("focus-csv",) if command == "statement" else ())):
        words = ("--from", start, "--to", end, "--format", form)
        assert main(["--store", url, command, *words]) == 2
        said = capsys.readouterr()
        assert (said.out, named in said.err, fix in said.err) == ("", True, True), said.err
    with open_store(url) as store, clients(store, LOCAL) as client:
        answer = client().get(f"/api/v1/{command}", params={"from": start, "to": end})
        assert named in problem(answer, 422)["detail"]


def test_budgets_are_a_table_of_their_own(run: Callable[..., bytes]) -> None:
    """A row a tenant, then one of the fleet; a week that was not watched whole has no forecast."""
    lines = run("--budgets").decode().splitlines()
    assert lines[0].split()[:3] == ["tenant", "per_month", "month_to_date"]
    assert (len(lines), lines[-1].split()[0]) == (4, "(fleet)")


def test_what_cannot_be_had_is_refused_before_anything_is_read(run: Callable[..., bytes]) -> None:
    """FOCUS by week, a group that does not exist, and a range without samples."""
    run("--format", "focus-csv", "--every", "week", code=2)
    run("--format", "focus-csv", "--by", "board", code=2)
    with pytest.raises(SystemExit):
        run("--by", "tenant,team")
    run("--by", "board,job", code=2)
    run("--from", "2020-01-01T00:00:00Z", "--to", "2020-02-01T00:00:00Z", code=3)


def test_the_api_has_the_same(url: str) -> None:
    """The document of the command, FOCUS rows with their version, and OpenCost."""
    query = "from=2026-01-04T12:00:00Z&to=2026-01-05T12:00:00Z"
    with open_store(url) as store, clients(store, LOCAL) as client:

        def got(more: str = "") -> dict[str, Any]:
            found = client().get(f"/api/v1/statement?{query}{more}")
            assert found.status_code == 200
            return dict(found.json())

        assert got("&by=model,state&budgets=true")["total"]["cost"] == pytest.approx(COST)
        focus = got("&format=focus&every=hour")
        assert focus["version"] == "1.4"
        assert sum(row["BilledCost"] for row in focus["rows"]) == pytest.approx(COST)
        assert got("&format=opencost")["code"] == 200
        for wrong in ("&by=team", "&by=tenant,", "&format=focus", "&by=board,job", "&every=year"):
            problem(client().get(f"/api/v1/statement?{query}{wrong}"), 422)


def test_a_price_is_compared_with_all_boards_and_with_those_that_lack_one(
    run: Callable[..., bytes], url: str, tmp_path: Path
) -> None:
    """In a range without boards too; an unpriced model goes before one of the catalogue."""
    with open_store(url) as store:
        boards = make_samples(minutes=60, gpu_uuid="GPU-0009", gpu_model="NVIDIA GB300 NVL")
        store.keep(make_collected(boards))
    price = '[[statement.prices]]\ngpu_model = "{}"\nper_gpu_hour = 2.0\n'

    def told(name: str, *span: str, code: int = 0) -> list[str]:
        (tmp_path / "trimtab.toml").write_text(price.format(name))
        found = json.loads(run("--format", "json", *span, code=code))["unknown"]
        return [line for line in found if line.startswith("which boards")]

    before = ("--from", "2025-06-01T00:00:00Z", "--to", "2025-06-02T00:00:00Z")
    assert told("NVIDIA GB300 NVL", *before, code=3) == told("NVIDIA GB300 NVL", *RANGE) == []
    for name in ("GB300-NVL", "nvidia-gb300-nvl", "NVIDIA GB300 NVL 288GB"):
        (line,) = told(name, *RANGE)
        assert line.endswith("is it NVIDIA GB300 NVL?")


def test_a_price_that_is_of_no_board_is_told(run: Callable[..., bytes], tmp_path: Path) -> None:
    """With the name that was meant; one that the catalogue knows is of use to plans."""
    price = '[[statement.prices]]\ngpu_model = "{}"\nper_gpu_hour = 2.0\n'
    names = ("H100", "H200-SXM-141GB", "H100-SXM5-80GB")
    (tmp_path / "trimtab.toml").write_text("".join(map(price.format, names)))
    told = json.loads(run("--format", "json", *RANGE))["unknown"]
    (line,) = [line for line in told if "statement.prices" in line]
    assert line.startswith("which boards the price of 'H100' in statement.prices is for")
    assert "is it H100-" in line


@pytest.mark.parametrize("currency", ["EUR", "eur", "NPR", "JPY"])
def test_prices_in_another_currency_than_the_sums_are_told(
    run: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch, currency: str
) -> None:
    """The catalogue's are in EUR: of 160 rupees each they would read as one."""
    monkeypatch.setenv("TRIMTAB_ENERGY_CURRENCY", currency)
    unknown = json.loads(run("--format", "json", *RANGE))["unknown"]
    (said,) = [line for line in unknown if "planning prices" in line]
    told = f"in EUR, counted as {currency} without conversion" in said
    assert told == (currency.upper() != "EUR")
