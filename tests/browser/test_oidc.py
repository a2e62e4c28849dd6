"""Signing in by OpenID Connect: a real browser, a real `trimtab serve`, a provider on loopback."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from beds.identity_provider import FLAWS, Provider, running_identity_provider
from beds.ports import free_port
from beds.stores import Stores
from browser.bed import PATIENCE, Server, Visitor, running_server
from browser.inbox import answer, dialog
from browser.test_decisions import stored
from factories import make_collected, make_job, make_plan, make_recommendation, make_samples
from playwright.sync_api import Browser, expect

from dashboard.api.http.authentication import SIGN_IN_COOKIE
from data.base.clock import floor_to_slot, utc_now
from data.store import open_store

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.usefixtures("machine_time")]
PLAN = "p" * 64
SIGN_IN = "Sign in to see the fleet."
ROLES = {
    "viewers": "vera@site.example",
    "owners": "group:owners",
    "approvers": "group:ML-Ops",
    "default_role": "none",
}


@dataclass
class SignedInServer:
    """A server that believes the provider, and who owns a job with a recommendation."""

    server: Server
    provider: Provider
    owner: str
    jobs: dict[str, str]


def fill(url: str) -> dict[str, str]:
    """Keep a job of ada's and one of bob's with advice on both; give the owner by its id."""
    now = floor_to_slot(utc_now(), 300)
    window = {"created_at": now, "expires_at": now + timedelta(hours=24)}
    jobs = tuple(
        make_job(f"search/{owner}-0", owner=f"{owner}@site.example", gpu_count=4, last_seen_at=now)
        for owner in ("ada", "bob")
    )
    advice = {
        job.owner: make_recommendation(job_id=job.job_id, plan_id=PLAN, **window) for job in jobs
    }
    with open_store(url) as store:
        for number, job in enumerate(jobs):
            samples = make_samples(job_id=job.job_id, end=now, gpu_uuid=f"GPU-{number}")
            store.keep(make_collected(samples, jobs))
        store.keep_cycle(
            cycle_id="c1",
            started_at=now,
            finished_at=now,
            forecasts=(),
            plan=make_plan(plan_id=PLAN, created_at=now),
            recommendations=tuple(advice.values()),
        )
    return {entry.job_id: owner for owner, entry in advice.items()}


@pytest.fixture(scope="module")
def signing(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedInServer]:
    """One server and one provider for all of these tests."""
    folder = tmp_path_factory.mktemp("oidc")
    owner = "ada@site.example"
    port = free_port()
    with (
        stores.empty(folder) as url,
        running_identity_provider("trimtab", "canary-client-secret") as provider,
    ):
        jobs = fill(url)
        provider.redirect_uri = f"http://127.0.0.1:{port}/oauth2callback"
        settings = ROLES | {
            "mode": "oidc",
            "oidc_metadata_url": provider.metadata_url,
            "oidc_client_id": provider.client_id,
            "oidc_client_secret": provider.client_secret,
            "public_url": provider.redirect_uri.removesuffix("/oauth2callback"),
        }
        variables = {
            f"TRIMTAB_ACCESS_{name.upper()}": setting for name, setting in settings.items()
        }
        with running_server(url, folder, port=port, **variables) as server:
            yield SignedInServer(server, provider, owner, jobs)


def shown_as(name: str, role: str) -> str:
    """What the side of a page says of a person; a joiner keeps the address from being a link."""
    return name.replace("@", "@\u2060") + f", {role}"


def sign_in(signing: SignedInServer, visitor: Visitor, *, flaw: str = "", **claims: Any) -> None:
    """Press the button as this person; the provider signs them in at once."""
    signing.provider.claims = {"email_verified": True} | claims
    signing.provider.flaw = flaw
    visitor.open(signing.server.base)
    expect(visitor.page.locator("h1")).to_have_text(SIGN_IN)
    with visitor.page.expect_response(re.compile("/oauth2callback")):
        visitor.page.get_by_role("button", name="Sign in").click()
    visitor.page.wait_for_url(re.compile(f"^{signing.server.base}/([?]refused=[a-z]+)?$"))


def signed_in(visitor: Visitor) -> bool:
    """Whether the browser holds the cookie of a session."""
    return any(cookie["name"] == SIGN_IN_COOKIE for cookie in visitor.page.context.cookies())


def test_nobody_sees_anything_before_signing_in(signing: SignedInServer, visitor: Visitor) -> None:
    """Every page by its address asks to sign in, and shows no name and no figure."""
    for path in ("", "jobs", "recommendations", "settings", "audit", "energy"):
        visitor.page.goto(f"{signing.server.base}/{path}")
        expect(visitor.page.get_by_text(SIGN_IN)).to_be_visible()
        visitor.settle()
        assert signing.owner not in visitor.text()
    visitor.errors[:] = [error for error in visitor.errors if "does not seem to exist" not in error]


def test_a_viewer_looks_and_decides_nothing(signing: SignedInServer, visitor: Visitor) -> None:
    """The pages open; the open finding says why it has no buttons; signing out ends it."""
    sign_in(signing, visitor, email="vera@site.example")
    expect(visitor.page.get_by_text(shown_as("vera@site.example", "viewer"))).to_be_visible()
    visitor.go("Findings")
    panel = visitor.page.locator("[class*='st-key-finding-']")
    expect(panel.get_by_text("only owners, approvers and admins decide")).to_be_visible()
    expect(visitor.page.get_by_role("button", name="Approve")).to_have_count(0)
    visitor.page.get_by_role("button", name="Sign out").click()
    expect(visitor.page.get_by_text(SIGN_IN)).to_be_visible()
    # The page may say so before the browser has been to the address that takes the cookie away.
    ends = time.monotonic() + PATIENCE / 1000
    while signed_in(visitor) and time.monotonic() < ends:
        visitor.page.wait_for_timeout(100)
    assert not signed_in(visitor)


def test_an_owner_sees_their_own_jobs_and_no_other_page(
    signing: SignedInServer, visitor: Visitor
) -> None:
    """By group claim; other people's recommendations and pages are not there for them."""
    sign_in(signing, visitor, email=signing.owner, groups=["owners"])
    expect(visitor.page.get_by_text(shown_as(signing.owner, "owner"))).to_be_visible()
    mine = {entry for entry, owner in signing.jobs.items() if owner == signing.owner}
    others = set(signing.jobs) - mine
    for path in ("", "jobs", "audit", "recommendations?state=proposed"):
        visitor.page.goto(f"{signing.server.base}/{path}")
        answer = "GPU-hours of the last" if path == "jobs" else "for a decision"
        expect(visitor.page.locator("h1")).to_contain_text(answer)
        visitor.settle()
        shown = {job for job in signing.jobs if job in visitor.page.content()}
        assert shown == (set() if path == "jobs" else mine)  # its table is a picture
        assert not shown & others
    for title, count in (("Jobs", 1), ("Fleet", 0), ("Audit", 0)):
        expect(visitor.page.get_by_role("link", name=title, exact=True)).to_have_count(count)
    visitor.errors[:] = [error for error in visitor.errors if "does not seem to exist" not in error]


def test_a_sign_in_of_long_ago_is_one_no_more(signing: SignedInServer, visitor: Visitor) -> None:
    """The cookie ends with the setting's hours, and so does what an open tab shows."""
    sign_in(signing, visitor, email="vera@site.example", iat=int(time.time()) - 13 * 3600)
    expect(visitor.page.get_by_text(SIGN_IN)).to_be_visible()
    visitor.settle()
    assert "viewer" not in visitor.text()
    sign_in(signing, visitor, email="vera@site.example")
    expect(visitor.page.get_by_text(shown_as("vera@site.example", "viewer"))).to_be_visible()
    (cookie,) = (
        cooky for cooky in visitor.page.context.cookies() if cooky["name"] == SIGN_IN_COOKIE
    )
    assert 0 < cookie["expires"] - time.time() <= 12 * 3600
    assert cookie["httpOnly"]


def test_who_has_no_role_sees_nothing(signing: SignedInServer, visitor: Visitor) -> None:
    """Signed in and listed nowhere; the name is shown as text."""
    sign_in(signing, visitor, email="[x](javascript:alert(1))@site.example")
    expect(visitor.page.get_by_text("has no role here")).to_be_visible()
    assert visitor.page.locator("a[href^=javascript]").count() == 0


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"email": ["vera@site.example"]},
        {"email": "vera@site.example", "email_verified": False},
        {"email": "vera@site.example", "email_verified": "true"},
        {"email": "vera@site.example", "email_verified": None},
    ],
)
def test_claims_without_a_proven_name_sign_nobody_in(
    signing: SignedInServer, visitor: Visitor, claims: dict[str, Any]
) -> None:
    """No name, an odd one, or an address that the provider did not verify."""
    sign_in(signing, visitor, **claims)
    expect(visitor.page.get_by_text(SIGN_IN)).to_be_visible()
    expect(visitor.page.get_by_text("did not say your email")).to_be_visible()
    visitor.settle()
    assert "viewer" not in visitor.text()


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_token_that_must_not_be_believed_signs_nobody_in(
    signing: SignedInServer, visitor: Visitor, flaw: str
) -> None:
    """The provider gave it, and still: its time, nonce, issuer, audience or signature is wrong."""
    before = signing.provider.tokens
    sign_in(signing, visitor, flaw=flaw, email="vera@site.example", groups=["ML-Ops"])
    expect(visitor.page.get_by_text(SIGN_IN)).to_be_visible()
    assert signing.provider.tokens == before + 1
    assert not signed_in(visitor)


def test_a_callback_that_nobody_asked_for_signs_nobody_in(
    signing: SignedInServer, visitor: Visitor
) -> None:
    """A code and a state from elsewhere: no session of this browser began with them."""
    visitor.page.goto(f"{signing.server.base}/oauth2callback?code=stolen&state=forged")
    expect(visitor.page.get_by_text(SIGN_IN)).to_be_visible()
    assert signing.provider.refused == []


@pytest.mark.parametrize("groups", [120, 1_500])
def test_a_person_of_many_groups_is_let_in(
    signing: SignedInServer, visitor: Visitor, groups: int
) -> None:
    """Cookies hold some 4 KiB each and a request's head 8: the groups may be in none of them."""
    others = [f"cn=project-{number:05},ou=groups,dc=site,dc=example" for number in range(groups)]
    sign_in(signing, visitor, email="robin@site.example", groups=[*others, "ML-Ops"])
    expect(visitor.page.get_by_text(shown_as("robin@site.example", "approver"))).to_be_visible()


def test_more_groups_than_are_read_are_refused_in_words(
    signing: SignedInServer, visitor: Visitor
) -> None:
    """Nobody waits before an empty page, and nobody loses the groups that came last."""
    sign_in(signing, visitor, email="robin@site.example", groups=["ML-Ops"] * 20_000)
    expect(visitor.page.get_by_text("token about you is too long")).to_be_visible()
    assert not signed_in(visitor)


def test_signing_out_ends_the_session_everywhere(
    signing: SignedInServer, visitor: Visitor, browser: Browser
) -> None:
    """A second tab, and another browser with the same cookies, are signed out at once."""
    sign_in(signing, visitor, email="robin@site.example", groups=["ML-Ops"])
    second = visitor.page.context.new_page()
    second.goto(f"{signing.server.base}/findings")
    approve = second.get_by_role("button", name="Approve", exact=True)
    expect(approve).to_be_visible()
    visitor.settle()
    cookies = visitor.page.context.cookies()
    visitor.page.get_by_role("button", name="Sign out").click()
    expect(visitor.page.get_by_text(SIGN_IN)).to_be_visible()
    approve.click()
    expect(second.get_by_text(SIGN_IN)).to_be_visible()
    with browser.new_context() as elsewhere:
        elsewhere.add_cookies(cookies)
        page = elsewhere.new_page()
        page.goto(f"{signing.server.base}/findings")
        expect(page.get_by_text(SIGN_IN)).to_be_visible()
    second.close()


def test_an_approver_approves_under_the_name_of_the_claim(
    signing: SignedInServer, visitor: Visitor
) -> None:
    """By group; the record holds the name and the way of signing in."""
    sign_in(signing, visitor, email="robin@site.example", groups=["ML-Ops"])
    visitor.go("Findings")
    panel = visitor.page.locator("[class*='st-key-finding-']")
    found = re.search(r"TT-\d+", panel.inner_text())
    assert found
    panel.get_by_role("button", name="Approve", exact=True).click()
    expect(dialog(visitor).get_by_label("Your name")).to_have_count(0)
    answer(visitor)
    expect(panel.get_by_text(re.compile("approved by robin@"))).to_be_visible()
    one = stored(signing.server)[found.group()]
    assert (one.state, one.decided_by) == ("approved", "robin@site.example")
    log = signing.server.log.read_text(encoding="utf-8")
    assert "canary" not in log
