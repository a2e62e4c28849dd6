"""Who is let in, as whom: raw requests against the middleware, and roles from the settings."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from factories import make_job, make_recommendation
from hypothesis import given
from hypothesis import strategies as st

from dashboard.rights import may_look, owns, role_of, why_not
from dashboard.web.identity import claimed, proxied
from dashboard.web.trusted_proxy import PERSON_HEADER, LetIn
from data.access_settings import AccessSettings
from data.apply_settings import ApplySettings
from data.errors import SettingsError
from data.records.commands import Person
from data.settings import ServeSettings, Settings

PROXY = AccessSettings(mode="proxy", proxy_addresses="10.0.0.5,10.1.0.0/16,fd00::/64")
Headers = list[tuple[bytes, bytes]]


def asked(
    headers: Headers,
    *,
    peer: str = "10.0.0.5",
    access: AccessSettings = PROXY,
    kind: str = "http",
    path: str = "/",
    guarded: bool = True,
    on_loopback: bool = False,
) -> tuple[Headers | None, list[dict[str, Any]]]:
    """Send one raw request; give the headers that reached the pages, and what was answered."""
    reached: list[Headers] = []
    sent: list[dict[str, Any]] = []

    async def inside(scope: Any, _receive: Any, _send: Any) -> None:
        reached.append(scope["headers"])

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "headers": headers, "client": (peer, 1234)}
    # In a thread of its own: while the browser of other tests is open, this one has a loop already.
    with ThreadPoolExecutor(1) as thread:
        request = LetIn(inside, access, guarded=guarded, on_loopback=on_loopback)(
            scope, receive, send
        )
        thread.submit(asyncio.run, request).result()
    return (reached[0] if reached else None), sent


def person_of(headers: Headers | None) -> Person:
    """Who the pages are told it is."""
    assert headers is not None
    found = [value for name, value in headers if name.lower() == PERSON_HEADER.encode()]
    assert len(found) == 1
    return proxied(found[0].decode())


@pytest.mark.parametrize("peer", ["10.0.0.5", "10.1.200.3", "::ffff:10.0.0.5", "fd00::7"])
@pytest.mark.parametrize("name", [b"x-forwarded-user", b"X-Forwarded-User", b"X-FORWARDED-USER"])
def test_a_listed_proxy_names_the_person(peer: str, name: bytes) -> None:
    """Whatever the case of the header, and whatever is listed how."""
    headers, _sent = asked([(name, b"robin@site"), (b"x-forwarded-groups", b"ml, ops")], peer=peer)
    assert person_of(headers) == Person(name="robin@site", groups=("ml", "ops"), via="proxy")


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("peer", ["10.0.0.6", "192.168.0.1", "::1", "", "127.0.0.1"])
def test_nobody_else_is_believed(kind: str, peer: str) -> None:
    """A header straight from a browser reaches no page, by page request or socket."""
    reached, sent = asked([(b"x-forwarded-user", b"admin")], peer=peer, kind=kind)
    assert reached is None
    assert sent[0].get("status", sent[0].get("code")) in (403, 1008)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"x-forwarded-user", b"robin"), (b"X-Forwarded-User", b"admin")], 400),
        ([(b"x-forwarded-user", b"robin"), (b"X_Forwarded_User", b"admin")], 400),
        ([(b"x-forwarded-user", b"robin"), (b"x-forwarded-user", b"robin")], 400),
        (
            [
                (b"x-forwarded-user", b"robin"),
                (b"x-forwarded-groups", b"a"),
                (b"X-Forwarded-Groups", b"admins"),
            ],
            400,
        ),
        ([(b"x-forwarded-user", b"\xff\xfe")], 400),
        ([(b"x-forwarded-user", b"a\x00b")], 400),
        ([(b"x-forwarded-user", b"a" * 600)], 400),
        ([(b"x-forwarded-user", b"  ")], 401),
        ([], 401),
        ([(b"x-trimtab-person", b'{"name":"admin","groups":[]}')], 401),
    ],
)
def test_forged_and_doubled_headers_are_refused(headers: Headers, status: int) -> None:
    """Two values, odd bytes, none at all, or our own header from outside."""
    reached, sent = asked(headers)
    assert reached is None
    assert sent[0]["status"] == status


def test_our_own_header_from_outside_is_dropped_in_every_mode() -> None:
    """Only the middleware writes it."""
    forged = (b"X-Trimtab-Person", json.dumps({"name": "admin", "groups": []}).encode())
    headers, _sent = asked([forged, (b"x-forwarded-user", b"robin")])
    assert person_of(headers).name == "robin"
    headers, _sent = asked([forged], access=AccessSettings(), peer="127.0.0.1")
    assert headers == []


def test_a_single_user_dashboard_behind_a_proxy_is_refused_when_it_can_apply() -> None:
    """Otherwise everyone behind the proxy would be the one local person."""
    reached, sent = asked(
        [(b"X-Forwarded-For", b"8.8.8.8")], access=AccessSettings(), peer="127.0.0.1"
    )
    assert reached is None
    assert sent[0]["status"] == 403


@pytest.mark.parametrize(
    ("host", "let_in"),
    [
        (b"127.0.0.1:8501", True),
        (b"localhost", True),
        (b"[::1]:8501", True),
        (b"evil.example:8501", False),
        (b"127.0.0.1.evil.example", False),
        (b"[::1", False),
        (b"", False),
    ],
)
def test_a_name_of_another_site_that_leads_here_is_refused(host: bytes, let_in: bool) -> None:
    """Without a sign-in the browser would let that site's page do what the local person may."""
    reached, sent = asked(
        [(b"host", host)], access=AccessSettings(), peer="127.0.0.1", on_loopback=True
    )
    assert (reached is not None) == let_in
    assert let_in or sent[0]["status"] == 403


def test_health_is_open_to_machines() -> None:
    """Probes carry no sign-in."""
    reached, _sent = asked([], peer="8.8.8.8", path="/readyz")
    assert reached == []


@given(st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=30)), max_size=6))
def test_no_header_of_a_stranger_makes_a_person(headers: Headers) -> None:
    """Whatever an unlisted address sends, it is not let in."""
    reached, _sent = asked(headers, peer="8.8.8.8")
    assert reached is None


def test_roles_come_from_the_settings_and_the_highest_counts() -> None:
    """By name or group, whatever the case; who is not listed has the default role."""
    access = AccessSettings(
        mode="oidc",
        oidc_metadata_url="x",
        oidc_client_id="x",
        oidc_client_secret="x",  # noqa: S106 - no secret
        oidc_cookie_secret="x" * 32,
        oidc_redirect_uri="x",
        viewers="kim",
        approvers="group:ML-Ops",
        admins="Robin@site",
        default_role="none",
    )
    assert role_of(Person(name="robin@SITE"), access) == "admin"
    assert role_of(Person(name="kim", groups=("ml-ops",)), access) == "approver"
    assert role_of(Person(name="kim"), access) == "viewer"
    assert role_of(Person(name="mallory"), access) == "none"


def test_an_owner_sees_and_decides_about_their_own_jobs_only() -> None:
    """The job's owner, by name, by the part before the @, or by group."""
    access = replace(PROXY, owners="search@site,group:search", default_role="owner")
    recommendation, job = make_recommendation(), make_job()
    for person in (Person(name="search@site"), Person(name="x", groups=("search",))):
        assert owns(person, recommendation, job)
        assert may_look(person, access, recommendation, job)
        assert why_not(person, access, recommendation, job) == ""
    other = Person(name="mallory@site")
    assert not may_look(other, access, recommendation, job)
    assert "own jobs" in why_not(other, access, recommendation, job)


def test_a_viewer_decides_nothing() -> None:
    """Looking is not approving."""
    reason = why_not(Person(name="kim"), PROXY, make_recommendation(), make_job())
    assert "kim is viewer" in reason


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"email": ""},
        {"email": ["a"]},
        {"email": "a@b", "email_verified": False},
    ],
)
def test_claims_without_a_proven_name_make_nobody(claims: dict[str, object]) -> None:
    """No name, an odd one, or an address that the provider has not verified."""
    assert claimed(claims, AccessSettings()) is None


def test_claims_make_a_person() -> None:
    """Name and groups by the claims that the settings name."""
    found = claimed({"email": "a@b", "groups": ["x", 3]}, AccessSettings())
    assert found == Person(name="a@b", groups=("x",), via="oidc")


def test_applying_needs_a_sign_in_unless_bound_to_loopback() -> None:
    """The refusal names the setting and both ways out."""
    on = ApplySettings(enabled=True)
    Settings(apply=on)
    Settings(apply=on, serve=ServeSettings(host="::1"))
    with pytest.raises(SettingsError, match=r"apply\.enabled.*access\.mode.*127\.0\.0\.1"):
        Settings(apply=on, serve=ServeSettings(host="0.0.0.0"))
    Settings(apply=on, serve=ServeSettings(host="0.0.0.0"), access=PROXY)


@pytest.mark.parametrize("addresses", ["", "0.0.0.0/0", "::/0", "proxy.example", "10.0.0.5/8"])
def test_a_proxy_list_of_everyone_or_of_names_is_refused(addresses: str) -> None:
    """Only addresses and networks that leave somebody out."""
    with pytest.raises(SettingsError):
        AccessSettings(mode="proxy", proxy_addresses=addresses)
