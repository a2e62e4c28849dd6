"""Who is let in, as whom: raw requests against the middleware, and roles from the settings."""

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from confusable_homoglyphs.confusables import confusables_data
from factories import make_job, make_recommendation
from hypothesis import given
from hypothesis import strategies as st

from dashboard.api.http.authentication import proxied
from dashboard.common.rights import decision_refusal, may_see, owns, role_of
from dashboard.web.access.session_cookies import SecureCookies
from dashboard.web.access.sign_in import claimed
from dashboard.web.access.trusted_proxy import PERSON_HEADER, AuthMiddleware
from data.base.errors import SettingsError
from data.facts.jobs import SchedulerFacts
from data.records.commands import Person
from data.settings.access import AccessSettings
from data.settings.all_settings import ServeSettings, Settings
from data.settings.apply import ApplySettings

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
        request = AuthMiddleware(inside, access, guarded=guarded, peer=lambda _scope: os.geteuid())(
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


@pytest.mark.parametrize("path", ["/mcpX", "/mcp/", "/mcp/x", "/mcp.html", "/api/v1", "/api/v1x/"])
def test_a_token_lets_in_at_the_addresses_of_programs_alone(path: str) -> None:
    """Whoever does not come through the proxy reaches a page by no address that begins alike."""
    token: Headers = [(b"authorization", b"Bearer trimtab_x")]
    reached, sent = asked(token, peer="192.168.0.1", path=path)
    assert reached is None
    assert sent[0]["status"] == 403
    for exact in ("/mcp", "/api/v1/findings"):
        assert asked(token, peer="192.168.0.1", path=exact)[0] is not None


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
        ([(b"X_Forwarded_User", b"admin")], 400),
        ([(b"x-forwarded_user", b"admin")], 400),
        ([(b"x-forwarded-user", b"robin"), (b"X_Forwarded_Groups", b"admins")], 400),
        ([(b"x-forwarded-user", b"\xff\xfe")], 400),
        ([(b"x-forwarded-user", b"a\x00b")], 400),
        ([(b"x-forwarded-user", b"a" * 600)], 400),
        ([(b"x-forwarded-user", b"  ")], 401),
        ([], 401),
        ([(b"x-trimtab-person", b'{"name":"admin","groups":[]}')], 401),
    ],
)
def test_forged_and_doubled_headers_are_refused(headers: Headers, status: int) -> None:
    """Two values, another spelling, odd bytes, none at all, or our own header from outside."""
    reached, sent = asked(headers)
    assert reached is None
    assert sent[0]["status"] == status


def test_our_own_header_from_outside_is_dropped_in_every_mode() -> None:
    """Only the middleware writes it."""
    forged = (b"X-Trimtab-Person", json.dumps({"name": "admin", "groups": []}).encode())
    headers, _sent = asked([forged, (b"x-forwarded-user", b"robin")])
    assert person_of(headers).name == "robin"
    headers, _sent = asked([forged], access=AccessSettings(), peer="127.0.0.1")
    assert headers == [(b"x-trimtab-person", f"uid {os.geteuid()}".encode())]


def test_a_single_user_dashboard_behind_a_proxy_is_refused_when_it_can_apply() -> None:
    """Otherwise everyone behind the proxy would be the one local person."""
    reached, sent = asked(
        [(b"X-Forwarded-For", b"8.8.8.8")], access=AccessSettings(), peer="127.0.0.1"
    )
    assert reached is None
    assert sent[0]["status"] == 403


def test_health_is_open_to_machines() -> None:
    """Probes carry no sign-in."""
    reached, _sent = asked([], peer="8.8.8.8", path="/readyz")
    assert reached == []


@given(st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=30)), max_size=6))
def test_no_header_of_a_stranger_makes_a_person(headers: Headers) -> None:
    """Whatever an unlisted address sends, it is not let in."""
    reached, _sent = asked(headers, peer="8.8.8.8")
    assert reached is None


@pytest.mark.parametrize(
    "address",
    ["http://idp.example/x", "file:///etc/passwd", "//idp", "http://127.0.0.1.example", "https://"],
)
def test_keys_of_a_provider_are_read_over_no_open_way(address: str) -> None:
    """Who could change them on the way would sign in as anybody."""
    given = dict.fromkeys(("oidc_client_id", "oidc_client_secret"), "x")
    named = given | {"mode": "oidc", "public_url": "https://x.example"}
    with pytest.raises(SettingsError, match="oidc_metadata_url"):
        AccessSettings(oidc_metadata_url=address, **named)
    for good in ("https://idp.example/x?p=a", "http://127.0.0.1:1/x", "http://localhost:1/x"):
        assert AccessSettings(oidc_metadata_url=good, **named)


def test_roles_come_from_the_settings_and_the_highest_counts() -> None:
    """By name or group; who is not listed has the default role."""
    access = AccessSettings(
        mode="oidc",
        oidc_metadata_url="https://x.example",
        oidc_client_id="x",
        oidc_client_secret="x",  # noqa: S106 - no secret
        public_url="https://x.example",
        viewers="kim",
        approvers="group:ML-Ops",
        admins="Robin@site",
        default_role="none",
    )
    assert role_of(Person(name="Robin@site"), access) == "admin"
    assert role_of(Person(name="kim", groups=("ML-Ops",)), access) == "approver"
    assert role_of(Person(name="kim"), access) == "viewer"
    assert role_of(Person(name="mallory"), access) == "none"


NAMES = st.sampled_from(
    ("kim", "Kim", "KIM", "\u212aim", "k\u0131m", "kim ", " kim", "kim\u200b", "kim\u00a0",
     "\uff4bim", "k\u0456m", "strasse", "stra\u00dfe", "caf\u00e9", "cafe\u0301", "group:kim",
     "group:group:kim", "GROUP:kim", "kim,sre", "", "group:", "sre", "group:sre")
)  # fmt: skip
PEOPLE = st.builds(
    Person, name=NAMES | st.text(max_size=6), groups=st.lists(NAMES, max_size=3).map(tuple)
)


@given(PEOPLE, NAMES.filter(lambda name: name == name.strip() != ""), st.booleans())
def test_a_list_gives_its_role_to_exactly_whom_it_names(
    person: Person, listed: str, as_group: bool
) -> None:
    """A name never counts as a group, a group never as a name, a look-alike never as either."""
    entry = f"group:{listed}" if as_group else listed
    granted = entry.split(",")
    names = {item for item in granted if not item.lower().startswith("group:")}
    groups = {item[6:].strip() for item in granted if item not in names}
    access = replace(PROXY, approvers=entry, default_role="none")
    meant = person.name in names or bool((groups - {""}) & set(person.groups))
    assert (role_of(person, access) == "approver") == meant


@given(PEOPLE, NAMES, NAMES, st.sampled_from(("", "site")), st.booleans())
def test_a_job_belongs_to_exactly_whom_it_names(
    person: Person, owner: str, user: str, domain: str, mail: bool
) -> None:
    """Its owner is a person or a group, its user in the scheduler a person; no look-alike is.

    Of a mail name the part before the @ is the user where the settings list its domain.
    """
    job = replace(make_job(), owner=owner, scheduler=SchedulerFacts(user=user))
    person = replace(person, name=f"{person.name}@site") if mail else person
    local, _, own_domain = person.name.partition("@")
    users = {person.name, local if own_domain and own_domain == domain else ""}
    meant = {owner} & {person.name, *person.groups} - {""} or {user} & users - {""}
    access = replace(PROXY, mail_domains=domain)
    assert owns(person, access, make_recommendation(), job) == bool(meant)


@given(PEOPLE, NAMES.filter(bool))
def test_four_eyes_refuses_in_doubt(person: Person, owner: str) -> None:
    """Another spelling of the owner's name gives no right to approve, and no way round the rule."""
    access = replace(PROXY, default_role="approver", four_eyes=True)
    job = replace(make_job(), owner=owner)
    reason = decision_refusal(person, access, make_recommendation(), job, approving=True)
    if owns(person, access, make_recommendation(), job):
        assert "owns the job" in reason
    if owner == "kim" and person.name in ("Kim", "KIM", "\u212aim", "kim@site", "\uff4bim"):
        assert "owns the job" in reason
    if owner == "kim" and person == Person(name="sre"):
        assert reason == ""


@pytest.mark.parametrize("owner", ["kim", "kim@site.example", "kim+jobs@site.example"])
@pytest.mark.parametrize(
    "name", ["kim+x@site.example", "Kim@mail.example", "k\u0456m+@site.example"]
)
def test_four_eyes_sees_one_mailbox_in_its_addresses(owner: str, name: str) -> None:
    """Sub-addresses, and one person at two domains; another's mailbox is another's."""
    access = replace(PROXY, default_role="approver", four_eyes=True)
    job = replace(make_job(), owner=owner)
    for person in (Person(name=name), Person(name="anne+kim@site.example")):
        reason = decision_refusal(person, access, make_recommendation(), job, approving=True)
        assert ("owns the job" in reason) is (person.name == name)


@pytest.mark.parametrize("owner", ["root", "jim.smith", "анна", "m1ra"])
def test_four_eyes_sees_through_look_alike_letters(owner: str) -> None:
    """Each letter changed for every one that Unicode calls its look-alike, or for an unseen one."""
    access = replace(PROXY, default_role="approver", four_eyes=True)
    job = replace(make_job(), owner=owner)
    others = {f"{owner[:at]}\u200b{owner[at:]}" for at in range(len(owner) + 1)}
    for at, letter in enumerate(owner):
        for twin in confusables_data.get(letter, []):
            others.add(owner[:at] + twin["c"] + owner[at + 1 :])
    assert len(others) > 8
    for name in sorted(others):
        reason = decision_refusal(
            Person(name=name), access, make_recommendation(), job, approving=True
        )
        assert "owns the job" in reason, ascii(name)
    for name in ("boot", "kim", "anne", "олег", "mora"):
        assert not decision_refusal(
            Person(name=name), access, make_recommendation(), job, approving=True
        )


@pytest.mark.parametrize("name", ["group:sre", "GROUP:sre", "group: sre"])
def test_no_name_that_a_proxy_passes_on_is_a_group(name: str) -> None:
    """A person may be called so; only the header of groups tells groups."""
    headers, _sent = asked([(b"x-forwarded-user", name.encode())])
    access = replace(PROXY, approvers="group:sre", default_role="none")
    assert role_of(person_of(headers), access) == "none"
    headers, _sent = asked([(b"x-forwarded-user", b"kim"), (b"x-forwarded-groups", b"sre")])
    assert role_of(person_of(headers), access) == "approver"


def test_an_owner_sees_and_decides_about_their_own_jobs_only() -> None:
    """The job's owner, by name or by group."""
    access = replace(PROXY, owners="search,group:search", default_role="owner")
    recommendation, job = make_recommendation(), make_job()
    for person in (Person(name="search"), Person(name="x", groups=("search",))):
        assert owns(person, access, recommendation, job)
        assert may_see(person, access, recommendation, job)
        assert decision_refusal(person, access, recommendation, job) == ""
    other = Person(name="mallory@site")
    assert not may_see(other, access, recommendation, job)
    assert "own jobs" in decision_refusal(other, access, recommendation, job)


def test_a_viewer_decides_nothing() -> None:
    """Looking is not approving."""
    reason = decision_refusal(Person(name="kim"), PROXY, make_recommendation(), make_job())
    assert "kim is viewer" in reason


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"email": ""},
        {"email": ["a"]},
        {"email": "a@b"},
        *(
            {"email": "a@b", "email_verified": flag}
            for flag in (False, None, 0, 1, "true", "false")
        ),
        *(
            {"email": name, "email_verified": True}
            for name in (" a@b", "a@b ", "a@b\u00a0", "a\u200b@b", "\u202ea@b", "a@b\n")
        ),
    ],
)
def test_claims_without_a_proven_name_make_nobody(claims: dict[str, object]) -> None:
    """No name, an odd one, or an address that the provider has not said to be verified."""
    assert claimed(claims, AccessSettings()) is None


@given(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.none()))
)
def test_only_true_verifies_an_address(said: object) -> None:
    """Whatever else a provider sends is no proof; another claim than the address needs none."""
    claims = {"email": "a@b", "sub": "s1", "email_verified": said}
    assert (claimed(claims, AccessSettings()) is not None) == (said is True)
    by_subject = claimed(claims, AccessSettings(oidc_name_claim="sub"))
    assert by_subject == Person(name="s1", via="oidc")


def test_claims_make_a_person() -> None:
    """Name and groups by the claims that the settings name."""
    claims = {"email": "a@b", "email_verified": True, "groups": ["x", 3]}
    found = claimed(claims, AccessSettings())
    assert found == Person(name="a@b", groups=("x",), via="oidc")


@pytest.mark.parametrize(
    ("fields", "secure"),
    [
        ({}, False),
        ({"public_url": "http://gpu.example"}, False),
        ({"public_url": "https://gpu.example"}, True),
        ({"mode": "oidc", "public_url": "https://gpu.example"}, True),
        ({"mode": "oidc", "public_url": "http://127.0.0.1:8501"}, False),
    ],
)
def test_cookies_are_for_https_where_the_dashboard_is(fields: dict[str, Any], secure: bool) -> None:
    """Every cookie of an answer, each once; one that says so already stays as it is."""
    oidc = dict.fromkeys(("oidc_metadata_url", "oidc_client_id", "oidc_client_secret"), "https://x")
    access = AccessSettings(**oidc, **fields)
    sent: list[Any] = []

    async def inside(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"set-cookie", b"a=1; Path=/"), (b"set-cookie", b"b=2; SECURE"), (b"x", b"y")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send(message: Any) -> None:
        sent.append(message)

    with ThreadPoolExecutor(1) as thread:
        request = SecureCookies(inside, access)({"type": "http"}, send, send)
        thread.submit(asyncio.run, request).result()
    cookies = [value for name, value in sent[0]["headers"] if name == b"set-cookie"]
    assert cookies == [b"a=1; Path=/" + b"; Secure" * secure, b"b=2; SECURE"]


def test_applying_needs_a_sign_in_unless_bound_to_loopback() -> None:
    """The refusal names the setting and both ways out."""
    on = ApplySettings(enabled=True)
    Settings(apply=on)
    Settings(apply=on, serve=ServeSettings(host="::1"))
    with pytest.raises(SettingsError, match=r"serve\.host.*127\.0\.0\.1.*access\.mode"):
        Settings(apply=on, serve=ServeSettings(host="0.0.0.0"))
    Settings(apply=on, serve=ServeSettings(host="0.0.0.0"), access=PROXY)


@pytest.mark.parametrize("addresses", ["", "0.0.0.0/0", "::/0", "proxy.example", "10.0.0.5/8",
                                       "0.0.0.0/1,128.0.0.0/1", "2000::/3"])  # fmt: skip
def test_a_proxy_list_of_everyone_or_of_names_is_refused(addresses: str) -> None:
    """Only addresses and networks that leave somebody out."""
    with pytest.raises(SettingsError):
        AccessSettings(mode="proxy", proxy_addresses=addresses)
