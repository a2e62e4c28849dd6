"""Events over HTTP: each once, in order, resumed where they ended, and none of others."""

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from beds.api_clients import problem
from beds.stores import cycle
from factories import make_recommendation
from starlette.requests import Request
from starlette.testclient import TestClient

from dashboard.api.http.context import ApiWorld
from dashboard.api.routes.events import _events
from dashboard.decisions.service import DecisionService
from data.base.clock import utc_now
from data.base.errors import NotSignedInError
from data.records.commands import Person
from data.settings.all_settings import Settings
from data.store import Store

HOSTILE = "line\nid: 9\r\nevent: cycle\r\rdata: {}\u2028 \x1b[2J"


def told(client: TestClient, query: str = "seconds=0", **headers: str) -> list[dict[str, Any]]:
    """The events of a stream, read as browsers read them."""
    answer = client.get(f"/api/v1/events?{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in answer.text.split("\n\n"):
        pairs = [line.partition(": ") for line in block.split("\n") if line[:1] not in ("", ":")]
        if pairs:
            event = {name: value for name, _, value in pairs}
            found.append(event | {"data": json.loads(event["data"])})
    return found


def decide(client: TestClient, finding: str, decision: str, comment: str = "") -> None:
    """Decide about a finding."""
    wish = {"decision": decision, "comment": comment}
    answer = client.post(f"/api/v1/findings/{finding}/decisions", json=wish)
    assert answer.status_code == 200, answer.text


def test_each_entry_of_the_record_is_told_once(as_: Callable[..., TestClient]) -> None:
    """From where one left off; what people wrote is one text and no line of the stream."""
    ann = as_("ann")
    assert told(as_("vera")) == []
    decide(ann, "TT-1", "approve", HOSTILE)
    decide(ann, "TT-2", "reject")
    events = told(as_("vera"), "seconds=0&after=0")
    assert [(event["id"], event["event"]) for event in events] == [("1", "record"), ("2", "record")]
    assert [event["data"]["finding"] for event in events] == ["TT-1", "TT-2"]
    assert events[0]["data"]["detail"] == ann.get("/api/v1/audit").json()["items"][0]["detail"]
    later = told(as_("vera"), "seconds=0&after=0", **{"Last-Event-ID": "1"})
    assert later == events[1:]
    assert told(as_("vera")) == []
    for bad in ("x", "-1", "1.5", "9" * 40):
        problem(ann.get("/api/v1/events?seconds=0", headers={"Last-Event-ID": bad}), 422)
    problem(ann.get("/api/v1/events?seconds=0&since=1"), 422)


def test_owners_are_told_of_their_own(as_: Callable[..., TestClient]) -> None:
    """Nothing of others, and nothing of the fleet."""
    decide(as_("ann"), "TT-2", "approve")
    decide(as_("ann"), "TT-1", "approve")
    assert as_("alex").post("/api/v1/tokens", json={"person": "x"}).status_code == 201
    mine = told(as_("search"), "seconds=0&after=0")
    assert [entry["data"]["finding"] for entry in mine] == ["TT-1"]
    problem(as_("somebody").get("/api/v1/events?seconds=0"), 403)


def test_more_than_a_batch_is_told_whole(store: Store, as_: Callable[..., TestClient]) -> None:
    """However long one was away."""
    for number in range(205):
        _entry(store, f"{number}")
    events = told(as_("vera"), "seconds=0&after=1")
    assert [event["data"]["detail"] for event in events] == [str(n) for n in range(1, 205)]


def test_what_happens_meanwhile_arrives(store: Store) -> None:
    """Entries and cycles as they come; a right that ended tells nothing more."""
    known = [Person(name="vera")]
    service = DecisionService(store=store, settings=Settings)

    def caller(_request: Request) -> Person:
        if not known:
            raise NotSignedInError("nobody")
        return known[0]

    world = ApiWorld(reader=store.reader_for_pages(), service=service, clock=utc_now, caller=caller)

    async def listen() -> None:
        stream = _events(world, Request({"type": "http", "headers": []}), 0, 3600.0)
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        for number in range(2):
            _entry(store, f"{number}")
        assert (await first).data["detail"] == "0"
        assert (await anext(stream)).data["detail"] == "1"
        cycle(store, 2, make_recommendation(job_id="vision/detector"), at=utc_now())
        assert (await anext(stream)).event == "cycle"
        known.clear()
        _entry(store, "2")
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    # In a thread of its own: a browser of tests before may keep a loop in this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, listen()).result()


def _entry(store: Store, detail: str) -> None:
    store.append_audit(at=utc_now(), actor="a", event="stopped", digest="", detail=detail)


def test_a_caller_has_so_many_streams(
    as_: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next is told to wait, and another person has a seat though all are taken."""
    monkeypatch.setattr("dashboard.api.routes.events._MOST_STREAMS", 8)
    vera = as_("vera")
    token = as_("alex").post("/api/v1/tokens", json={"person": "vera"}).json()

    def listen() -> None:
        as_(token=token["token"]).get("/api/v1/events?seconds=3600")

    listening = [threading.Thread(target=listen) for _ in range(8)]
    for thread in listening:
        thread.start()
    status = 200
    while status == 200:
        status = vera.get("/api/v1/events?seconds=0").status_code
    assert status == 429
    assert as_("ann").get("/api/v1/events?seconds=0").status_code == 200
    # The streams end at the next thing to tell, which is this.
    as_("alex").delete(f"/api/v1/tokens/{token['token_id']}")
    for thread in listening:
        thread.join()
    assert vera.get("/api/v1/events?seconds=0").status_code == 200
