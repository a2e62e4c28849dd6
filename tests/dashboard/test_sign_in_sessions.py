"""Sessions of OpenID Connect: started servers, a provider on loopback, browsers that keep cookies.

On PostgreSQL two web processes serve them, and every second request goes to the other.
"""

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa
from beds.api_clients import fill_two_owners
from beds.identity_provider import Provider, running_identity_provider
from beds.ports import free_port
from beds.stores import Stores, on_both_engines
from browser.bed import Server, running_server
from httpx2 import Client, Cookies, Response

from dashboard.api.http.authentication import SIGN_IN_COOKIE
from data.settings.store import is_postgres_url, store_path
from data.store import open_store
from data.store.engine import tables
from data.store.handles.remote_store import served_store

ORIGIN = "http://127.0.0.1:{}"
ENDED = "/api/v1/sign-in/ended"
DECISIONS = "/api/v1/findings/TT-1/decisions"
APPROVE = {"decision": "approve"}
MOST_HEADER = 8_192
pytestmark = [on_both_engines, pytest.mark.slow]


@dataclass
class Fleet:
    """Web processes of one store behind one name, as a balancer would have them."""

    servers: list[Server]
    provider: Provider
    turns: "itertools.cycle[Server]" = field(init=False)

    def __post_init__(self) -> None:
        self.turns = itertools.cycle(self.servers)

    @property
    def origin(self) -> str:
        """The address that browsers use."""
        return self.servers[0].base


class Browser:
    """Cookies, and requests that state the page they come from."""

    def __init__(self, fleet: Fleet, opened: list[Client]) -> None:
        self.fleet, self.opened = fleet, opened
        self.client = Client(timeout=60)
        opened.append(self.client)

    def ask(self, method: str, path: str, *, origin: str | None = "", **more: Any) -> Response:
        """Ask the next process; cookies count for a host whatever its port, as in browsers."""
        headers = more.pop("headers", {}) | {"Host": self.fleet.origin.removeprefix("http://")}
        if origin is not None:
            headers["Origin"] = origin or self.fleet.origin
        return self.client.request(
            method, next(self.fleet.turns).base + path, headers=headers, **more
        )

    def sign_in(self, **claims: Any) -> Response:
        """Go to the provider and come back; the answer to coming back."""
        self.fleet.provider.claims = {"email_verified": True} | claims
        begun = self.ask("POST", "/api/v1/sign-in")
        at_provider = self.client.get(begun.headers["X-Trimtab-Next"])
        back = at_provider.headers["location"].partition("/oauth2callback")
        return self.ask("GET", "".join(back[1:]), origin=None)

    def role(self) -> str | None:
        """The role that the API gives, None where it knows nobody."""
        answer = self.ask("GET", "/api/v1/")
        return str(answer.json()["role"]) if answer.status_code == 200 else None

    def copy(self) -> "Browser":
        """Another browser with the same cookies."""
        other = self.stranger()
        other.client.cookies = self.client.cookies
        return other

    def stranger(self) -> "Browser":
        """Another browser, without any."""
        return Browser(self.fleet, self.opened)


@pytest.fixture(scope="module")
def fleet(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One process on a DuckDB file, two on a database."""
    folder = tmp_path_factory.mktemp("sessions")
    port = free_port()
    with (
        stores.empty(folder) as url,
        running_identity_provider("trimtab", "canary-client-secret") as provider,
        ExitStack() as running,
    ):
        fill_two_owners(url)
        provider.redirect_uri = f"{ORIGIN.format(port)}/oauth2callback"
        settings = {
            "mode": "oidc",
            "default_role": "none",
            "approvers": "group:ml-ops",
            "oidc_metadata_url": provider.metadata_url,
            "oidc_client_id": provider.client_id,
            "oidc_client_secret": provider.client_secret,
            "public_url": provider.redirect_uri.removesuffix("/oauth2callback"),
        }
        variables = {
            f"TRIMTAB_ACCESS_{name.upper()}": setting for name, setting in settings.items()
        }
        ports = [port] if url.startswith("duckdb") else [port, free_port()]
        servers = []
        for number, each in enumerate(ports):
            own = folder / str(number)
            own.mkdir()
            only = () if url.startswith("duckdb") else ("--only", "web")
            servers.append(
                running.enter_context(
                    running_server(url, own, port=each, options=only, **variables)
                )
            )
        yield Fleet(servers, provider)


@pytest.fixture
def browser(fleet: Fleet) -> Iterator[Browser]:
    """One without a past."""
    opened: list[Client] = []
    yield Browser(fleet, opened)
    for client in opened:
        client.close()


def approver(browser: Browser, **claims: Any) -> Browser:
    """Sign in as one."""
    browser.sign_in(**{"email": "robin@site.example", "groups": ["ml-ops"]} | claims)
    assert browser.role() == "approver"
    return browser


@pytest.mark.parametrize("count", [0, 120, 1_500])
def test_groups_travel_in_no_cookie(browser: Browser, count: int) -> None:
    """All are known, and the head of a request stays small, the provider's token included."""
    approver(
        browser, groups=[*(f"cn=project-{number:05},dc=site" for number in range(count)), "ml-ops"]
    )
    request = browser.ask("GET", "/api/v1/sign-in").request
    assert sum(len(name) + len(value) for name, value in request.headers.raw) < MOST_HEADER


def test_a_token_that_is_too_long_is_refused_in_words(browser: Browser) -> None:
    """Nothing of it is cut, and the page has words for what its address says."""
    answer = browser.sign_in(email="robin@site.example", groups=["ml-ops"] * 20_000)
    assert answer.headers["location"] == "/?refused=size"
    assert browser.role() is None


def test_signing_out_ends_what_was_copied(browser: Browser) -> None:
    """Cookies of before, in the same and in another browser, decide nothing any more."""
    copied = approver(browser).copy()
    assert copied.role() == "approver"
    answer = browser.ask("DELETE", "/api/v1/sign-in")
    assert answer.headers["X-Trimtab-Next"].startswith(f"{browser.fleet.provider.base}/logout?")
    for left in (browser, copied):
        assert left.role() is None
        assert left.ask("POST", DECISIONS, json=APPROVE).status_code == 401


def test_signing_in_as_another_ends_the_session_of_before(browser: Browser) -> None:
    """Its copied cookie decides nothing, though nobody signed out in between."""
    copied = approver(browser).stranger()
    copied.client.cookies = Cookies(browser.client.cookies)
    browser.sign_in(email="kim@site.example", groups=["ml-ops"])
    assert browser.role() == "approver"
    assert copied.role() is None


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "http://127.0.0.1:1"])
def test_another_site_decides_and_ends_nothing(browser: Browser, origin: str | None) -> None:
    """Its request brings the cookie where a browser is old, and never our own address."""
    approver(browser)
    for method, path in (
        ("DELETE", "/api/v1/sign-in"),
        ("POST", DECISIONS),
        ("DELETE", "/api/v1/stop"),
    ):
        assert browser.ask(method, path, origin=origin, json=APPROVE).status_code in (401, 403)
    browser.ask("GET", "/auth/logout", origin=None)
    assert browser.role() == "approver"


@pytest.mark.parametrize("named", [("sub",), ("sid",), ("sub", "sid")])
@pytest.mark.parametrize("knows_sid", [True, False])
def test_the_provider_ends_sessions(
    browser: Browser, named: tuple[str, ...], knows_sid: bool
) -> None:
    """By person, by its session, by both: at every process, and nobody else's."""
    claims = {"sub": "robin", "sid": "session-1"} if knows_sid else {"sub": "robin"}
    approver(browser, **claims)
    other = approver(browser.stranger(), email="kim@site.example", sub="kim", sid="session-2")
    order = {name: {"sub": "robin", "sid": "session-1"}[name] for name in named}
    token = browser.fleet.provider.logout_token(**order)
    answer = browser.ask("POST", ENDED, origin=None, data={"logout_token": token})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    by_session_alone = named == ("sid",) and not knows_sid
    assert browser.role() == ("approver" if by_session_alone else None)
    assert other.role() == "approver"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "http://127.0.0.1:1"}, {"aud": "another"}, {"aud": ["another"]}, {"events": {}},
        {"events": {"http://schemas.openid.net/event/other": {}}}, {"events": "backchannel-logout"},
        {"nonce": "n"}, {"exp": 1}, {"iat": 4_000_000_000}, {"sub": None}, {"sub": ""},
        {"sub": ["robin"]}, {"iss": None}, {"aud": None}, {"iat": None}, {"exp": None},
        {"events": None}, {"jti": None}, {"flaw": "unsigned"}, {"flaw": "changed"},
        {"flaw": "foreign key"}, {"flaw": "secret"}, {"flaw": "unknown key"},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_an_order_that_must_not_be_believed_ends_nothing(
    browser: Browser, changes: dict[str, Any]
) -> None:
    """Everything that the standard has a client check."""
    approver(browser, sub="robin")
    provider = browser.fleet.provider
    provider.flaw = changes.get("flaw", "")
    token = provider.logout_token(**{"sub": "robin"} | changes)
    provider.flaw = ""
    answer = browser.ask("POST", ENDED, origin=None, data={"logout_token": token})
    assert answer.status_code == 400
    assert answer.json()["detail"]
    assert browser.role() == "approver"


def test_new_keys_of_the_provider_are_found(browser: Browser) -> None:
    """It changes them without a word, and sign-ins and ends go on."""
    approver(browser, sub="robin")
    browser.fleet.provider.change_keys()
    token = browser.fleet.provider.logout_token(sub="robin")
    for _server in browser.fleet.servers:
        browser.ask("POST", ENDED, origin=None, data={"logout_token": token})
    assert browser.role() is None
    approver(browser)


def test_a_made_up_session_is_nobodys(browser: Browser) -> None:
    """Nothing but the text that a browser was given names one; the store has its hash alone."""
    approver(browser)
    text = browser.client.cookies[SIGN_IN_COOKIE]
    url = browser.fleet.servers[0].store_url
    store = open_store(url) if is_postgres_url(url) else served_store(store_path(url))
    assert store is not None
    with store:
        rows = store.reader._rows(sa.select(tables.sign_ins))
    assert rows
    assert text not in str(rows)
    for wrong in ("", "x", text[:-1], rows[0].id_hash, "%00", "a" * 5_000):
        browser.client.cookies.clear()
        browser.client.cookies.set(SIGN_IN_COOKIE, wrong)
        assert browser.role() is None
