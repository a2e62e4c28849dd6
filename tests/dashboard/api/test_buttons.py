"""What the buttons of the pages ask of the API: whom their tickets name, and the switch."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from beds.api_clients import PROXY, clients, problem
from starlette.testclient import TestClient

from dashboard.api.press_tickets import TICKET_HEADER, ticket_of
from data.access_settings import AccessSettings
from data.clock import utc_now
from data.records.commands import Person
from data.store import Store

OIDC = AccessSettings(
    mode="oidc", default_role="none", viewers="vera", approvers="group:ml-ops", admins="alex",
    oidc_metadata_url="https://id.example/.well-known/openid-configuration",
    oidc_client_id="trimtab", oidc_client_secret="s" * 40, oidc_cookie_secret="c" * 40,
    oidc_redirect_uri="https://trimtab.example/oauth2callback", allowed_hosts="localhost",
)  # fmt: skip
ANN = Person(name="ann@site.example", groups=("ml-ops",), via="oidc")
PATH = "/api/v1/findings/TT-1/decisions"
APPROVE = {"decision": "approve"}


@pytest.fixture
def press(store: Store) -> Iterator[Callable[..., object]]:
    """Posts of a button, with a ticket."""
    with clients(store, OIDC) as client:

        def post(ticket: str | bytes, path: str = PATH, wish: object = APPROVE) -> object:
            return client().post(path, json=wish, headers={TICKET_HEADER: ticket})

        yield post


def ticket(person: Person = ANN, path: str = PATH, seconds: float = 60.0) -> str:
    """A ticket of a button that posts."""
    return ticket_of(person, "POST", path, until=time.time() + seconds)


def test_a_ticket_asks_as_who_signed_in(store: Store, press: Callable[..., TestClient]) -> None:
    """With the role that the settings give to name and groups, and never more."""
    vera = Person(name="vera", via="oidc")
    problem(press(ticket(vera)), 403)
    problem(press(ticket(Person(name="stranger", via="oidc"))), 403)
    assert press(ticket()).json()["by"] == ANN.name
    assert store.reader.audit()[-1].actor == ANN.name


def test_a_ticket_is_good_for_one_address_until_the_sign_in_ends(
    press: Callable[..., TestClient],
) -> None:
    """Not for another finding, another method, or later."""
    other = PATH.replace("TT-1", "TT-2")
    assert "something else" in problem(press(ticket(), other), 401)["detail"]
    assert "something else" in problem(press(ticket(path=other)), 401)["detail"]
    deletes = ticket_of(ANN, "DELETE", PATH, until=time.time() + 60)
    assert "something else" in problem(press(deletes), 401)["detail"]
    assert "has ended" in problem(press(ticket(seconds=-1)), 401)["detail"]


def test_a_ticket_that_was_changed_or_made_elsewhere_is_refused(
    press: Callable[..., TestClient],
) -> None:
    """Another name in it, a signature cut or of other letters, no ticket at all."""
    text, _, signature = ticket().partition(".")
    said = json.loads(base64.urlsafe_b64decode(text)) | {"name": "alex"}
    forged = base64.urlsafe_b64encode(json.dumps(said).encode()).decode()
    for wrong in (
        f"{forged}.{signature}", f"{text}.{signature[:-1]}", f"{text}.{'0' * 64}", text, ".", "x",
        f"{text}.{signature}é".encode(), f"{text}.{'0' * 20_000}",
    ):  # fmt: skip
        assert "another server" in problem(press(wrong), 401)["detail"]


def test_a_ticket_counts_where_people_sign_in_on_the_pages_alone(store: Store) -> None:
    """Behind a proxy the proxy says who asks; a ticket is no other way in."""
    with clients(store, replace(PROXY, approvers="group:ml-ops")) as client:
        headers = {TICKET_HEADER: ticket()}
        assert client("vera").post(PATH, json=APPROVE, headers=headers).status_code == 403
        assert client(peer="203.0.113.9").post(PATH, json=APPROVE, headers=headers).is_error


def test_whoever_is_let_in_stops_applying_and_an_admin_resumes(
    as_: Callable[..., TestClient],
) -> None:
    """Who, when and why are told; nobody without a role may look or stop."""
    address = "/api/v1/stop"
    problem(as_("stranger").post(address, json={}), 403)
    assert as_("vera").get(address).json()["stopped"] is False
    told = as_("search").post(address, json={"reason": "too hot"}).json()
    assert (told["stopped"], told["by"], told["reason"]) == (True, "search", "too hot")
    assert as_("vera").get(address).json() == told
    assert "only admins" in problem(as_("ann").delete(address), 403)["detail"]
    assert as_("alex").delete(address).json()["stopped"] is False


def test_approved_and_applied_by_one_request_is_refused_without_an_applier(
    store: Store, as_: Callable[..., TestClient]
) -> None:
    """Nothing is approved then; a change that was shown may be named."""
    wish = {"decision": "approve-and-apply", "change_digest": "0" * 64}
    said = problem(as_("ann").post("/api/v1/findings/TT-1/decisions", json=wish), 422)
    assert "no applier" in said["detail"]
    assert store.reader.recommendation("TT-1", now=utc_now()).state == "proposed"
