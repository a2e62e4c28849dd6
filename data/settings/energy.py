"""The settings of energy: what turns board power into site energy, emissions and money."""

import re
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo

from data.base.clock import find_zone
from data.base.state_folder import DEFAULT_FOLDER
from data.settings.fields import (
    Section,
    documented,
    documented_list,
    documented_path,
    entries,
    fixed_path,
    number_in,
    numbers_in,
)

PUE_UNCERTAINTY = 0.1
"""Half-width of the range of a PUE: season and load."""
_OFFSET = re.compile(r"([+-])(0\d|1[0-4]):([0-5]\d)")
CARBON_PROVIDERS = ("electricity-maps", "uk-carbon-intensity", "watttime")


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSettings(Section, name="grid"):
    """Providers of the grid's hours ahead, asked by every cycle; carbon is the average."""

    carbon: str = documented(
        "",
        "who forecasts carbon; empty: nobody",
        choices=(*CARBON_PROVIDERS, ""),
    )
    zone: str = documented(
        "", "the provider's word for the grid: a zone (DE), a region (CAISO_NORTH); not for the UK"
    )
    user: str = documented("", "user of watttime")
    token_file: str = documented_path(
        "", "file with the token of electricity-maps or the password of watttime, read anew"
    )
    price_zone: str = documented(
        "",
        "EIC code of the zone whose day-ahead prices ENTSO-E is asked for, such as "
        "10Y1001A1001A82H (Germany and Luxembourg); empty: nobody is asked",
    )
    price_token_file: str = documented_path("", "file with the security token, read anew")
    price_added_per_kwh: float = documented(
        0.0,
        "what a kWh costs beyond the exchange (grid fees, taxes), in energy.currency",
        minimum=0,
        maximum=100,
    )
    # What was told, in the form of a forecast.
    file: str = fixed_path(f"{DEFAULT_FOLDER}/grid_forecast.json")

    def _check(self) -> None:
        needs = {
            "zone": self.carbon in ("electricity-maps", "watttime"),
            "token_file": self.carbon in ("electricity-maps", "watttime"),
            "user": self.carbon == "watttime",
            "price_token_file": bool(self.price_zone),
        }
        for name, needed in needs.items():
            provider = self.price if name.startswith("price") else self.carbon
            self.require(bool(getattr(self, name)) or not needed, name, f"given for {provider}")

    @property
    def price(self) -> str:
        """Return the provider of day-ahead prices: entsoe, where a zone is given, else ''."""
        return "entsoe" if self.price_zone else ""

    @property
    def in_use(self) -> bool:
        """Return whether any provider is asked."""
        return bool(self.carbon or self.price)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySettings(Section, name="energy"):
    """Factors from board power to site energy, emissions and money."""

    region: str = documented("WORLD", "grid region of the carbon table, such as DEU or USA")
    pue: float = documented(
        1.54, "power usage effectiveness of the site (Uptime 2025 average)", minimum=1, maximum=4
    )
    electricity_price_per_kwh: float = documented(
        0.20, "electricity price, currency per kWh", minimum=0, maximum=100
    )
    electricity_price_by_hour: str = documented_list(
        "", "its price in each hour of the day, 24 comma-separated values; empty: always the same"
    )
    carbon_by_hour: str = documented_list(
        "", "grid carbon in each hour of the day, 24 gCO2e/kWh; empty: the region's annual average"
    )
    hours_zone: str = documented(
        "",
        "zone of these hours, such as Europe/Berlin, or +01:00 all year; empty: UTC",
    )
    forecast_file: str = documented_path(
        "", "CSV or JSON file of forecast carbon and price; overrides the hours of the day"
    )
    carbon_price_per_tonne: float = documented(
        0.0, "price that plans put on a tonne of CO2e, location-based", minimum=0, maximum=10_000
    )
    market_gco2e_per_kwh: float = documented(
        -1.0,
        "market-based factor (contracts, residual mix), gCO2e/kWh; below 0: not known",
        minimum=-1e4,
        maximum=1e4,
    )
    embodied_kgco2e: str = documented_list(
        "", "embodied footprint of a GPU, kgCO2e, such as L40S-48GB=150; overrides the catalogue's"
    )
    currency: str = documented("EUR", "currency of all prices")

    def _check(self) -> None:
        self.require(
            self.currency.isalpha() and len(self.currency) <= 8,
            "currency",
            "the letters of a currency, such as EUR or USD",
        )
        self.require(
            all(name and 0 <= value <= 1e6 for name, value in self.stated_footprints.items()),
            "embodied_kgco2e",
            "a list of MODEL=kgCO2e, such as L40S-48GB=150, A30-24GB=110",
        )
        stated = not self.hours_zone or _OFFSET.fullmatch(self.hours_zone)
        zones = "an IANA zone such as Europe/Berlin, hours ahead of UTC such as +01:00, or empty"
        self.require(bool(stated or find_zone(self.hours_zone)), "hours_zone", zones)
        for name, highest in (("electricity_price_by_hour", 100), ("carbon_by_hour", 1e4)):
            hours = numbers_in(getattr(self, name), f"energy.{name}")
            self.require(
                len(hours) in (0, 24) and all(0 <= hour <= highest for hour in hours),
                name,
                f"24 values of 0 to {highest:g}, from the hour after midnight on, or empty",
            )

    @property
    def zone(self) -> tzinfo:
        """Return the zone of the hours of the day."""
        if (offset := _OFFSET.fullmatch(self.hours_zone)) is None:
            return find_zone(self.hours_zone) or UTC
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-ahead if offset[1] == "-" else ahead)

    @property
    def prices_by_hour(self) -> tuple[float, ...]:
        """Return the electricity price of each hour of the day, 24 values per kWh."""
        prices = numbers_in(self.electricity_price_by_hour, "energy.electricity_price_by_hour")
        return prices or (self.electricity_price_per_kwh,) * 24

    @property
    def carbon_hours(self) -> tuple[float, ...]:
        """Return the grid carbon of each hour of the day in gCO2e/kWh, () when only a year's is."""
        return numbers_in(self.carbon_by_hour, "energy.carbon_by_hour")

    @property
    def stated_footprints(self) -> dict[str, float]:
        """Return the footprints of making a GPU by model, kgCO2e; NaN for what is no number."""
        pairs = (part.rpartition("=") for part in entries(self.embodied_kgco2e))
        return {name.strip(): number_in(value) for name, _equals, value in pairs}

    @property
    def market_factor(self) -> float | None:
        """Return the market-based factor in gCO2e/kWh, None when it is not known."""
        return None if self.market_gco2e_per_kwh < 0 else self.market_gco2e_per_kwh
