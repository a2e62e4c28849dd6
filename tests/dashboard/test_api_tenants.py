"""No row of another tenant through any door: every address of the API, its events, assistants."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from beds.api_clients import LOCAL, PROXY, THEIRS, clients, two_owners
from starlette.testclient import TestClient

from data.store import Store

GIVEN = {"/estimate": "model=llama3-8b&batch=8&seq=8", "/events": "seconds=0&after=0"}
BODIES = {
    "/findings/{finding}/decisions": {"decision": "keep"},
    "/tokens": {"person": "x"},
    "/submissions": {"job": "", "digest": "0" * 64},
    "/submissions/preview": {"job": ""},
    "/dismissals": {"kind": "fewer-gpus", "reason": "not-now", "until": "2030-01-01T00:00:00Z"},
}

OTHERS = re.compile(rf"(?<!re)vision|{THEIRS.digest[:12]}")
"""What only rows of the other tenant hold."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """TT-1 of search, TT-2 of vision, about both of which somebody said something."""
    with two_owners(tmp_path) as opened:
        with clients(opened, LOCAL) as client:
            page = client(peer="127.0.0.1")
            for number in (1, 2):
                wish = {"decision": "approve", "comment": "vision" if number == 2 else "mine"}
                address = f"/api/v1/findings/TT-{number}/decisions"
                answer = page.post(address, json=wish, headers={"X-Trimtab-By": "ann"})
                assert answer.status_code == 200
        yield opened


def every_answer(client: TestClient) -> Iterator[tuple[str, int, str]]:
    """What each address says, asked for what is of vision."""
    schema = client.get("/api/v1/openapi.json").json()
    theirs = ("TT-2", THEIRS.digest[:8], THEIRS.digest)
    for path, methods in schema["paths"].items():
        for method in methods:
            for name in theirs if "{" in path else ("",):
                address = path.format(finding=name, token_id=name, dismissal_id=name)
                answer = client.request(
                    method.upper(), f"/api/v1{address}?{GIVEN.get(path, '')}",
                    json=BODIES.get(path) if method == "post" else None,
                )  # fmt: skip
                yield f"{method} {address}", answer.status_code, answer.text


def test_no_address_tells_an_owner_of_others(store: Store) -> None:
    """Not in a row, an event, a refusal; what is the owner's own is told."""
    with clients(store, PROXY) as client:
        mine = list(every_answer(client("search")))
        everything = list(every_answer(client("vera")))
    assert [asked for asked, _, said in mine if _tells(asked, said)] == []
    assert len([asked for asked, _, said in everything if _tells(asked, said)]) > 5
    told = {asked for asked, status, _said in mine if status == 200}
    assert told == {"get /", "get /findings", "get /events"}


def _tells(asked: str, said: str) -> bool:
    """Whether an answer holds more of vision than the words that were asked."""
    for word in asked.split("/"):
        said = said.replace(word, "") if len(word) > 20 or word == "TT-2" else said
    return bool(OTHERS.search(said))


def test_no_tool_tells_an_owner_of_others(store: Store) -> None:
    """Nor a resource."""
    with clients(store, PROXY) as client:
        told: Callable[[TestClient], list[str]] = _every_tool
        assert not [said for said in told(client("search")) if OTHERS.search(said)]
        assert [said for said in told(client("vera")) if OTHERS.search(said)]


def _every_tool(client: TestClient) -> list[str]:
    accept = {"Accept": "application/json, text/event-stream"}

    def ask(method: str, **given: object) -> str:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": given}
        return client.post("/mcp", json=body, headers=accept).text

    given = {"model": "llama3-8b", "batch": 8, "seq": 8, "name": "TT-2"}
    tools = json.loads(ask("tools/list"))["result"]["tools"]
    answers = [
        ask(
            "tools/call", name=tool["name"],
            arguments={name: given[name] for name in tool["inputSchema"].get("required", [])},
        )
        for tool in tools
    ]  # fmt: skip
    uris = ("trimtab://findings", "trimtab://findings/TT-2", "trimtab://reports/weekly")
    return [*answers, *(ask("resources/read", uri=uri) for uri in uris)]
