"""Two web processes on one PostgreSQL store, raced and asked in turn: they decide as one does."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from beds.api_clients import fill_two_owners
from beds.raw_requests import answer
from browser.bed import Server, running_server

from data.store import Store, open_store

pytestmark = pytest.mark.postgres
APPROVERS, ADMIN = ("ann", "abe"), "alex"
ASKS = 12
ACCESS = {
    "MODE": "proxy", "PROXY_ADDRESSES": "127.0.0.1", "DEFAULT_ROLE": "none",
    "APPROVERS": ",".join(APPROVERS), "ADMINS": ADMIN, "VIEWERS": "vera",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Both processes and their store."""

    servers: tuple[Server, ...]
    store: Store

    def ask(
        self, number: int, path: str, name: str = "", *, method: str = "GET", **given: Any
    ) -> tuple[int, dict[str, Any]]:
        """Ask one of them as somebody; give the status and what it answers."""
        token, key = given.pop("token", ""), given.pop("key", "")
        body = json.dumps(given).encode() if method == "POST" else b""
        headers = {"Content_Type": "application/json", "Content_Length": str(len(body))}
        headers |= {"X_Forwarded_User": name} if name else {}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {"Idempotency_Key": key} if key else {}
        server = self.servers[number % 2]
        status, text = answer(server, f"/api/v1/{path}", method=method, body=body, **headers)
        return status, json.loads(text) if text else {}

    def events(self, finding: str) -> list[str]:
        """The record's events about a finding, in order."""
        number = int(finding.removeprefix("TT-"))
        return [entry.event for entry in self.store.reader.entries_about(number)]


@pytest.fixture
def pair(postgres_url: str, tmp_path: Path) -> Iterator[Pair]:
    """Two servers of a part each, with stop files of their own, as on two hosts."""
    fill_two_owners(postgres_url)
    settings = {f"TRIMTAB_ACCESS_{name}": text for name, text in ACCESS.items()}
    with open_store(postgres_url) as store, ExitStack() as stack:
        servers = []
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            variables = settings | {"TRIMTAB_APPLY_STOP_FILE": f"{folder}/STOP"}
            web = running_server(postgres_url, folder, options=("--only", "web"), **variables)
            servers.append(stack.enter_context(web))
        yield Pair(servers=tuple(servers), store=store)


def test_racing_decisions_are_one(pair: Pair) -> None:
    """Approvals of two people, then approvals against snoozes: the record is one legal order."""

    def decide(number: int) -> int:
        wish: dict[str, Any] = {"decision": "approve"}
        if number >= ASKS and number % 3 == 0:
            wish = {"decision": "snooze", "until": "2099-01-01T00:00:00Z"}
        path = f"findings/TT-{1 + number // ASKS}/decisions"
        name = APPROVERS[number // 2 % 2]
        return pair.ask(number, path, name, method="POST", **wish)[0]

    with ThreadPoolExecutor(ASKS) as pool:
        statuses = list(pool.map(decide, range(2 * ASKS)))
    assert set(statuses) <= {200, 409, 412, 422}, statuses
    assert statuses[:ASKS].count(200) >= 1
    assert pair.events("TT-1").count("approved") == 1
    assert pair.events("TT-2").count("approved") <= 1
    assert pair.store.reader.verify_audit() == ()
    for number in range(2):
        rows = pair.ask(number, "findings", ADMIN)[1]["items"]
        assert {row["finding"]: row["state"] for row in rows}["TT-1"] == "approved"


def test_a_key_that_is_played_again_at_the_other_decides_nothing_twice(pair: Pair) -> None:
    """One request, sent to both at once and after: one approval, and no error of a server."""

    def decide(number: int) -> int:
        return pair.ask(
            number, "findings/TT-1/decisions", "ann", method="POST", key="k1", decision="approve"
        )[0]

    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(decide, range(4)))
    assert 200 in statuses
    assert set(statuses) <= {200, 409, 422}
    assert pair.events("TT-1").count("approved") == 1


def test_a_token_that_one_revokes_ends_at_the_other(pair: Pair) -> None:
    """Made at one it lets in at the other; revoked there, it does at neither."""
    wish = {"person": "vera", "role": "viewer", "days": 1}
    status, token = pair.ask(0, "tokens", ADMIN, method="POST", **wish)
    assert status == 201, token
    for number in range(2):
        assert pair.ask(number, "findings", token=token["token"])[0] == 200
    (row,) = pair.store.reader.tokens()
    assert pair.ask(1, f"tokens/{row.token_id}", ADMIN, method="DELETE")[0] in (200, 204)
    for number in range(2):
        assert pair.ask(number, "findings", token=token["token"])[0] == 401


def test_a_stop_at_one_is_told_by_the_other(pair: Pair) -> None:
    """So it is after a race of stops; only an admin resumes, and each host its own file."""
    with ThreadPoolExecutor(ASKS) as pool:
        stops = [
            pool.submit(pair.ask, number, "stop", "ann", method="POST", reason=f"r{number}")
            for number in range(ASKS)
        ]
        assert {future.result()[0] for future in stops} == {200}
    for number in range(2):
        assert pair.ask(number, "stop", "abe")[1]["stopped"] is True
        assert pair.ask(number, "stop", "abe", method="DELETE")[0] == 403
    for number in range(2):
        assert pair.ask(number, "stop", ADMIN, method="DELETE")[0] == 200
    assert [pair.ask(number, "stop", ADMIN)[1]["stopped"] for number in range(2)] == [False] * 2
    assert pair.store.reader.verify_audit() == ()
