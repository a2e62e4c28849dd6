"""The price and the carbon of a kWh follow the hours of the day that the settings state."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from data.base.errors import SettingsError
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.grid_forecast import GridForecast, GridOutlook
from data.settings.all_settings import PlanningSettings
from data.settings.energy import EnergySettings
from planner.costs.tariffs import tariff_of

MIDNIGHT = datetime(2026, 1, 5, tzinfo=UTC)
HOURS = ",".join(str(hour) for hour in range(24))
CARBON = load_carbon_table().get("DEU")


def test_without_hours_every_slot_costs_the_same() -> None:
    """The flat price and the annual average are the default."""
    starts = [MIDNIGHT + timedelta(hours=hour) for hour in range(30)]
    found = tariff_of(starts, timedelta(hours=1), energy=EnergySettings(), carbon=CARBON)
    assert found.electricity == pytest.approx(0.20)
    assert found.gco2e == pytest.approx(CARBON.gco2e_per_kwh)
    assert not found.hourly_carbon


def test_hours_repeat_each_day_and_count_in_local_time() -> None:
    """Two hours ahead of UTC, midnight UTC is two o'clock."""
    energy = EnergySettings(electricity_price_by_hour=HOURS, hours_zone="+02:00")
    starts = [MIDNIGHT, MIDNIGHT + timedelta(hours=23), MIDNIGHT + timedelta(hours=24)]
    found = tariff_of(starts, timedelta(hours=1), energy=energy, carbon=CARBON)
    assert found.electricity.tolist() == [2.0, 1.0, 2.0]


ZONES = ("Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "UTC")


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("minutes", [5, 30, 60])
@pytest.mark.parametrize("day", [(3, 8), (3, 29), (4, 5), (10, 4), (10, 25), (11, 1), (7, 1)])
def test_hours_are_those_of_their_zone(zone: str, minutes: int, day: tuple[int, int]) -> None:
    """Also over the nights in which its clocks change, by an hour or by half of one."""
    energy = EnergySettings(electricity_price_by_hour=HOURS, hours_zone=zone)
    slot, first = timedelta(minutes=minutes), datetime(2026, *day, tzinfo=UTC) - timedelta(days=1)
    starts = [first + number * slot for number in range(timedelta(days=2) // slot)]
    found = tariff_of(starts, slot, energy=energy, carbon=CARBON)
    wanted = [
        np.mean(
            [
                (start + timedelta(minutes=at)).astimezone(ZoneInfo(zone)).hour
                for at in range(0, minutes, 5)
            ]
        )
        for start in starts
    ]
    assert found.electricity == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
        ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
        ("America/St_Johns", datetime(2026, 3, 8, 5, 30, tzinfo=UTC)),
        ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("slots", [1, 6])
def test_the_last_hour_that_is_looked_at_may_begin_with_a_change_of_clocks(
    zone: str, change: datetime, slots: int
) -> None:
    """The last of the slots ahead, of five minutes, begins at the very moment."""
    energy = EnergySettings(electricity_price_by_hour=HOURS, hours_zone=zone)
    slot = timedelta(minutes=5)
    starts = [change - number * slot for number in range(2 * slots - 1, slots - 1, -1)]
    found = tariff_of(starts, slot, energy=energy, carbon=CARBON)
    assert found.electricity_ahead[-1] == change.astimezone(ZoneInfo(zone)).hour


@pytest.mark.parametrize("zone", ["Europe/Berln", "+2", "+15:00", "../etc", "CEST"])
def test_a_zone_that_is_none_is_refused(zone: str) -> None:
    """By name."""
    with pytest.raises(SettingsError, match="hours_zone"):
        EnergySettings(hours_zone=zone)


def test_long_slots_have_the_mean_of_their_hours() -> None:
    """A slot of a whole day costs the mean of the day."""
    energy = EnergySettings(carbon_by_hour=HOURS)
    found = tariff_of([MIDNIGHT], timedelta(days=1), energy=energy, carbon=CARBON)
    assert found.gco2e[0] == pytest.approx(11.5)


def test_a_price_of_carbon_is_part_of_a_kwh() -> None:
    """100 per tonne at 400 g/kWh are four hundredths a kWh."""
    energy = EnergySettings(carbon_by_hour=",".join(["400"] * 24), carbon_price_per_tonne=100)
    found = tariff_of([MIDNIGHT], timedelta(hours=1), energy=energy, carbon=CARBON)
    assert found.per_kwh[0] == pytest.approx(0.20 + 0.04)


def told(values: list[float | None], first: datetime = MIDNIGHT, **more: Any) -> GridOutlook:
    """A forecast of carbon by the hour."""
    return GridOutlook(
        forecast=GridForecast(
            issued_at=first,
            starts=tuple(first + timedelta(hours=hour) for hour in range(len(values))),
            step=timedelta(hours=1),
            gco2e_per_kwh=tuple(values),
            price_per_kwh=more.get("prices", (None,) * len(values)),
        )
    )


def test_a_forecast_comes_before_the_hours_of_the_day() -> None:
    """Each slot has the hours that it covers, slots of half an hour and of two hours alike."""
    grid = told([float(hour) for hour in range(48)], prices=(-0.1,) * 48)
    for minutes in (30, 60, 120):
        slot = timedelta(minutes=minutes)
        starts = [MIDNIGHT + timedelta(hours=4) + number * slot for number in range(4)]
        found = tariff_of(starts, slot, energy=EnergySettings(), carbon=CARBON, grid=grid)
        hours = 4 + np.arange(4) * minutes / 60
        wanted = np.floor(hours) + (0.5 if minutes == 120 else 0.0)
        assert found.gco2e == pytest.approx(wanted)
        assert found.electricity == pytest.approx(-0.1)
        assert found.hourly_carbon
        assert found.mean_gco2e == pytest.approx(np.mean(range(4, 28)))


def test_hours_that_no_forecast_tells_have_its_level() -> None:
    """A week twice as clean as usual: hours beyond the forecast keep the shape of the day."""
    by_hour = [100.0] * 12 + [300.0] * 12
    energy = EnergySettings(carbon_by_hour=",".join(map(str, by_hour)))
    starts = [MIDNIGHT + timedelta(hours=hour) for hour in range(24)]
    grid = told([50.0, None, *[50.0] * 4])
    found = tariff_of(starts, timedelta(hours=1), energy=energy, carbon=CARBON, grid=grid)
    assert found.gco2e == pytest.approx([50.0] * 12 + [150.0] * 12)
    assert found.mean_gco2e == pytest.approx(100)
    assert found.electricity == pytest.approx(0.20)
    flat = tariff_of(starts, timedelta(hours=1), energy=EnergySettings(), carbon=CARBON, grid=grid)
    assert flat.gco2e == pytest.approx(50)


def test_a_forecast_that_is_over_says_nothing_of_now() -> None:
    """Its last hour ends; what follows is an hour of the day at its level."""
    grid = told([500.0], MIDNIGHT - timedelta(hours=1))
    found = tariff_of(
        [MIDNIGHT],
        timedelta(hours=1),
        energy=EnergySettings(carbon_by_hour=",".join(["100"] * 23 + ["1000"])),
        carbon=CARBON,
        grid=grid,
    )
    assert found.gco2e[0] == pytest.approx(50)


@pytest.mark.parametrize("hours", ["1,2,3", "a,b", ",".join(["-1"] * 24), "nan," * 24])
def test_hours_that_are_no_day_are_refused(hours: str) -> None:
    """Twenty-four finite values of at least 0, or none; the message names the setting."""
    with pytest.raises(SettingsError, match="electricity_price_by_hour"):
        EnergySettings(electricity_price_by_hour=hours)


def test_a_cap_below_half_of_the_tdp_is_refused() -> None:
    """There a cap can cost energy."""
    with pytest.raises(SettingsError, match="power_cap_ratios"):
        PlanningSettings(power_cap_ratios="0.7,0.4")
