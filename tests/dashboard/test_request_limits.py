"""One person's 1200 requests a minute hold at every address of a started server."""

import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from browser.bed import Server, running_server

from dashboard.api.http.context import REQUESTS_PER_MINUTE


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server behind a sign-in proxy."""
    folder = tmp_path_factory.mktemp("limits")
    with running_server(
        f"duckdb:///{folder}/t.duckdb",
        folder,
        TRIMTAB_ACCESS_MODE="proxy",
        TRIMTAB_ACCESS_PROXY_ADDRESSES="127.0.0.1",
    ) as running:
        yield running


@pytest.mark.parametrize("path", ["/?bucket={}", "/findings/TT-1?bucket={}", "/openapi.json"])
def test_no_address_and_no_parameter_is_without_the_limit(server: Server, path: str) -> None:
    """A person of their own for each address asks until they are told that it is too often."""
    door = http.client.HTTPConnection(urlsplit(server.base).netloc, timeout=60)
    statuses = []
    for number in range(2 * REQUESTS_PER_MINUTE):
        door.request(
            "GET", f"/api/v1{path.format(number)}", headers={"X-Forwarded-User": f"who asks {path}"}
        )
        answer = door.getresponse()
        answer.read()
        statuses.append(answer.status)
        if answer.status == 429:
            break
    door.close()
    assert statuses[-1] == 429, f"{len(statuses)} answers"
    assert len(statuses) > REQUESTS_PER_MINUTE
