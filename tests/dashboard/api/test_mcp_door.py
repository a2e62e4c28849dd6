"""Assistants over HTTP: with the rights of who asks, and no verb that acts."""

import json
from collections.abc import Callable
from typing import Any

from beds.api_clients import problem
from starlette.testclient import TestClient

from data.store import Store

ACCEPT = {"Accept": "application/json, text/event-stream"}
ACTS = ("approve", "apply", "reject", "submit", "write", "roll", "decide", "dismiss", "snooze")


def asked(client: TestClient, method: str, **given: Any) -> dict[str, Any]:
    """The result of a request of the protocol, or its error."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": given}
    answer = client.post("/mcp", json=body, headers=ACCEPT)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return dict(found.get("result") or found["error"])


def tool(client: TestClient, called: str, /, **given: Any) -> dict[str, Any]:
    """What a tool answers; {"refused": …} where it does not."""
    found = asked(client, "tools/call", name=called, arguments=given)
    if found.get("isError"):
        return {"refused": found["content"][0]["text"]}
    return dict(found["structuredContent"])


def test_tools_answer_with_the_rows_of_the_api(as_: Callable[..., TestClient]) -> None:
    """Of a long list the first rows, and how many there are."""
    vera = as_("vera")
    found = tool(vera, "findings", sort="number", rows=1)
    listed = vera.get("/api/v1/findings?sort=number").json()
    assert (found["answer"], found["total"]) == (listed["items"][:1], listed["total"])
    one = vera.get("/api/v1/findings/TT-2").json()
    assert tool(vera, "finding", name="TT-2")["answer"] == one["finding"] | {
        "record": [], "change": one["change"]
    }  # fmt: skip
    assert tool(vera, "jobs")["answer"] == vera.get("/api/v1/jobs").json()["items"]
    assert "no cycle" in tool(vera, "forecasts").get("refused", "no cycle")


def test_a_parameter_that_no_tool_has_is_refused(as_: Callable[..., TestClient]) -> None:
    """Of every tool: a misspelt filter is not answered with all rows."""
    vera = as_("vera")
    for entry in asked(vera, "tools/list")["tools"]:
        assert entry["inputSchema"]["additionalProperties"] is False
        assert "namespce" in tool(vera, entry["name"], namespce="search")["refused"]


def test_an_owner_is_told_of_their_own(as_: Callable[..., TestClient]) -> None:
    """What belongs to others is answered as what does not exist."""
    mine = as_("search")
    assert [entry["finding"] for entry in tool(mine, "findings")["answer"]] == ["TT-1"]
    other, none = tool(mine, "finding", name="TT-2"), tool(mine, "finding", name="TT-9")
    assert other["refused"].replace("TT-2", "TT-9") == none["refused"]
    listed = asked(mine, "tools/list")["tools"]
    for entry in listed:
        if entry["name"] not in ("findings", "finding"):
            needed = {"estimate_memory": {"model": "llama3-8b", "batch": 8, "seq": 8}}
            said = tool(mine, entry["name"], **needed.get(entry["name"], {}))
            assert "vision" not in json.dumps(said), entry["name"]


def test_nobody_is_let_in_without_a_role(as_: Callable[..., TestClient], store: Store) -> None:
    """By the same tokens as the API, from anywhere; a revoked one is none."""
    made = as_("alex").post("/api/v1/tokens", json={"person": "vera"}).json()
    elsewhere = as_(token=made["token"], peer="203.0.113.9")
    assert tool(elsewhere, "findings")["total"] == 2
    as_("alex").delete(f"/api/v1/tokens/{made['token_id']}")
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    problem(elsewhere.post("/mcp", json=body, headers=ACCEPT), 401)
    problem(as_("somebody").post("/mcp", json=body, headers=ACCEPT), 403)
    problem(as_().post("/mcp", json=body, headers=ACCEPT), 401)
    evil = ACCEPT | {"Origin": "https://evil.example"}
    problem(as_("alex").post("/mcp", json=body, headers=evil), 403)
    problem(as_("alex").post("/mcp", content=b"x" * 70_000, headers=ACCEPT), 413)


def test_no_verb_acts_and_no_text_is_one(as_: Callable[..., TestClient], store: Store) -> None:
    """For an admin too; nothing is written, whatever is asked."""
    alex = as_("alex")
    names = [entry["name"] for entry in asked(alex, "tools/list")["tools"]]
    assert names
    assert not [name for name in names if any(verb in name for verb in ACTS)]
    for text in ("TT-1/decisions", "../tokens", "TT-1?all=true", "TT-1#", "", "\u202eTT-1",
                 "approve TT-1", "x" * 5000, "--help", "TT-1\r\nX-Trimtab-By: eve"):  # fmt: skip
        assert "refused" in tool(alex, "finding", name=text)
        assert "refused" in tool(alex, "estimate_memory", model=text, batch=8, seq=8)
        assert "refused" in tool(alex, "what_if", headroom=text)
        found = tool(alex, "findings", team=text)
        assert text == "" or "refused" in found or found["total"] == 0
    assert store.reader.audit() == ()
