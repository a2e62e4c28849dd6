"""Forecasts of providers for the grid's next hours: average carbon, and day-ahead prices.

| provider | asked | unit |
|---|---|---|
| Electricity Maps | `/v3/carbon-intensity/forecast`, header `auth-token` | gCO2e/kWh, life cycle |
| WattTime | `/login`, then `/v3/forecast` of `co2_aoer` (average, not marginal) | lb CO2/MWh |
| Carbon Intensity API (Great Britain) | `/intensity/FROM/fw48h`, no account | gCO2/kWh |
| ENTSO-E | document A44 (day-ahead prices) of a bidding zone, as XML | money/MWh |
"""

import csv
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree as Xml

import requests
from urllib3.exceptions import HTTPError

from collectors.shared.http_deadline import sent, whole_body
from data.base.errors import (
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.base.files import text_of_setting
from data.settings.energy import GridSettings

TIMEOUT_SECONDS = 20.0
_MAX_BYTES = 4 << 20
_GRAMS_PER_POUND = 453.59237
_FORECAST_SPAN = timedelta(hours=48)
_RESOLUTION = re.compile(r"PT(\d{1,4})M", re.ASCII)
_LARGEST = 1e5

_TABLE = files("collectors.grid").joinpath("addresses.csv").read_text(encoding="utf-8")
ADDRESSES = dict(csv.reader(_TABLE.splitlines()))
Hours = dict[datetime, float]
"""Values by start (UTC): each is valid from its start on."""


def carbon_ahead(settings: GridSettings, now: datetime) -> Hours:
    """Return the forecast of average carbon in gCO2e/kWh. Errors: CollectorError."""
    return _CARBON[settings.carbon](_GridProvider(settings, settings.carbon), now)


def price_ahead(settings: GridSettings, now: datetime, currency: str) -> Hours:
    """Return day-ahead prices per kWh in a currency. Errors: CollectorError."""
    return _entsoe(_GridProvider(settings, settings.price), now, currency)


@dataclass(frozen=True, slots=True)
class _GridProvider:
    """One provider as the settings have it."""

    settings: GridSettings
    name: str

    def get(
        self,
        url: str,
        headers: Mapping[str, str],
        auth: tuple[str, str] | None = None,
        **query: str,
    ) -> bytes:
        """Return the body of an answer. Errors: CollectorError."""
        try:
            with sent(
                "GET",
                url,
                seconds=TIMEOUT_SECONDS,
                trust_env=True,
                headers=dict(headers),
                params=query,
                auth=auth,
            ) as response:
                ends = time.monotonic() + TIMEOUT_SECONDS
                body = whole_body(response, ends=ends, max_bytes=_MAX_BYTES)
                status = response.status_code
        except (requests.RequestException, HTTPError, OSError, ValueError) as error:
            raise SourceUnreachableError(
                f"{self.name} gave no answer: {type(error).__name__}",
                "Does this machine reach it? Behind a proxy, set HTTPS_PROXY.",
            ) from error
        if status in (401, 403):
            raise SourceRefusedError(
                f"{self.name} refused ({status}): {scrub(body[:200].decode(errors='replace'))}",
                "Check the token, and that it is good for this zone.",
            )
        if status != requests.codes.ok:
            text = scrub(body[:200].decode(errors="replace"))
            raise UnexpectedAnswerError(f"{self.name} answered {status}: {text}", "Ask later.")
        return body

    def token(self, path: str, setting: str) -> str:
        """Return the content of a secret's file. Errors: SourceNotConfiguredError."""
        text = text_of_setting(path, setting, "Write the token alone into it.")
        if not text.isprintable() or not text:
            raise SourceNotConfiguredError(
                f"{setting} {path} holds no token", "Write the token alone into it."
            )
        return text

    def json(self, body: bytes) -> Any:
        """Return the JSON of a body. Errors: UnexpectedAnswerError."""
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self.odd("no JSON") from error

    def odd(self, what: str) -> CollectorError:
        """Return the error of an answer that is none of its provider's."""
        return UnexpectedAnswerError(
            f"{self.name} answered {what}", "Was its address or its answer changed?"
        )

    def hours(self, pairs: list[tuple[object, object]], times: float = 1.0) -> Hours:
        """Return (time, value) pairs as hours; one that is neither is an error."""
        hours: Hours = {}
        for at, value in pairs:
            start = _time(at)
            if start is None or isinstance(value, bool) or not isinstance(value, int | float):
                raise self.odd(f"{scrub(repr(value))} for {scrub(repr(at))}")
            if not math.isfinite(value) or abs(value) > _LARGEST:
                raise self.odd(f"{value} for {start:%Y-%m-%d %H:%M} UTC")
            hours[start] = float(value) * times
        if not hours:
            raise self.odd("no hour at all")
        return hours


def _electricity_maps(asking: _GridProvider, _now: datetime) -> Hours:
    settings = asking.settings
    document = asking.json(
        asking.get(
            f"{ADDRESSES[asking.name]}/v3/carbon-intensity/forecast",
            {"auth-token": asking.token(settings.token_file, "grid.token_file")},
            zone=settings.zone,
        )
    )
    rows = _rows(document, "forecast")
    return asking.hours([(row.get("datetime"), row.get("carbonIntensity")) for row in rows])


def _watttime(asking: _GridProvider, _now: datetime) -> Hours:
    settings = asking.settings
    base = ADDRESSES[asking.name]
    password = asking.token(settings.token_file, "grid.token_file")
    login = asking.json(asking.get(f"{base}/login", {}, (settings.user, password)))
    token = login.get("token") if isinstance(login, dict) else None
    if not isinstance(token, str) or not token.isprintable():
        raise asking.odd("no token")
    document = asking.json(
        asking.get(
            f"{base}/v3/forecast",
            {"Authorization": f"Bearer {token}"},
            region=settings.zone,
            signal_type="co2_aoer",
        )
    )
    meta = document.get("meta") if isinstance(document, dict) else None
    units = meta.get("units") if isinstance(meta, dict) else None
    if units != "lbs_co2_per_mwh":
        raise asking.odd(f"values in {scrub(repr(units))}, not in lbs_co2_per_mwh")
    rows = _rows(document, "data")
    pairs = [(row.get("point_time"), row.get("value")) for row in rows]
    return asking.hours(pairs, _GRAMS_PER_POUND / 1000)


def _uk(asking: _GridProvider, now: datetime) -> Hours:
    base = ADDRESSES[asking.name]
    document = asking.json(asking.get(f"{base}/intensity/{now:%Y-%m-%dT%H:%MZ}/fw48h", {}))
    pairs = []
    for row in _rows(document, "data"):
        intensity = row.get("intensity")
        value = intensity.get("forecast") if isinstance(intensity, dict) else None
        pairs.append((row.get("from"), value))
    return asking.hours(pairs)


def _entsoe(asking: _GridProvider, now: datetime, currency: str) -> Hours:
    settings = asking.settings
    start = now.replace(minute=0, second=0, microsecond=0)
    body = asking.get(
        ADDRESSES[asking.name],
        {},
        securityToken=asking.token(settings.price_token_file, "grid.price_token_file"),
        documentType="A44",
        in_Domain=settings.price_zone,
        out_Domain=settings.price_zone,
        periodStart=f"{start:%Y%m%d%H%M}",
        periodEnd=f"{start + _FORECAST_SPAN:%Y%m%d%H%M}",
    )
    document = _xml(asking, body)
    if (why := _text(document, ".//Reason/text")) and document.find(".//TimeSeries") is None:
        raise asking.odd(f"no prices: {scrub(why)}")
    price_by_start: Hours = {}
    for series in document.iterfind(".//TimeSeries"):
        units = _text(series, "currency_Unit.name"), _text(series, "price_Measure_Unit.name")
        if units != (currency, "MWH"):
            raise asking.odd(
                f"prices in {scrub(' per '.join(units))}, energy.currency is {currency}"
            )
        for period in series.iterfind("Period"):
            price_by_start |= _of_period(asking, period)
    added = settings.price_added_per_kwh
    prices = asking.hours(list(price_by_start.items()), 1 / 1000)
    return {at: price + added for at, price in prices.items()}


def _of_period(asking: _GridProvider, period: Xml.Element) -> Hours:
    """Return the prices of a period: a position that is left out has the price before it (A03)."""
    start, end = (_time(_text(period, f"timeInterval/{name}")) for name in ("start", "end"))
    minutes = _RESOLUTION.fullmatch(_text(period, "resolution"))
    if start is None or end is None or minutes is None or not int(minutes[1]):
        raise asking.odd("a period without times")
    step = timedelta(minutes=int(minutes[1]))
    count = int((end - start) / step)
    if not 0 < count <= 1000:
        raise asking.odd(f"a period of {count} prices")
    price_by_position: dict[int, float] = {}
    for point in period.iterfind("Point"):
        try:
            price_by_position[int(_text(point, "position"))] = float(_text(point, "price.amount"))
        except ValueError as error:
            raise asking.odd("a price that is no number") from error
    if 1 not in price_by_position:
        raise asking.odd("a period without its first price")
    price_by_start, price = {}, price_by_position[1]
    for position in range(1, count + 1):
        price = price_by_position.get(position, price)
        price_by_start[start + (position - 1) * step] = price
    return price_by_start


def _xml(asking: _GridProvider, body: bytes) -> Xml.Element:
    """Return a document without namespaces. Entities are refused, so that none expands."""
    if b"<!" in body:
        raise asking.odd("a document with declarations")
    try:
        document = Xml.fromstring(body)  # noqa: S314 - no declaration, hence no entity, is in it
    except Xml.ParseError as error:
        raise asking.odd("no XML") from error
    for element in document.iter():
        element.tag = element.tag.rpartition("}")[2]
    return document


def _text(element: Xml.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _rows(document: object, name: str) -> list[dict[str, Any]]:
    rows = document.get(name) if isinstance(document, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _time(value: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(value))
        return at.astimezone(UTC) if at.tzinfo else None
    except (ValueError, OverflowError):
        return None


_CARBON: Mapping[str, Callable[[_GridProvider, datetime], Hours]] = {
    "electricity-maps": _electricity_maps,
    "uk-carbon-intensity": _uk,
    "watttime": _watttime,
}
