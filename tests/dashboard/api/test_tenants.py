"""No row of another tenant through any door: every address of the API, its events, assistants."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from beds.api_clients import LOCAL, PROXY, clients
from beds.two_tenants import MINE, THEIRS, fill
from starlette.testclient import TestClient

from data.base.clock import utc_now
from data.store import Store, open_store

OWNERS = replace(PROXY, owners=f"{MINE},{THEIRS}")
GIVEN = {
    "/estimate": "model=llama3-8b&batch=8&seq=8",
    "/samples": f"gpu=GPU-{THEIRS}-0",
}
SUSPENDED = {
    "kind": "TrainJob",
    "spec": {
        "trainer": {
            "command": ["torchrun", "--nproc-per-node", "1", "t.py", "--bf16",
                        "--model_name_or_path", "Qwen/Qwen2.5-0.5B", "--max_seq_length", "512"],
        }
    },
}  # fmt: skip
BODIES = {
    "/findings/{finding}/decisions": {"decision": "keep"},
    "/tokens": {"person": "x"},
    "/submissions": {"job": "", "digest": "0" * 64},
    "/submissions/preview": {"job": ""},
    "/size": SUSPENDED,
    "/stop": {"reason": "too hot"},
}
STATEMENT = "/statement"
WHOM = ("tenant", "application", "owner", "job", "model", "state")

OTHERS = re.compile(rf"(?<!re){THEIRS}")
"""What only rows of the other tenant hold."""
OWN = {
    "get /", "get /findings", "get /jobs", "get /applications", "get /gpus",
    "get /slots", "get /urgent", "get /memory", "get /idle", "get /forecasts", "get /energy",
    "get /savings", "get /savings/to-date", "get /serving", "get /reports/weekly", "get /audit",
    "get /quotas", "get /stop", "post /stop", "post /size",
}  # fmt: skip
"""What an owner is told of."""
NO_ROWS = {"get /", "get /stop", "post /stop", "post /size"}
"""Of that, what names no job of anybody."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Rows of every kind of both; TT-2 and TT-4 are theirs, and somebody said something of each."""
    folder = tmp_path_factory.mktemp("tenants")
    with open_store(f"duckdb:///{folder}/t.duckdb") as opened:
        fill(opened, utc_now())
        with clients(opened, LOCAL) as client:
            page = client(peer="127.0.0.1")
            for number, tenant in ((3, MINE), (4, THEIRS)):
                wish = {"decision": "approve", "comment": f"said of {tenant}"}
                address = f"/api/v1/findings/TT-{number}/decisions"
                answer = page.post(address, json=wish, headers={"X-Trimtab-By": "ann"})
                assert answer.status_code == 200
        yield opened


def every_answer(store: Store, client: TestClient) -> Iterator[tuple[str, int, str]]:
    """What each address says, asked for what is of the other tenant."""
    schema = client.get("/api/v1/openapi.json").json()
    found = store.reader.recommendations(now=utc_now())
    digest = next(
        entry.recommendation.digest for entry in found if entry.recommendation.namespace == THEIRS
    )
    theirs = ("TT-2", "TT-4", digest[:8], digest)
    for path, methods in schema["paths"].items():
        for method in methods:
            for name in theirs if "{" in path else ("",):
                address = path.format(finding=name, token_id=name)
                for query in _queries(path, methods[method]):
                    answer = client.request(
                        method.upper(), f"/api/v1{address}?{GIVEN.get(path, '')}{query}",
                        json=BODIES.get(path) if method == "post" else None,
                    )  # fmt: skip
                    yield f"{method} {address}", answer.status_code, answer.text


def _queries(path: str, operation: Any) -> list[str]:
    """What can be asked of an address: with each word that an option of it knows, and as it is."""
    words = [
        f"{given['name']}={word}"
        for given in operation.get("parameters", [])
        for word in given["schema"].get("enum", ())
    ]
    if path == "/slots":
        return [f"job={tenant}/chat" for tenant in (MINE, THEIRS)]
    return ["", *words, *(f"by={by}&every=day&format=focus" for by in WHOM if path == STATEMENT)]


def test_no_address_tells_an_owner_of_others(store: Store) -> None:
    """Not in a row, an event, a refusal; what is the owner's own is told."""
    with clients(store, OWNERS) as client:
        mine = list(every_answer(store, client(MINE)))
        everything = list(every_answer(store, client("vera")))
    assert [asked for asked, _, said in mine if _tells(asked, said)] == []
    assert OWN - {asked for asked, _, said in everything if _tells(asked, said)} == NO_ROWS
    assert {asked for asked, status, _said in mine if status == 200} == OWN
    assert OWN - {asked for asked, _status, said in mine if MINE in said} <= NO_ROWS


def test_what_an_owner_is_told_is_what_the_fleet_says_of_theirs(store: Store) -> None:
    """Energy, hours and savings of the tenant are the same figures to both."""
    with clients(store, OWNERS) as client:
        mine, whole = client(MINE), client("vera")
        for address, rows, key in (
            ("energy?by=namespace", "groups", "group"),
            ("savings/to-date?by=namespace", "", "name"),
            ("jobs", "items", "job_id"),
            ("savings", "items", "finding"),
            ("idle", "", "job"),
            ("memory", "", "job_id"),
            ("forecasts?by=job", "", "job_id"),
        ):
            own, every = (group.get(f"/api/v1/{address}").json() for group in (mine, whole))
            own, every = (found[rows] if rows else found for found in (own, every))
            same = {entry[key]: entry for entry in every}
            shown = [entry for entry in own if entry[key] not in ("all", "")]
            assert shown, address
            assert [same[entry[key]] for entry in shown] == shown, address


def test_two_owners_at_once_keep_their_own_answers(store: Store) -> None:
    """What was made for one is never given to the other, nor to who sees all."""
    with clients(store, OWNERS) as client:
        people = {name: client(name) for name in (MINE, THEIRS, "vera")}
        for _again in range(2):
            for name, other in ((MINE, THEIRS), (THEIRS, MINE)):
                for address in ("jobs", "energy?by=job", "savings", "reports/weekly", "findings"):
                    said = people[name].get(f"/api/v1/{address}").text
                    assert name in said, address
                    assert not re.search(rf"(?<!re){other}", said), address
                    assert {MINE in (all_ := people["vera"].get(f"/api/v1/{address}").text),
                            THEIRS in all_} == {True}, address  # fmt: skip


def _tells(asked: str, said: str) -> bool:
    """Whether an answer holds more of the other than the words that were asked."""
    for word in asked.split("/"):
        said = said.replace(word, "") if len(word) > 20 or word.startswith("TT-") else said
    return bool(OTHERS.search(said))


def test_no_tool_tells_an_owner_of_others(store: Store) -> None:
    """What is their own is told."""
    with clients(store, OWNERS) as client:
        told: Callable[[TestClient], list[str]] = _every_tool
        mine = told(client(MINE))
        assert not [said for said in mine if OTHERS.search(said)]
        assert len([said for said in mine if MINE in said]) > 10
        assert [said for said in told(client("vera")) if OTHERS.search(said)]


def _every_tool(client: TestClient) -> list[str]:
    accept = {"Accept": "application/json, text/event-stream"}

    def ask(method: str, **given: object) -> str:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": given}
        return client.post("/mcp", json=body, headers=accept).text

    given = {"model": "llama3-8b", "batch": 8, "seq": 8, "name": "TT-2", "job": "4711"}
    tools = json.loads(ask("tools/list"))["result"]["tools"]
    return [
        ask("tools/call", name=tool["name"], arguments=_needed(tool, given) | chosen)
        for tool in tools
        for chosen in ({}, *({"by": word} for word in _words(tool)))
    ]


def _needed(tool: Any, given: dict[str, object]) -> dict[str, object]:
    return {name: given[name] for name in tool["inputSchema"].get("required", [])}


def _words(tool: Any) -> list[str]:
    """What a tool can tell its rows apart by."""
    return list(tool["inputSchema"]["properties"].get("by", {}).get("enum", ()))
