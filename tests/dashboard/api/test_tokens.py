"""Tokens of the API: whom they let in, who makes them, when they end."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from beds.api_clients import LOCAL, PROXY, clients, problem
from starlette.testclient import TestClient

from dashboard.decisions.service import DecisionService
from data.base.clock import utc_now
from data.records.commands import Person
from data.settings.all_settings import Settings
from data.store import Store


def made_token(client: TestClient, **wish: object) -> dict[str, Any]:
    """A token that was made."""
    answer = client.post("/api/v1/tokens", json={"person": "robot"} | wish)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_a_token_lets_in_from_anywhere_as_who_it_was_made_for(
    store: Store, as_: Callable[..., TestClient]
) -> None:
    """With the role of that person, and never more than its own."""
    mine = made_token(as_("alex"), person="ann", role="approver")["token"]
    looking = made_token(as_("alex"), person="ann", role="viewer")["token"]
    elsewhere = partial(as_, peer="203.0.113.9")
    assert elsewhere(token=looking).get("/api/v1/jobs").status_code == 200
    wish = {"decision": "approve"}
    address = "/api/v1/findings/TT-1/decisions"
    problem(elsewhere(token=looking).post(address, json=wish), 403)
    assert elsewhere(token=mine).post(address, json=wish).status_code == 200
    assert store.reader.audit()[-1].actor == "ann"


def test_a_token_gives_nobody_a_role_that_they_lack(as_: Callable[..., TestClient]) -> None:
    """The settings say who may do what."""
    token = made_token(as_("alex"), person="vera", role="approver")["token"]
    wish = {"decision": "approve"}
    answer = as_(token=token).post("/api/v1/findings/TT-1/decisions", json=wish)
    problem(answer, 403)
    nobody = made_token(as_("alex"), person="stranger", role="approver")["token"]
    problem(as_(token=nobody).get("/api/v1/findings"), 403)


def test_tokens_are_made_by_admins_in_person(as_: Callable[..., TestClient]) -> None:
    """Not by others, not for admins, not by a token."""
    for who in ("ann", "vera", "search"):
        problem(as_(who).post("/api/v1/tokens", json={"person": "x"}), 403)
        problem(as_(who).get("/api/v1/tokens"), 403)
    problem(as_("alex").post("/api/v1/tokens", json={"person": "x", "role": "admin"}), 422)
    token = made_token(as_("alex"), person="alex", role="approver")["token"]
    problem(as_(token=token).post("/api/v1/tokens", json={"person": "x"}), 403)
    for bad in ({"person": ""}, {"person": "x", "days": 0}, {"person": "x", "days": 1e9},
                {"person": " x"}, {"person": "x\u202e"}):  # fmt: skip
        problem(as_("alex").post("/api/v1/tokens", json=bad), 422)


def test_a_token_ends(store: Store) -> None:
    """When it has expired, and at once when it is revoked."""
    now = utc_now()
    times = [now]
    with clients(store, PROXY, clock=lambda: times[0]) as client:
        made = made_token(client("alex"), person="vera", days=1)
        assert client(token=made["token"]).get("/api/v1/jobs").status_code == 200
        times[0] = now + timedelta(days=1, seconds=1)
        assert "expired" in problem(client(token=made["token"]).get("/api/v1/"), 401)["detail"]
        times[0] = now
        gone = client("alex").delete(f"/api/v1/tokens/{made['token_id']}")
        assert gone.json()["state"] == "revoked"
        problem(client(token=made["token"]).get("/api/v1/jobs"), 401)
        problem(client("alex").delete(f"/api/v1/tokens/{made['token_id']}"), 404)


def test_no_text_of_a_token_is_kept(
    store: Store, as_: Callable[..., TestClient], tmp_path: Path
) -> None:
    """Not in the store, not in a list; making and revoking are in the record."""
    made = made_token(as_("alex"), person="ann")
    listed = as_("alex").get("/api/v1/tokens").text
    assert made["token"] not in listed
    assert made["token_id"] in listed
    assert [entry.event for entry in store.reader.audit()] == ["token-made"]
    assert store.reader.verify_audit() == ()
    store.close()
    secret = made["token"].removeprefix("trimtab_").encode()
    for path in tmp_path.iterdir():
        assert secret not in path.read_bytes()


@pytest.mark.parametrize("token", ["x", "trimtab_", "trimtab_" + "A" * 43, "trimtab_é"])
def test_what_is_no_token_lets_nobody_in(token: str, as_: Callable[..., TestClient]) -> None:
    """Beside a name of the proxy too: who brings a token is who it says."""
    headers = {"Authorization": f"Bearer {token}".encode()}
    problem(as_("alex").get("/api/v1/findings", headers=headers), 401)


def test_where_people_sign_in_by_oidc_a_token_is_needed(store: Store) -> None:
    """A page's session is no way in."""
    access = replace(
        PROXY, mode="oidc", oidc_metadata_url="https://i", oidc_client_id="i",
        oidc_client_secret="s" * 1, public_url="https://t",
    )  # fmt: skip
    service = DecisionService(store=store, settings=lambda: Settings(access=access))
    _, text = service.make_token(
        holder="vera", role="viewer", lasts=timedelta(days=1), person=Person(name="alex")
    )
    with clients(store, access) as client:
        problem(client("alex").get("/api/v1/findings"), 401)
        assert client(token=text).get("/api/v1/findings").status_code == 200


@pytest.mark.parametrize(
    "stated", ["", "Bearer", "Bearer ", "bearer\t", "Basic YTpi", "Token x", "x"]
)
def test_a_header_without_a_token_is_nobody_not_the_admin(store: Store, stated: str) -> None:
    """On loopback whoever says nothing is the admin; a script's empty variable says something."""
    asks = {"Authorization": stated, "X-Trimtab-By": "ghost"}
    wish = {"decision": "approve"}
    with clients(store, LOCAL) as client:
        page = client(peer="127.0.0.1")
        problem(page.get("/api/v1/jobs", headers=asks), 401)
        problem(page.post("/api/v1/findings/TT-1/decisions", json=wish, headers=asks), 401)
        assert store.reader.audit() == ()
        assert page.get("/api/v1/jobs").status_code == 200
