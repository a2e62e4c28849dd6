"""The statement's amounts: by hand, by hour, by model; what is unknown stays so."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pandas as pd
import pytest
import sqlalchemy as sa
from factories import H100, NOW, make_collected, make_job, make_samples

from dashboard.accounting.energy.build import make_statement
from dashboard.accounting.energy.statement import EsgStatement, GroupBy, Holder, StatementRow
from dashboard.reports.render.html_report import bare_text
from data.base.errors import SettingsError
from data.facts.jobs import Job, SchedulerFacts
from data.records.recommendations import Range
from data.settings.all_settings import Settings
from data.settings.energy import EnergySettings
from data.settings.fleet import TenantSettings
from data.store import open_store

ROOT = Path(__file__).parents[3]
HOURS = timedelta(hours=10)
GERMANY = Settings(energy=EnergySettings(region="DEU", market_gco2e_per_kwh=50.0))

State = Callable[..., EsgStatement]


def samples_of(hours: int = 10, **columns: object) -> pd.DataFrame:
    """Two boards at 400 W and half their activity, for exactly so many hours up to NOW."""
    return make_samples(gpus=2, minutes=60 * hours + 1, **columns)


@pytest.fixture
def state(tmp_path: Path) -> State:
    """Makes the statement of the ten hours up to NOW from samples and jobs."""

    def stated(
        samples: pd.DataFrame,
        known: tuple[Job, ...] = (make_job(gpu_count=2),),
        *,
        settings: Settings = GERMANY,
        start: timedelta = HOURS,
        until: timedelta = timedelta(0),
        **options: object,
    ) -> EsgStatement:
        with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
            store.keep(make_collected(samples, known))
            return make_statement(
                store.reader,
                start=NOW - start,
                end=NOW - until,
                settings=settings,
                **options,  # type: ignore[arg-type]
            )

    return stated


def parts(value: Range | None) -> tuple[float, float, float]:
    """Low, central, high."""
    assert value is not None
    return value.low, value.central, value.high


def row_named(statement: EsgStatement, name: str) -> StatementRow:
    """The one row of that name."""
    (row,) = [entry for entry in statement.rows if entry.name == name]
    return row


def test_the_worked_example_is_what_the_document_says(state: State) -> None:
    """Two H100 at 400 W for ten hours: each amount by hand, and as docs/energy.md prints it."""
    total = state(samples_of()).total
    life = 5 * 8760
    assert parts(total.gpu_energy_kwh) == pytest.approx((7.6, 8.0, 8.4))
    assert parts(total.site_energy_kwh) == pytest.approx((7.6 * 1.44, 12.32, 8.4 * 1.64))
    assert parts(total.location_kgco2e) == pytest.approx(
        (7.6 * 1.44 * 0.7 * 0.3809, 12.32 * 0.3809, 8.4 * 1.64 * 1.3 * 0.3809)
    )
    assert parts(total.market_kgco2e) == pytest.approx((0.5472, 0.616, 0.6888))
    assert parts(total.embodied_kgco2e) == pytest.approx(
        (150 * 20 / (life * 1.2), 164 * 20 / life, 320 * 20 / (life * 0.8))
    )
    assert total.work_gpu_hours == pytest.approx(10)
    assert total.sci_gco2e is not None
    assert total.sci_gco2e.central == pytest.approx((4692.688 + 74.886) / 10, abs=0.01)
    document = (ROOT / "docs/energy.md").read_text(encoding="utf-8")
    example = document.partition("## A worked example")[2]
    shown = re.findall(r"(?m)^\| [^|]+ \| [^|]+ \| ([^|]+) \|$", example)
    assert [entry.strip() for entry in shown[1:]] == [
        bare_text(total.gpu_energy_kwh),
        bare_text(total.site_energy_kwh),
        bare_text(total.location_kgco2e),
        bare_text(total.market_kgco2e),
        bare_text(total.embodied_kgco2e),
        bare_text(total.sci_gco2e),
    ]


def test_an_hour_emits_by_its_own_carbon(state: State) -> None:
    """Energy of 11:00 UTC takes the 13th value where the hours are two ahead of UTC."""
    hours = [100.0] * 24
    hours[13] = 900.0
    energy = replace(
        GERMANY.energy, carbon_by_hour=",".join(map(str, hours)), hours_zone="+02:00", pue=1.0
    )
    made = state(samples_of(), settings=replace(GERMANY, energy=energy))
    assert made.total.location_kgco2e is not None
    assert made.total.location_kgco2e.central == pytest.approx(0.8 * 0.9 + 7.2 * 0.1)
    assert made.total.market_kgco2e is not None
    assert made.total.market_kgco2e.central == pytest.approx(8 * 0.05)


@pytest.mark.parametrize("at", [(3, 8), (3, 29), (4, 5), (10, 4), (10, 25), (11, 1)])
@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "UTC", ""]
)
def test_an_hour_costs_and_emits_by_its_zone(
    tmp_path: Path, zone: str, at: tuple[int, int]
) -> None:
    """Over the nights in which clocks change: a board is busy now and then, at 400 W on average."""
    energy = replace(
        GERMANY.energy, pue=1.0, hours_zone=zone,
        carbon_by_hour=",".join(str(100 + hour**2) for hour in range(24)),
        electricity_price_by_hour=",".join(str(hour / 10) for hour in range(24)),
    )  # fmt: skip
    end = datetime(2026, *at, 12, tzinfo=UTC)
    start = end - timedelta(hours=36)
    watts = [200.0 + minute % 401 for minute in range(36 * 60 + 1)]
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        samples = make_samples(minutes=len(watts), end=end, power_watts=watts)
        store.keep(make_collected(samples, (make_job(),)))
        made = make_statement(
            store.reader, start=start, end=end, settings=replace(GERMANY, energy=energy)
        )
        with store._engine.connect() as connection:
            query = sa.text("SELECT slot_start, joules FROM five_minute WHERE joules > 0")
            slots = [(row.slot_start, row.joules / 3.6e6) for row in connection.execute(query)]
    hours = [(at.astimezone(ZoneInfo(zone or "UTC")).hour, kwh) for at, kwh in slots]
    assert len(hours) == 36 * 12
    assert made.total.electricity_cost is not None
    assert made.total.location_kgco2e is not None
    assert made.total.electricity_cost.central == pytest.approx(
        sum(hour / 10 * kwh for hour, kwh in hours)
    )
    assert made.total.location_kgco2e.central == pytest.approx(
        sum((100 + hour**2) / 1000 * kwh for hour, kwh in hours)
    )
    told = {factor.name: factor.value for factor in made.factors.entries}
    assert f"({zone or 'UTC'})" in told["electricity price"]
    assert f"({zone or 'UTC'})" in told["grid carbon, location-based"]


def test_a_price_by_hour_is_paid_by_hour(state: State) -> None:
    """Ten hours from 02:00 UTC on, of which one is dear."""
    prices = [0.1] * 24
    prices[5] = 1.1
    energy = replace(GERMANY.energy, electricity_price_by_hour=",".join(map(str, prices)), pue=1.0)
    cost = state(samples_of(), settings=replace(GERMANY, energy=energy)).total.electricity_cost
    assert cost is not None
    assert cost.central == pytest.approx(7.2 * 0.1 + 0.8 * 1.1)


def test_without_a_factor_market_based_is_unknown(state: State) -> None:
    """Not taken from the grid's average, and named as missing."""
    made = state(samples_of(), settings=Settings())
    assert made.total.market_kgco2e is None
    assert any("market-based" in line for line in made.unknown)


@pytest.mark.parametrize("power_watts", [400.0, float("nan")])
@pytest.mark.parametrize("is_held", [True, False])
def test_a_factor_that_is_set_is_not_asked_for(
    state: State, power_watts: float, is_held: bool
) -> None:
    """Of a range without power, or a job that held nothing, other things are missing."""
    jobs = (make_job().job_id if is_held else "no/job",)
    made = state(samples_of(power_watts=power_watts), jobs=jobs)
    assert (made.total.market_kgco2e is None) == (not is_held or power_watts != power_watts)
    assert not any("market-based" in line for line in made.unknown)


def test_the_making_of_an_unknown_model_is_unknown(state: State) -> None:
    """Never 0: named with its board-hours; the known half is told with the share it covers."""
    samples = samples_of()
    samples.loc[samples["gpu_uuid"] == "GPU-0001", "gpu_model"] = "Voodoo2"
    made = state(samples, by=GroupBy.MODEL)
    assert made.unknown_models == ("Voodoo2",)
    strange, known = row_named(made, "Voodoo2"), row_named(made, H100)
    assert (strange.embodied_kgco2e, strange.sci_gco2e, strange.embodied_share) == (None,) * 3
    assert strange.gpu_energy_kwh is not None
    assert parts(made.total.embodied_kgco2e) == parts(known.embodied_kgco2e)
    assert made.total.embodied_ratio == pytest.approx(0.5)
    assert made.total.embodied_share is None
    assert any("Voodoo2 (10 of 20 board-hours)" in line for line in made.unknown)
    assert any(entry.value == "unknown" and "Voodoo2" in entry.name for entry in made.told)


def test_a_stated_footprint_comes_first(state: State) -> None:
    """A setting makes the unknown known, and stands among the factors as the setting's."""
    energy = replace(GERMANY.energy, embodied_kgco2e=f"Voodoo2=10, {H100}=438")
    made = state(samples_of(), settings=replace(GERMANY, energy=energy))
    assert made.total.embodied_kgco2e is not None
    assert made.total.embodied_kgco2e.central == pytest.approx(438 * 20 / 43_800)
    (factor,) = [entry for entry in made.told if H100 in entry.name]
    assert "energy.embodied_kgco2e" in factor.source


@pytest.mark.parametrize("text", ["H100", "H100=", "=5", "H100=-1", "H100=nan", "H100=1e9"])
def test_a_footprint_that_is_none_is_refused(text: str) -> None:
    """With the setting's name."""
    with pytest.raises(SettingsError, match="embodied_kgco2e"):
        EnergySettings(embodied_kgco2e=text)


def test_power_that_was_never_reported_is_unknown(state: State) -> None:
    """No kWh, no emissions, no SCI; the board-hours and the work held are known all the same."""
    made = state(samples_of(power_watts=float("nan")))
    total = made.total
    assert (total.gpu_energy_kwh, total.location_kgco2e, total.sci_gco2e) == (None,) * 3
    assert (total.electricity_cost, total.market_kgco2e) == (None, None)
    assert (total.gpu_hours, total.measured_hours) == (pytest.approx(20), 0)
    assert made.completeness_ratio == 0
    assert total.embodied_kgco2e is not None


def test_half_measured_says_half(state: State) -> None:
    """One of two boards reports power: energy is the other's, and half of the time is known."""
    samples = samples_of()
    samples.loc[samples["gpu_uuid"] == "GPU-0001", "power_watts"] = float("nan")
    made = state(samples)
    assert made.total.gpu_energy_kwh is not None
    assert made.total.gpu_energy_kwh.central == pytest.approx(4)
    assert made.completeness_ratio == pytest.approx(0.5)
    assert made.total.work_gpu_hours == pytest.approx(5)
    assert any("50.0 % of the board-time" in line for line in made.unknown)


def test_a_gap_is_board_time_that_nobody_observed(state: State) -> None:
    """Five of ten hours are lost: a row of their own, unknown, and half of completeness."""
    samples = samples_of()
    lost = samples["sampled_at"].between(
        pd.Timestamp(NOW - timedelta(hours=7)), pd.Timestamp(NOW - timedelta(hours=2))
    )
    made = state(samples[~lost], by=GroupBy.TENANT)
    missing = row_named(made, "(not observed)")
    assert missing.holder is Holder.MISSING
    assert missing.board_hours == pytest.approx(10, abs=0.1)
    assert (missing.gpu_energy_kwh, missing.gpu_hours, missing.embodied_kgco2e) == (None,) * 3
    assert made.completeness_ratio == pytest.approx(0.5, abs=0.01)


def test_a_board_that_was_added_is_not_missing_before(state: State) -> None:
    """It counts from when it appeared among boards that were watched; the first boards do not."""
    old = samples_of(hours=10)
    new = old[(old["gpu_uuid"] == "GPU-0001") & (old["sampled_at"] >= NOW - timedelta(hours=5))]
    samples = pd.concat([old[old["gpu_uuid"] == "GPU-0000"], new])
    assert state(samples).expected_hours == pytest.approx(15)
    assert state(samples, start=timedelta(hours=20)).expected_hours == pytest.approx(25)


@pytest.mark.parametrize("minutes", [0, 5, 30, 55])
def test_a_board_is_not_missing_before_it_joined_within_an_hour(state: State, minutes: int) -> None:
    """It counts from its first reading, not from the hour of it."""
    joined = NOW - timedelta(hours=5) + timedelta(minutes=minutes)
    samples = samples_of()
    is_new = samples["gpu_uuid"] == "GPU-0001"
    made = state(samples[~is_new | (samples["sampled_at"] >= joined)])
    assert made.expected_hours == pytest.approx(15 - minutes / 60, abs=0.02)
    assert made.completeness_ratio == pytest.approx(1, abs=0.002)


@pytest.mark.parametrize("boards", [1, 2])
def test_a_range_within_an_outage_is_not_observed(state: State, boards: int) -> None:
    """Boards that were seen before the range and after it were there in it."""
    samples = samples_of()
    is_lost = samples["sampled_at"].between(
        pd.Timestamp(NOW - timedelta(hours=7)), pd.Timestamp(NOW - timedelta(hours=2))
    ) & (samples["gpu_uuid"] > f"GPU-{1 - boards:04}")
    made = state(
        samples[~is_lost], start=timedelta(hours=6), until=timedelta(hours=3), by=GroupBy.TENANT
    )
    assert made.expected_hours == pytest.approx(6)
    assert row_named(made, "(not observed)").board_hours == pytest.approx(3 * boards)


def test_tenants_are_what_the_settings_say(state: State) -> None:
    """Accounts of the scheduler; without one, a name that says so."""
    facts = SchedulerFacts(account="physics")
    samples = samples_of()
    samples.loc[samples["gpu_uuid"] == "GPU-0001", "job_id"] = "x/y"
    jobs = (make_job(scheduler=facts), make_job("x/y"))
    by_account = replace(GERMANY, tenants=TenantSettings(by="account"))
    made = state(samples, jobs, settings=by_account, by=GroupBy.TENANT)
    assert made.tenant_is == "account"
    assert {row.name for row in made.rows} == {"physics", "(unknown)"}


@pytest.mark.parametrize("by", [entry for entry in GroupBy if entry is not GroupBy.NODE])
def test_an_edition_holds_nothing_of_others(state: State, by: GroupBy) -> None:
    """Of two jobs on three boards, one free, only the asked one's energy and name."""
    samples = make_samples(gpus=3, minutes=601)
    samples.loc[samples["gpu_uuid"] == "GPU-0001", "job_id"] = "secret/job"
    free = samples["gpu_uuid"] == "GPU-0002"
    samples.loc[free, ["job_id", "utilization_ratio", "memory_used_mib"]] = ["", 0.0, 0.0]
    jobs = (make_job(), make_job("secret/job", namespace="secret", owner="secret"))
    made = state(samples, jobs, by=by, jobs={jobs[0].job_id: jobs[0]})
    assert made.total.gpu_energy_kwh is not None
    assert made.total.gpu_energy_kwh.central == pytest.approx(4)
    assert "secret" not in str(made.rows)
    assert (made.expected_hours, len(made.rows)) == (None, 1)
    assert made.completeness_ratio == pytest.approx(1)


def test_what_nobody_held_has_no_work_but_energy(state: State) -> None:
    """A free board's energy is the fleet's overhead: in the total's SCI, in no job's."""
    samples = samples_of()
    free = samples["gpu_uuid"] == "GPU-0001"
    samples.loc[free, ["job_id", "utilization_ratio", "memory_used_mib"]] = ["", 0.0, 0.0]
    made = state(samples, by=GroupBy.JOB)
    idle, job = row_named(made, "(not allocated)"), row_named(made, "search/ranker-0")
    assert idle.sci_gco2e is None
    assert (idle.gpu_hours, idle.idle_gpu_hours) == (0, 0)
    assert job.sci_gco2e is not None
    assert made.total.sci_gco2e is not None
    assert made.total.sci_gco2e.central == pytest.approx(2 * job.sci_gco2e.central)


def test_an_empty_store_knows_nothing(tmp_path: Path) -> None:
    """No rows, no zero amounts, no completeness."""
    with open_store(f"duckdb:///{tmp_path}/e.duckdb") as store:
        for by in GroupBy:
            made = make_statement(store.reader, start=NOW - HOURS, end=NOW, settings=GERMANY, by=by)
            assert (made.rows, made.completeness_ratio) == ((), None)
            assert made.total.gpu_energy_kwh is None
            assert made.total.embodied_kgco2e is None
