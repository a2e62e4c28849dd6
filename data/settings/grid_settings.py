"""The settings of who forecasts the grid's carbon and price."""

from dataclasses import dataclass

from data.base.state_folder import USUAL
from data.settings.fields import Section, documented, documented_path

CARBON_PROVIDERS = ("electricity-maps", "uk-carbon-intensity", "watttime")
PRICE_PROVIDERS = ("entsoe",)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSettings(Section, name="grid"):
    """Providers of the grid's hours ahead, asked by every cycle; carbon is the average."""

    carbon: str = documented(
        "",
        "who forecasts carbon: electricity-maps, uk-carbon-intensity or watttime; empty: nobody",
        choices=(*CARBON_PROVIDERS, ""),
    )
    zone: str = documented(
        "", "the provider's word for the grid: a zone (DE), a region (CAISO_NORTH); not for the UK"
    )
    user: str = documented("", "user of watttime")
    token_file: str = documented_path(
        "", "file with the token of electricity-maps or the password of watttime, read anew"
    )
    price: str = documented(
        "",
        "who tells day-ahead prices: entsoe; empty: nobody",
        choices=(*PRICE_PROVIDERS, ""),
    )
    price_zone: str = documented(
        "", "EIC code of the bidding zone, such as 10Y1001A1001A82H (Germany and Luxembourg)"
    )
    price_token_file: str = documented_path("", "file with the security token, read anew")
    price_added_per_kwh: float = documented(
        0.0,
        "what a kWh costs beyond the exchange (grid fees, taxes), in energy.currency",
        minimum=0,
        maximum=100,
    )
    interval_minutes: float = documented(
        60.0, "age of what was told from which it is asked for anew, min", minimum=5, maximum=1440
    )
    timeout_seconds: float = documented(20.0, "total time for one request, s", above=0, maximum=600)
    carbon_url: str = documented("", "address of the provider of carbon, or of a proxy before it")
    price_url: str = documented("", "address of the provider of prices, or of a proxy before it")
    file: str = documented_path(
        f"{USUAL}/grid_forecast.json", "file that keeps what was told, in the form of a forecast"
    )

    def _check(self) -> None:
        needs = {
            "carbon_url": bool(self.carbon),
            "price_url": bool(self.price),
            "zone": self.carbon in ("electricity-maps", "watttime"),
            "token_file": self.carbon in ("electricity-maps", "watttime"),
            "user": self.carbon == "watttime",
            "price_zone": bool(self.price),
            "price_token_file": bool(self.price),
        }
        for name, needed in needs.items():
            asked = self.price if name.startswith("price") else self.carbon
            self.require(bool(getattr(self, name)) or not needed, name, f"given for {asked}")
        for name in ("carbon_url", "price_url"):
            address = getattr(self, name)
            self.require(
                not address or address.startswith(("http://", "https://")),
                name,
                "an http:// or https:// address",
            )

    @property
    def in_use(self) -> bool:
        """Whether anybody is asked."""
        return bool(self.carbon or self.price)
