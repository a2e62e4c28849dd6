"""What providers say of the grid's next hours: their published answers, and whatever else comes.

No provider is reached: a server on this machine answers as their documentation has it.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.grid import providers
from collectors.grid.providers import _GridProvider, _of_period, _xml, carbon_ahead, price_ahead
from data.base.errors import (
    CollectorError,
    SettingsError,
    SourceRefusedError,
    SourceUnreachableError,
)
from data.settings.energy import GridSettings

NOW = datetime(2026, 1, 5, 12, 10, tzinfo=UTC)
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
ZONE = "10Y1001A1001A82H"
ELECTRICITY_MAPS = {
    "zone": "DE",
    "forecast": [
        {"carbonIntensity": 326, "datetime": "2026-01-05T12:00:00.000Z"},
        {"carbonIntensity": 297.5, "datetime": "2026-01-05T13:00:00.000Z"},
    ],
    "updatedAt": "2026-01-05T11:50:01.000Z",
}
WATTTIME = {
    "data": [
        {"point_time": "2026-01-05T12:00:00+00:00", "value": 870.0},
        {"point_time": "2026-01-05T12:05:00+00:00", "value": 880.0},
    ],
    "meta": {
        "region": "CAISO_NORTH",
        "signal_type": "co2_aoer",
        "units": "lbs_co2_per_mwh",
        "generated_at": "2026-01-05T11:55:00+00:00",
    },
}
UK = {
    "data": [
        {
            "from": "2026-01-05T12:00Z",
            "to": "2026-01-05T12:30Z",
            "intensity": {"forecast": 266, "actual": 263, "index": "moderate"},
        },
        {
            "from": "2026-01-05T12:30Z",
            "to": "2026-01-05T13:00Z",
            "intensity": {"forecast": 251, "actual": None, "index": "moderate"},
        },
    ]
}
SPACE = 'xmlns="urn:iec62325.351:tc57wg16:451-3:publicationdocument:7:3"'


def entsoe(
    points: dict[int, float], *, minutes: int = 60, hours: int = 4, currency: str = "EUR"
) -> str:
    """A document of day-ahead prices; positions may be left out (curve type A03)."""
    end = NOON + timedelta(hours=hours)
    rows = "".join(
        f"<Point><position>{at}</position><price.amount>{price}</price.amount></Point>"
        for at, price in points.items()
    )
    return (
        f'<?xml version="1.0" encoding="utf-8"?><Publication_MarketDocument {SPACE}>'
        f"<type>A44</type><TimeSeries><currency_Unit.name>{currency}</currency_Unit.name>"
        "<price_Measure_Unit.name>MWH</price_Measure_Unit.name><curveType>A03</curveType>"
        f"<Period><timeInterval><start>{NOON:%Y-%m-%dT%H:%MZ}</start>"
        f"<end>{end:%Y-%m-%dT%H:%MZ}</end></timeInterval>"
        f"<resolution>PT{minutes}M</resolution>{rows}</Period></TimeSeries>"
        "</Publication_MarketDocument>"
    )


Asked = dict[str, list[str]]
Answer = Callable[[str, Asked, dict[str, str]], tuple[int, bytes]]


@contextmanager
def provider(answer: Answer) -> Iterator[str]:
    """A server that answers (path, query, headers) with (status, body); give its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            status, body = answer(asked.path, parse_qs(asked.query), dict(self.headers.items()))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def _own_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses that a test may change, and no proxy on the way to them."""
    monkeypatch.setattr(providers, "ADDRESSES", dict(providers.ADDRESSES))
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def token(tmp_path: Path) -> str:
    """A file with a token."""
    path = tmp_path / "token"
    path.write_text("s3cret\n", encoding="utf-8")
    return str(path)


def settings_of(name: str, url: str, token: str) -> GridSettings:
    """The settings of one provider."""
    if name == "entsoe":
        providers.ADDRESSES["entsoe"] = f"{url}/api"
        return GridSettings(price_zone=ZONE, price_token_file=token)
    zone = "" if name == "uk-carbon-intensity" else "DE"
    providers.ADDRESSES[name] = url
    return GridSettings(carbon=name, zone=zone, user="ada", token_file=token)


def ask(settings: GridSettings) -> dict[datetime, float]:
    """What the provider says."""
    if settings.carbon:
        return carbon_ahead(settings, NOW)
    return price_ahead(settings, NOW, "EUR")


def test_electricity_maps_tells_grams(token: str) -> None:
    """By its header of sign-in, for a zone."""
    asked = []

    def answer(
        path: str, query: dict[str, list[str]], headers: dict[str, str]
    ) -> tuple[int, bytes]:
        asked.append((path, query, headers["auth-token"]))
        return 200, json.dumps(ELECTRICITY_MAPS).encode()

    with provider(answer) as url:
        found = ask(settings_of("electricity-maps", url, token))
    assert found == {NOON: 326, NOON + timedelta(hours=1): 297.5}
    assert asked == [("/v3/carbon-intensity/forecast", {"zone": ["DE"]}, "s3cret")]


def test_watttime_tells_pounds_and_average_is_asked_for(token: str) -> None:
    """Marginal carbon is another quantity, and never mixed with the average."""
    asked = []

    def answer(
        path: str, query: dict[str, list[str]], headers: dict[str, str]
    ) -> tuple[int, bytes]:
        asked.append((path, query.get("signal_type"), headers["Authorization"].partition(" ")[0]))
        body = {"token": "t0ken"} if path == "/login" else WATTTIME
        return 200, json.dumps(body).encode()

    with provider(answer) as url:
        found = ask(settings_of("watttime", url, token))
    assert found[NOON] == pytest.approx(870 * 0.45359237)
    assert min(found) == NOON
    assert asked == [("/login", None, "Basic"), ("/v3/forecast", ["co2_aoer"], "Bearer")]


def test_other_units_of_watttime_are_refused(token: str) -> None:
    """A number without its unit is none."""
    other = WATTTIME | {"meta": {"units": "kg_co2_per_mwh"}}

    def answer(path: str, *_: object) -> tuple[int, bytes]:
        return 200, json.dumps({"token": "t"} if path == "/login" else other).encode()

    with provider(answer) as url, pytest.raises(CollectorError, match="kg_co2_per_mwh"):
        ask(settings_of("watttime", url, token))


def test_great_britain_needs_no_account(token: str) -> None:
    """The forecast, not what came; from now on."""
    asked = []

    def answer(path: str, *_: object) -> tuple[int, bytes]:
        asked.append(path)
        return 200, json.dumps(UK).encode()

    with provider(answer) as url:
        found = ask(settings_of("uk-carbon-intensity", url, token))
    assert found == {NOON: 266, NOON + timedelta(minutes=30): 251}
    assert asked == ["/intensity/2026-01-05T12:10Z/fw48h"]


def test_entsoe_tells_prices_of_a_kwh_with_what_is_added(token: str) -> None:
    """A position that is left out has the price before it; the token goes in the query."""
    asked = []

    def answer(path: str, query: Asked, _headers: object) -> tuple[int, bytes]:
        asked.append((path, query))
        return 200, entsoe({1: 94.5, 3: -10.0}).encode()

    with provider(answer) as url:
        settings = replace(settings_of("entsoe", url, token), price_added_per_kwh=0.1)
        found = ask(settings)
    hours = [found[NOON + timedelta(hours=number)] for number in range(4)]
    assert hours == pytest.approx([0.1945, 0.1945, 0.09, 0.09])
    ((path, query),) = asked
    assert path == "/api"
    assert query["documentType"] == ["A44"]
    assert query["in_Domain"] == query["out_Domain"] == [ZONE]
    assert (query["periodStart"], query["periodEnd"]) == (["202601051200"], ["202601071200"])


def test_entsoe_in_another_currency_or_without_prices_is_refused(token: str) -> None:
    """Money of another currency would be added up with ours."""
    reason = (
        f"<Acknowledgement_MarketDocument {SPACE}><Reason><code>999</code>"
        "<text>No matching data found</text></Reason></Acknowledgement_MarketDocument>"
    )
    for body, said in ((entsoe({1: 1.0}, currency="PLN"), "PLN"), (reason, "No matching data")):
        with (
            provider(lambda *_, body=body: (200, body.encode())) as url,
            pytest.raises(CollectorError, match=said),
        ):
            ask(settings_of("entsoe", url, token))


@given(
    st.dictionaries(st.integers(1, 96), st.floats(-500, 4000), min_size=1),
    st.sampled_from([15, 30, 60]),
)
def test_a_period_has_a_price_at_every_position(points: dict[int, float], minutes: int) -> None:
    """The newest at or before it; positions beyond the period do not count."""
    points = points | {1: 7.0}
    asking = _GridProvider(GridSettings(), "entsoe")
    document = _xml(asking, entsoe(points, minutes=minutes, hours=24).encode())
    period = document.find(".//Period")
    assert period is not None
    found = list(_of_period(asking, period).values())
    assert len(found) == 24 * 60 // minutes
    for position, price in enumerate(found, start=1):
        assert price == points[max(at for at in points if at <= position)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "data",
                    "forecast",
                    "datetime",
                    "carbonIntensity",
                    "intensity",
                    "from",
                    "meta",
                    "units",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("name", ["electricity-maps", "uk-carbon-intensity", "watttime", "entsoe"])
@given(document=JSON)
def test_whatever_comes_is_hours_or_an_error_that_names_the_provider(
    name: str, document: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No answer of a foreign server ends a cycle."""
    body = json.dumps(document).encode()
    token = tmp_path_factory.getbasetemp() / "grid-token"
    token.write_text("t", encoding="utf-8")
    settings = settings_of(name, "http://127.0.0.1:9", str(token))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_GridProvider, "get", lambda *_asked, **_query: body)
        found, said = asked_safely(settings)
    assert bool(found) != bool(said)
    assert name in said or not said
    assert all(at.tzinfo is UTC for at in found)


def asked_safely(settings: GridSettings) -> tuple[dict[datetime, float], str]:
    """What a provider says, or its error."""
    try:
        return ask(settings), ""
    except CollectorError as error:
        return {}, str(error)


@pytest.mark.parametrize(
    "body",
    [
        b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><x>&b;</x>',
        b"<x", b"", b"\xff\xfe", entsoe({2: 1.0}).encode(), entsoe({1: 1.0}, minutes=0).encode(),
        entsoe({1: 1.0}, hours=-1).encode(), entsoe({1: float("nan")}).encode(),
    ],
)  # fmt: skip
def test_a_document_that_is_none_is_an_error(body: bytes, token: str) -> None:
    """Entities, broken XML, a period that tells nothing or backwards, a price that is no number."""
    with provider(lambda *_: (200, body)) as url, pytest.raises(CollectorError, match="entsoe"):
        ask(settings_of("entsoe", url, token))


@pytest.mark.parametrize("name", ["electricity-maps", "watttime", "uk-carbon-intensity", "entsoe"])
def test_a_refusal_names_the_provider_and_no_secret(name: str, token: str) -> None:
    """Also where the answer repeats it."""
    with (
        provider(lambda *_: (403, b"token=s3cret is not good")) as url,
        pytest.raises(SourceRefusedError, match=name) as caught,
    ):
        ask(settings_of(name, url, token))
    assert "s3cret" not in str(caught.value)


def test_nobody_there_and_one_who_never_ends(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the time of a request."""
    gone = settings_of("uk-carbon-intensity", "http://127.0.0.1:9", token)
    with pytest.raises(SourceUnreachableError, match="uk-carbon-intensity"):
        ask(gone)

    def slow(*_asked: object) -> tuple[int, bytes]:
        time.sleep(2)
        return 200, b"{}"

    with provider(slow) as url:
        monkeypatch.setattr(providers, "TIMEOUT_SECONDS", 0.2)
        with pytest.raises(SourceUnreachableError):
            ask(settings_of("uk-carbon-intensity", url, token))


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"carbon": "electricity-maps"}, "grid.zone"),
        ({"carbon": "watttime", "zone": "X", "token_file": "t"}, "grid.user"),
        ({"price_zone": "X"}, "grid.price_token_file"),
        ({"carbon": "nobody"}, "grid.carbon"),
    ],
)
def test_what_a_provider_needs_is_asked_for(given: dict[str, Any], setting: str) -> None:
    """Before anything is sent."""
    with pytest.raises(SettingsError, match=setting):
        GridSettings(**given)
