"""A server that strangers keep busy: probes, the kill switch and people are answered."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from threading import Lock as ThreadLock
from threading import enumerate as enumerate_threads
from typing import Any

import httpx2
import pytest
import uvicorn
from anyio.to_thread import current_default_thread_limiter
from beds.api_clients import fill_two_owners
from beds.page_world import page_world
from beds.ports import free_port
from beds.raw_requests import answer
from browser.bed import Server, running_server
from streamlit.runtime.scriptrunner import StopException

from dashboard.api.app import build_api
from dashboard.api.http.authentication import GUESSES
from dashboard.api.http.context import ApiWorld
from dashboard.apply.contract.kill_switch import stopped
from dashboard.apply.contract.shared_kill_switch import SWITCH_NOTES
from dashboard.cli.operate.serve_roles import when_changed
from dashboard.decisions.service import DecisionService
from dashboard.web.frame.page import PAGES_AT_ONCE, frame
from dashboard.web.server.server import build_app
from data.base.clock import utc_now
from data.records.commands import Person
from data.settings.all_settings import Settings
from data.store import Store, open_store
from data.store.engine.dialects import Lock

STRANGERS, ASKS = 16, 12
DOORS = ("/livez", "/readyz", "/metrics", "/api/v1/stop")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on a store with samples and findings, which only looks for new ones by hand."""
    folder = tmp_path_factory.mktemp("crowded")
    url = f"duckdb:///{folder}/t.duckdb"
    fill_two_owners(url)
    with running_server(url, folder) as running:
        yield running


@contextmanager
def crowd(server: Server, path: str, **headers: str) -> Iterator[list[tuple[int, str]]]:
    """Strangers who ask at once, as often as they may; what they were answered."""
    said: list[tuple[int, str]] = []

    def ask(_number: int) -> None:
        said.extend(answer(server, path, **headers) for _ in range(ASKS))

    with ThreadPoolExecutor(STRANGERS) as pool:
        asked = [pool.submit(ask, number) for number in range(STRANGERS)]
        yield said
        for one in asked:
            one.result()


def test_metrics_are_made_once_for_all_who_ask(server: Server) -> None:
    """A text tells the age of the newest sample to the microsecond: one text is one reading."""
    with crowd(server, "/metrics") as said:
        for path in DOORS:
            assert answer(server, path)[0] == 200
    assert {status for status, _text in said} == {200}
    assert "trimtab_newest_sample_age_seconds" in said[0][1]
    assert len({text for _status, text in said}) <= len(said) / 10


def test_bad_tokens_are_limited_by_address_and_good_ones_go_on(server: Server) -> None:
    """Beyond the limit nobody looks in the store, and a token that let somebody in still does."""
    made = answer(
        server, "/api/v1/tokens", method="POST", X_Trimtab_By="Robin",
        body=(body := b'{"person": "vera", "role": "viewer", "days": 1}'),
        Content_Type="application/json", Content_Length=str(len(body)),
    )  # fmt: skip
    assert made[0] == 201, made
    good = {"Authorization": f"Bearer {json.loads(made[1])['token']}"}
    assert answer(server, "/api/v1/findings", **good)[0] == 200
    with crowd(server, "/api/v1/findings", Authorization=f"Bearer trimtab_{'x' * 43}") as said:
        for path in DOORS:
            assert answer(server, path)[0] == 200
        assert answer(server, "/api/v1/findings", **good)[0] == 200
    looks = [status for status, _text in said]
    assert set(looks) == {401, 429}
    assert looks.count(401) <= GUESSES + 30  # a minute's, and those of the time that this took
    status, text = answer(server, "/mcp", method="POST", Authorization="Bearer trimtab_other")
    assert (status, "unknown tokens" in text) == (429, True)


def settings_of(folder: Path) -> Settings:
    """Settings with a stop file in this folder."""
    settings = Settings()
    return replace(settings, apply=replace(settings.apply, stop_file=str(folder / "stop")))


@asynccontextmanager
async def client_of(app: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the application, which uvicorn serves in this thread."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    base, by = f"http://127.0.0.1:{port}", {"X-Trimtab-By": "Robin"}
    async with httpx2.AsyncClient(base_url=base, timeout=60, headers=by) as client:
        yield client
    server.should_exit = True
    await serving


def test_probes_metrics_and_stop_need_none_of_the_shared_threads(tmp_path: Path) -> None:
    """Forty slow requests hold every thread that requests share: only they wait for each other."""
    told = dict[str, int]()

    async def talk(app: Any) -> None:
        async with client_of(app) as client:
            shared = current_default_thread_limiter()
            for number in range(int(shared.total_tokens)):
                shared.acquire_on_behalf_of_nowait(number)
            for path in DOORS:
                told[path] = (await client.get(path)).status_code
            stop = await client.post("/api/v1/stop", json={"reason": "x"})
            resume = await client.delete("/api/v1/stop")
            told.update(stop=stop.status_code, resume=resume.status_code)
            for number in range(int(shared.total_tokens)):
                shared.release_on_behalf_of(number)

    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        asyncio.run(talk(build_app(page_world(store, settings_of(tmp_path)))))
    assert told == dict.fromkeys((*DOORS, "stop", "resume"), 200)


def test_stop_is_in_force_and_answered_while_a_cycle_writes(tmp_path: Path) -> None:
    """It is noted once the writer has ended; a resume that waited takes no later stop back."""
    settings = settings_of(tmp_path)
    inside, over = Event(), Event()

    def write(store: Store) -> None:
        with store._transaction(Lock.FACTS):
            inside.set()
            over.wait()

    async def talk(store: Store) -> None:
        service = DecisionService(store=store, settings=lambda: settings)
        world = ApiWorld(
            reader=store.reader_for_pages(),
            service=service,
            clock=utc_now,
            caller=lambda _request: Person(name="Robin", via="local"),
        )
        async with client_of(build_api(world)) as client:
            assert (await client.post("/stop", json={"reason": "fire"})).json()["stopped"]
            writing = Thread(target=write, args=(store,))
            writing.start()
            inside.wait()
            resume = asyncio.create_task(client.delete("/stop"))
            while not SWITCH_NOTES.locked():
                await asyncio.sleep(0.01)
            for reason in ("smoke", "flood"):
                answer = (await client.post("/stop", json={"reason": reason})).json()
                assert (answer["stopped"], answer["reason"]) == (True, reason)
            assert not resume.done()
            over.set()
            assert "flood, after you asked" in (await resume).json()["detail"]
            writing.join()

    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        try:
            asyncio.run(talk(store))
        finally:
            over.set()
        for thread in list(enumerate_threads()):
            if thread.name == "trimtab-stop-note":
                thread.join()
        assert stopped(tmp_path / "stop") is not None
        record = store.reader.entries(("stopped", "resumed"))
        reasons = [entry.detail.rpartition(": ")[2] for entry in record]
        assert sorted(reasons) == ["fire", "flood", "smoke"]


def test_an_idle_store_is_asked_once_until_it_changes(tmp_path: Path) -> None:
    """Loops that look four times a second took most of what an idle server takes."""
    looks: list[int] = []

    def look() -> bool:
        looks.append(1)
        return False

    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        tick = when_changed(store, look, else_after=timedelta(days=1))
        for _ in range(5):
            assert not tick()
        assert len(looks) == 1
        store.append_audit(at=utc_now(), actor="Robin", event="stopped", digest="", detail="")
        for _ in range(5):
            tick()
        assert len(looks) == 2


def test_a_few_pages_are_drawn_at_once() -> None:
    """The others wait for their turn, whatever ended the page before."""
    inside, most, enough = 0, 0, Event()
    counting = ThreadLock()

    def draw(number: int) -> None:
        nonlocal inside, most
        with suppress(StopException), frame():
            with counting:
                inside += 1
                most = max(most, inside)
            if inside >= PAGES_AT_ONCE:
                enough.set()
            enough.wait()
            with counting:
                inside -= 1
            if number % 2:
                raise StopException

    with ThreadPoolExecutor(3 * PAGES_AT_ONCE) as pool:
        list(pool.map(draw, range(3 * PAGES_AT_ONCE)))
    assert most == PAGES_AT_ONCE
