"""A server that strangers keep busy: probes, the kill switch and people are answered."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
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

from dashboard.api.http.authentication import GUESSES
from dashboard.web.server.server import build_app
from data.settings.all_settings import Settings
from data.store import open_store

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


def test_probes_metrics_and_stop_need_none_of_the_shared_threads(tmp_path: Path) -> None:
    """Forty slow requests hold every thread that requests share: only they wait for each other."""
    port, told = free_port(), dict[str, int]()
    settings = Settings()
    settings = replace(settings, apply=replace(settings.apply, stop_file=str(tmp_path / "stop")))

    async def talk(app: Any) -> None:
        config = uvicorn.Config(app, host="127.0.0.1", port=port)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        shared = current_default_thread_limiter()
        for number in range(int(shared.total_tokens)):
            shared.acquire_on_behalf_of_nowait(number)
        base = f"http://127.0.0.1:{port}"
        async with httpx2.AsyncClient(base_url=base, timeout=60) as client:
            for path in DOORS:
                told[path] = (await client.get(path)).status_code
            by = {"X-Trimtab-By": "Robin"}
            stop = await client.post("/api/v1/stop", json={"reason": "x"}, headers=by)
            resume = await client.delete("/api/v1/stop", headers=by)
            told.update(stop=stop.status_code, resume=resume.status_code)
        for number in range(int(shared.total_tokens)):
            shared.release_on_behalf_of(number)
        server.should_exit = True
        await serving

    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        asyncio.run(talk(build_app(page_world(store, settings))))
    assert told == dict.fromkeys((*DOORS, "stop", "resume"), 200)
