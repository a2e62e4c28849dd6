"""Heat of racks: what boards drew, conserved over racks, with its forecast of the day ahead."""

import json
from pathlib import Path

import pandas as pd
import pytest
from factories import NOW, make_collected, make_samples

from dashboard.accounting.facility.heat import HeatRow, heat_rows
from dashboard.cli import main
from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from data.records.forecasts import GroupKind
from data.settings.all_settings import Settings
from data.settings.energy import EnergySettings
from data.settings.fleet import PowerDomain, PowerSettings
from data.store import open_store

RACKS = (
    PowerDomain(name="rack a", nodes="rack-a-*", limit_kw=1.0),
    PowerDomain(name="rack b", nodes="rack-b-*", limit_kw=0.3),
    PowerDomain(name="site", limit_kw=10.0),
    PowerDomain(name="empty", nodes="none-*", limit_kw=1.0),
)
DRAWN = Settings(power=PowerSettings(domains=RACKS))


def samples_of_racks() -> pd.DataFrame:
    """Two days of two boards of rack a and one of rack b, 400 W each; one of rack a is held."""
    frame = make_samples(gpus=3, minutes=2 * 24 * 60)
    number = frame["gpu_uuid"].str[-1].astype(int)
    frame["node"] = number.map({0: "rack-a-1", 1: "rack-a-2", 2: "rack-b-1"})
    frame.loc[number > 0, "job_id"] = ""
    return frame


def rows_after_a_cycle(url: str, settings: Settings) -> dict[str, HeatRow]:
    """Return the rows by rack."""
    with open_store(url) as store:
        store.keep(make_collected(samples=samples_of_racks()))
        run_cycle(build_world(settings, store=store), now=NOW)
        kinds = {group.kind for group in store.reader.group_forecasts()}
        assert GroupKind.RACK in kinds
        return {row.rack: row for row in heat_rows(store.reader, settings)}


def test_racks_add_up_to_the_site(store_url: str) -> None:
    """Boards that no job holds heat as well; a rack of no board is unknown, and never 0."""
    rows = rows_after_a_cycle(store_url, DRAWN)
    assert {name: row.boards for name, row in rows.items()} == {
        "rack a": 2,
        "rack b": 1,
        "site": 3,
        "empty": 0,
    }
    heats = {name: row.heat_kw for name, row in rows.items()}
    assert heats == pytest.approx({"rack a": 0.8, "rack b": 0.4, "site": 1.2, "empty": None})
    means = [rows[name].mean_kw or 0.0 for name in ("rack a", "rack b", "site")]
    assert means[0] + means[1] == pytest.approx(means[2], rel=0.02)
    assert means[2] == pytest.approx(1.2, rel=0.05)
    assert {name: row.over_limit for name, row in rows.items()} == {
        "rack a": False,
        "rack b": True,
        "site": False,
        "empty": None,
    }
    assert rows["empty"].peak_kw is None


def test_the_white_papers_split(tmp_path: Path) -> None:
    """Compute 40, other 20 and cooling 40 of 100: hosts are half of boards, PUE is 100 / 60."""
    settings = Settings(
        power=PowerSettings(domains=RACKS[2:3], host_ratio=0.5),
        energy=EnergySettings(pue=100 / 60),
    )
    site = rows_after_a_cycle(f"duckdb:///{tmp_path}/store.duckdb", settings)["site"]
    assert site.heat_kw == pytest.approx(1.8)
    assert site.mean_kw is not None
    assert site.cooling_kwh is not None
    boards = site.mean_kw / 1.5 * 24
    total = site.mean_kw * 24 + site.cooling_kwh
    shares = (boards / total, (site.mean_kw * 24 - boards) / total, site.cooling_kwh / total)
    assert shares == pytest.approx((0.4, 0.2, 0.4))
    assert site.over_limit is False
    assert "1.5 times" in site.counts


def test_the_command_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without power domains there is no rack; with them, a row each."""
    url = f"duckdb:///{tmp_path}/store.duckdb"
    with open_store(url) as store:
        store.keep(make_collected(samples=samples_of_racks()))
    assert main(["--quiet", "--store", url, "heat"]) == 0
    assert "power.domains" in capsys.readouterr().err
    settings = tmp_path / "trimtab.toml"
    settings.write_text(
        '[[power.domains]]\nname = "rack a"\nnodes = "rack-a-*"\nlimit_kw = 2.0\n', encoding="utf-8"
    )
    command = ["--quiet", "--settings", str(settings), "--store", url, "heat", "--format=json"]
    assert main(command) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["heat_kw"] == pytest.approx(0.8)
    assert row["mean_kw"] is None
