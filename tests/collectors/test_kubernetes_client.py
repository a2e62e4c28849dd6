"""Every way a Kubernetes API can fail is a named error with a way out, within a deadline."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from beds.faulty_server import (
    Behaviour,
    FaultyServer,
    broken_gzip,
    drips_body,
    drips_headers,
    faulty_server,
    gzip_bomb,
    hangs,
    resets,
    says,
    truncates,
)
from beds.kubernetes_replay import A_TOKEN, kubeconfig

from collectors.kubernetes import api as api_module
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.kinds import ASKED_WHERE, KINDS
from dashboard.common.kubernetes_writer import KubernetesWriter
from data.base.errors import (
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
)
from data.settings.sources import KubernetesSettings


def items(*names: str, then: str = "") -> Behaviour:
    """Answer a page of objects."""
    return says(200, page(*names, then=then))


def page(*names: str, then: str = "") -> bytes:
    """A page of objects."""
    entries = [{"metadata": {"name": name}} for name in names]
    return json.dumps({"items": entries, "metadata": {"continue": then}}).encode()


def status(code: int, message: str) -> Behaviour:
    """Answer as the API does when it refuses."""
    return says(code, json.dumps({"kind": "Status", "message": message, "code": code}).encode())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder, with no other sign-in around."""
    with mock.patch.dict("os.environ", {"HOME": str(tmp_path), "KUBECONFIG": ""}):
        yield tmp_path


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second for a request."""
    monkeypatch.setattr(api_module, "TIMEOUT_SECONDS", 0.5)


def client_of(folder: Path, server: FaultyServer, **more: Any) -> KubernetesClient:
    """A client of that server."""
    path = kubeconfig(folder / "kubeconfig", server.url)
    return KubernetesClient(KubernetesSettings(enabled=True, kubeconfig=str(path), **more))


@pytest.mark.parametrize(
    ("behaviour", "expected", "said"),
    [
        (status(401, "Unauthorized"), SourceRefusedError, "Renew the token"),
        (status(403, 'User "eve" cannot list nodes'), SourceRefusedError, "kubernetes-reader.yaml"),
        (says(404, b"no such page"), UnexpectedAnswerError, "address of a Kubernetes API"),
        (status(429, "too many"), SourceUnreachableError, "overloaded"),
        (status(500, "etcd"), SourceUnreachableError, "answered 500"),
        (says(503, b"<html>gateway"), SourceUnreachableError, "answered 503"),
        (says(302, b"", ("Location", "http://127.0.0.1:9/")), UnexpectedAnswerError, "302"),
        (says(200, b"<html>sign in</html>"), UnexpectedAnswerError, "address of a Kubernetes"),
        (says(200, b"[" * 200_000), UnexpectedAnswerError, "address of a Kubernetes"),
        (says(200, b'{"items": 3}'), UnexpectedAnswerError, "no list"),
        (says(200, b""), UnexpectedAnswerError, "answered 200"),
        (hangs, SourceUnreachableError, "within 0.5 s"),
        (resets, SourceUnreachableError, "GET api/v1/nodes at 127.0.0.1"),
        (truncates, SourceUnreachableError, "GET api/v1/nodes at 127.0.0.1"),
        (drips_body, SourceUnreachableError, "within 0.5 s"),
        (drips_headers, SourceUnreachableError, "within 0.5 s"),
        (broken_gzip, SourceUnreachableError, "GET api/v1/nodes at 127.0.0.1"),
    ],
)
@pytest.mark.usefixtures("no_garbage")
def test_every_failure_is_named_with_a_way_out(
    folder: Path, behaviour: Behaviour, expected: type[CollectorError], said: str
) -> None:
    """The message tells what was tried, and it does not take longer than the deadline allows."""
    with faulty_server(behaviour, names=()) as server:
        begun = time.monotonic()
        with pytest.raises(expected) as caught:
            client_of(folder, server).inventory()
        assert time.monotonic() - begun < 60
    assert said in str(caught.value)
    assert caught.value.hint
    assert A_TOKEN not in str(caught.value)


def test_a_page_without_end_is_cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed answer is measured by what it unpacks to."""
    monkeypatch.setattr(api_module, "MAX_BYTES", 4 << 20)
    monkeypatch.setattr(api_module, "TIMEOUT_SECONDS", 20.0)
    with (
        faulty_server(gzip_bomb, names=()) as server,
        pytest.raises(UnexpectedAnswerError, match=r"exceeds 4 MiB. Narrow kubernetes.namespaces"),
    ):
        client_of(folder, server).inventory()


def test_a_server_that_is_gone_is_unreachable(folder: Path) -> None:
    """Nothing listens there."""
    with faulty_server(items(), names=()) as server:
        client = client_of(folder, server)
    with pytest.raises(SourceUnreachableError, match="Is the API server up"):
        client.inventory()


def test_pages_are_put_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server says how to go on, and is asked for a page at a time."""
    monkeypatch.setattr(api_module, "PAGE_SIZE", 2)
    with faulty_server(items("a", "b", then="t1"), items("c"), names=()) as server:
        found = client_of(folder, server).listed("Pod")
        asked = [query for _path, query, _headers in server.asked]
    assert [entry["metadata"]["name"] for entry in found or []] == ["a", "b", "c"]
    assert asked == [{"limit": "2"}, {"limit": "2", "continue": "t1"}]


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_server_is_asked_again_when_it_says_when(folder: Path, code: int) -> None:
    """Servers share their time out fairly: one refusal is no failure, three are."""
    busy = says(code, b'{"message": "too many requests"}', ("Retry-After", "0"))
    with faulty_server(busy, busy, items("a"), names=()) as server:
        assert client_of(folder, server).listed("Pod") == [{"metadata": {"name": "a"}}]
    with (
        faulty_server(busy, names=()) as server,
        pytest.raises(SourceUnreachableError, match="too many requests"),
    ):
        client_of(folder, server).listed("Pod")
    assert len(server.asked) == 3


def test_a_server_that_asks_for_an_hour_is_not_waited_for(folder: Path) -> None:
    """The next collection comes before."""
    busy = says(429, b"{}", ("Retry-After", "3600"))
    with (
        faulty_server(busy, names=()) as server,
        pytest.raises(SourceUnreachableError, match="answered 429"),
    ):
        client_of(folder, server).listed("Pod")
    assert len(server.asked) == 1


def test_an_expired_list_is_begun_again(folder: Path) -> None:
    """What the first pages told is forgotten: it would be told twice."""
    expired = status(410, "The provided continue parameter is too old")
    script = [items("a", then="t1"), expired, items("a", then="t2"), items("b")]
    with faulty_server(*script, names=()) as server:
        found = client_of(folder, server).listed("Pod")
    assert [entry["metadata"]["name"] for entry in found or []] == ["a", "b"]


def test_a_list_that_always_expires_is_given_up(folder: Path) -> None:
    """After three further attempts, with the setting that helps."""
    script = [items("a", then="t"), status(410, "too old")] * 4
    with faulty_server(*script, names=()) as server:
        with pytest.raises(UnexpectedAnswerError, match=r"kubernetes\.namespaces"):
            client_of(folder, server).listed("Pod")
        assert len(server.asked) == len(script)


def by_path(**refused: Behaviour) -> Behaviour:
    """Answer a kind as told, nodes and pods with one object, and know nothing else."""

    def behave(handler: Any) -> None:
        plural = handler.path.partition("?")[0].rpartition("/")[2]
        known = items("one") if plural in ("nodes", "pods") else status(404, "not found")
        refused.get(plural, known)(handler)

    return behave


def test_a_kind_that_is_not_installed_is_no_failure(folder: Path) -> None:
    """Operators bring their kinds along; without them there is nothing to miss."""
    with faulty_server(by_path(), names=()) as server:
        found = client_of(folder, server).inventory()
    assert (sorted(found.objects), found.missing) == (["Node", "Pod"], {})


@pytest.mark.parametrize("behaviour", [status(403, "no"), hangs, says(200, b"{}")])
def test_a_kind_that_fails_is_told_and_the_rest_is_given(
    folder: Path, behaviour: Behaviour
) -> None:
    """Who may not read Jobs still sees what pods hold."""
    with faulty_server(by_path(jobs=behaviour), names=()) as server:
        found = client_of(folder, server).inventory()
    assert sorted(found.objects) == ["Node", "Pod"]
    assert list(found.missing) == ["Job"]
    assert "apis/batch/v1/jobs" in found.missing["Job"]


def test_entries_that_are_no_objects_are_counted(folder: Path) -> None:
    """A hostile list loses its entries, not the collection."""
    broken = says(200, b'{"items": [null, 3, "x", {"metadata": {}}]}')
    with faulty_server(by_path(pods=broken), names=()) as server:
        found = client_of(folder, server).inventory()
    assert (found.of("Pod"), found.unreadable) == ([{"metadata": {}}], 3)


def test_namespaces_restrict_what_is_asked(folder: Path) -> None:
    """Nodes and slices have none; a name cannot lead to another path."""
    with faulty_server(by_path(), names=()) as server:
        client_of(folder, server, namespaces="ml, a/../b").inventory()
        asked = [path for path, _query, _headers in server.asked]
    assert asked[:3] == [
        "/api/v1/nodes",
        "/api/v1/namespaces/ml/pods",
        "/api/v1/namespaces/a%2F..%2Fb/pods",
    ]
    everywhere = [path for path in asked[1:] if "/namespaces/" not in path and path != "/version"]
    assert all(path.endswith("/resourceslices") for path in everywhere)


def test_the_token_goes_to_the_server_and_the_name_stays(folder: Path) -> None:
    """The store remembers a source by its name: it must not change once the server is known."""
    with faulty_server(by_path(), names=()) as server:
        client = client_of(folder, server)
        before = client.name
        client.inventory()
        headers = server.asked[0][2]
        assert before == client.name == server.url.removeprefix("http://")
    assert headers["Authorization"] == f"Bearer {A_TOKEN}"
    assert len(server.asked) >= len(KINDS.keys() - ASKED_WHERE.keys())


def test_nowhere_to_sign_in_is_said(folder: Path) -> None:
    """Neither a pod's account nor a kubeconfig."""
    client = KubernetesClient(KubernetesSettings(enabled=True))
    assert client.name == "in-cluster or default"
    with pytest.raises(SourceNotConfiguredError, match=r"kubernetes\.kubeconfig"):
        client.inventory()


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "a: b", "current-context: gone\n"])
def test_a_broken_kubeconfig_is_said(folder: Path, text: str) -> None:
    """Whatever stands in the file."""
    path = folder / "broken"
    path.write_text(text)
    with pytest.raises(SourceNotConfiguredError, match=r"/broken' a kubeconfig that"):
        KubernetesClient(KubernetesSettings(enabled=True, kubeconfig=str(path))).inventory()


def test_a_token_that_cannot_be_sent_is_said_without_it(folder: Path) -> None:
    """A line break in a header would smuggle another in."""
    with faulty_server(by_path(), names=()) as server:
        path = kubeconfig(folder / "kubeconfig", server.url, "se\r\ncret: x")
        client = KubernetesClient(KubernetesSettings(enabled=True, kubeconfig=str(path)))
        with pytest.raises(SourceNotConfiguredError, match="token") as caught:
            client.inventory()
        assert server.asked == []
    assert "cret" not in str(caught.value)


def test_without_the_package_the_extra_is_named(folder: Path) -> None:
    """The official client is an extra: most fleets have one scheduler."""
    client = KubernetesClient(KubernetesSettings(enabled=True, kubeconfig=str(folder)))
    with (
        mock.patch.dict(sys.modules, {"kubernetes": None}),
        pytest.raises(SourceNotConfiguredError, match="extra 'kubernetes': make setup"),
    ):
        client.inventory()


def test_what_reads_cannot_write() -> None:
    """The collector's client has no method that sends anything but a GET."""
    offered = {name for name in dir(KubernetesClient) if not name.startswith("_")}
    assert offered == {"get", "inventory", "listed", "name", "read", "refusal", "whole_list"}
    assert {"create", "patch"} <= set(dir(KubernetesWriter))
