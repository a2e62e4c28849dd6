"""Local mode lets in the account that started the server, and nobody else of the same machine."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from beds.api_clients import two_owners
from beds.raw_requests import answer
from browser.bed import Server, running_server

from data.base.clock import utc_now
from data.base.errors import SettingsError
from data.records.commands import Person
from data.settings.access import AccessSettings
from data.settings.all_settings import ServeSettings, Settings, SubmitSettings
from data.settings.apply import ApplySettings
from data.store import open_store

OTHER = 65_534
_ASK = """
import encodings.idna, http.client, json, os, sys  # the account below may not read the library
os.setgroups([])
os.setresgid(*3 * [int(sys.argv[4])])
os.setresuid(*3 * [int(sys.argv[4])])
host, port, requests = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
for method, path, headers in requests:
    link = http.client.HTTPConnection(host, port, timeout=60)
    link.request(method, path, body=headers.pop("body", None), headers=headers)
    reply = link.getresponse()
    print(json.dumps([reply.status, dict(reply.getheaders()), reply.read().decode()[:2000]]))
"""
_AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another account")
Request = tuple[str, str, dict[str, str]]
Reply = tuple[int, dict[str, str], str]


def ask_as_other(server: Server, *requests: Request) -> list[Reply]:
    """Send requests from a process of another account."""
    parts = urlsplit(server.base)
    words = [sys.executable, "-S", "-c", _ASK, str(parts.hostname), str(parts.port)]
    done = subprocess.run(
        [*words, json.dumps(requests), str(OTHER)], check=True, capture_output=True, text=True
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as its settings are without a file, on a store with two findings."""
    folder = tmp_path_factory.mktemp("local")
    with two_owners(folder):
        pass
    with running_server(f"duckdb:///{folder}/t.duckdb", folder) as running:
        yield running


_HANG_UP = """
import encodings.idna, os, socket, sys  # the account below may not read the library
os.setgroups([])
os.setresgid(*3 * [int(sys.argv[2])])
os.setresuid(*3 * [int(sys.argv[2])])
for _round in range(200):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=120) as link:
        link.sendall(b"GET /api/v1/jobs HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n")
"""


def decision(by: str) -> dict[str, str]:
    """Return headers and body of an approval."""
    body = json.dumps({"decision": "reject", "reason": "accepted-risk", "comment": "x"})
    return {"X-Trimtab-By": by, "Content-Type": "application/json", "body": body}


@_AS_ROOT
def test_another_account_of_the_machine_is_not_let_in(server: Server) -> None:
    """Pages, sockets, reading, deciding, tokens and the assistants' address; probes answer."""
    socket = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
              "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
    replies = ask_as_other(
        server,
        ("GET", "/", {}),
        ("GET", "/?key=guessed", {}),
        ("GET", "/_stcore/stream", socket),
        ("GET", "/api/v1/findings", {"X-Trimtab-Person": "uid 0"}),
        ("POST", "/api/v1/findings/TT-1/decisions", decision("cfo@corp")),
        ("POST", "/api/v1/tokens", {"X-Trimtab-By": "cfo@corp", "body": '{"person": "x"}'}),
        ("POST", "/api/v1/stop", {"X-Trimtab-By": "cfo@corp", "body": "{}"}),
        ("POST", "/mcp", {"body": "{}"}),
    )
    assert [status for status, _headers, _text in replies] == [403] * 8
    assert "account 65534" in replies[0][2]
    assert [status for status, *_ in ask_as_other(server, ("GET", "/livez", {}))] == [200]


def cpu_seconds(server: Server) -> float:
    """Return what the server has used of processors, s."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    return sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")


@_AS_ROOT
def test_another_account_that_hangs_up_costs_little(server: Server) -> None:
    """Its request is refused, at a price far below that of a walk over all connections."""
    before = cpu_seconds(server)
    words = [sys.executable, "-S", "-c", _HANG_UP, str(urlsplit(server.base).port), str(OTHER)]
    subprocess.run(words, check=True)
    assert '"stopped":false' in answer(server, "/api/v1/stop")[1]
    assert cpu_seconds(server) - before < 4  # 16 while the kernel's tables were read


@_AS_ROOT
def test_the_printed_key_lets_in_whoever_read_it(server: Server) -> None:
    """The key becomes a cookie and leaves the address; what is decided by it says so."""
    printed = re.search(r"Trimtab on (http://\S+) ", server.log.read_text(encoding="utf-8"))
    assert printed is not None
    parts = urlsplit(printed[1])
    [(status, headers, _text)] = ask_as_other(server, ("GET", f"//evil/jobs?a=1&{parts.query}", {}))
    assert (status, headers["location"]) == (303, "/evil/jobs?a=1")
    cookie = headers["set-cookie"].partition(";")[0]
    assert "HttpOnly" in headers["set-cookie"]
    decided = decision("Robin") | {"Cookie": cookie}
    replies = ask_as_other(
        server,
        ("GET", "/jobs", {"Cookie": cookie}),
        ("GET", "/jobs", {"Cookie": f"{cookie}x"}),
        ("POST", "/api/v1/findings/TT-1/decisions", decided),
        ("GET", "/api/v1/audit", {"Cookie": cookie}),
    )
    assert [reply[0] for reply in replies] == [200, 403, 200, 200], replies
    assert "Robin (the key of the start)" in replies[3][2]


def test_the_record_names_the_account_behind_a_name(server: Server) -> None:
    """Whatever name is typed, the uid of the connection stands beside it."""
    status, text = answer(server, "/api/v1/findings/TT-2/decisions", method="POST",
                          body=(body := decision("cfo@corp").pop("body").encode()),
                          X_Trimtab_By="cfo@corp", Content_Type="application/json",
                          Content_Length=str(len(body)))  # fmt: skip
    assert status == 200, text
    assert f"cfo@corp (uid {os.geteuid()})" in answer(server, "/api/v1/audit")[1]


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.1.2.3", "gpu.example"])
def test_local_mode_is_for_loopback_alone(host: str) -> None:
    """Any other address is refused by name, with what to set; an empty one in every mode."""
    with pytest.raises(SettingsError, match=r"serve\.host.*access\.mode"):
        Settings(serve=ServeSettings(host=host))
    if host:
        Settings(serve=ServeSettings(host=host), access=AccessSettings(mode="open"))


@pytest.mark.parametrize(
    "sections",
    [
        {"apply": ApplySettings(enabled=True)},
        {"submit": SubmitSettings(enabled=True)},
    ],
)
def test_open_mode_changes_nothing(sections: dict[str, Any]) -> None:
    """Where everybody looks, nothing is applied or submitted."""
    with pytest.raises(SettingsError, match="open"):
        Settings(access=AccessSettings(mode="open"), **sections)


@pytest.mark.parametrize("mode", ["local", "open"])
def test_four_eyes_need_people_who_are_told_apart(mode: str) -> None:
    """The setting is refused where it could protect nothing."""
    with pytest.raises(SettingsError, match="four_eyes"):
        AccessSettings(mode=mode, four_eyes=True)


def test_a_token_is_good_for_the_mode_that_it_was_made_in(tmp_path: Path) -> None:
    """Of local mode or of none that is noted: void behind a sign-in; of open mode: a viewer's."""
    url, texts, now = f"duckdb:///{tmp_path}/t.duckdb", {}, utc_now()
    with open_store(url) as store:
        for mode in ("local", "", "open"):
            texts[mode] = store.tokens.make(
                holder="alex", role="approver", expires_at=now + timedelta(days=9),
                by=Person(name="alex"), now=now, mode=mode,
            )[1]  # fmt: skip
    for mode in ("proxy", "open"):
        access = {"TRIMTAB_ACCESS_MODE": mode, "TRIMTAB_ACCESS_PROXY_ADDRESSES": "127.0.0.1",
                  "TRIMTAB_ACCESS_ADMINS": "alex"}  # fmt: skip
        with running_server(url, tmp_path, **access) as server:
            about = {made: answer(server, "/api/v1/", Authorization=f"Bearer {text}")
                     for made, text in texts.items()}  # fmt: skip
            allowed = {made for made, (status, _text) in about.items() if status == 200}
            assert allowed == {mode} & set(texts)
            assert "was made while access.mode was local" in about["local"][1]
            if mode == "open":
                assert '"role":"viewer"' in about["open"][1]
                assert '"role":"viewer"' in answer(server, "/api/v1/")[1]


def test_settings_of_before_that_are_fine_still_are() -> None:
    """Applying alone on loopback, and behind a sign-in elsewhere."""
    on = ApplySettings(enabled=True)
    proxy = AccessSettings(mode="proxy", proxy_addresses="10.0.0.5", four_eyes=True)
    assert Settings(apply=on).access.mode == "local"
    Settings(apply=on, access=proxy, serve=replace(ServeSettings(), host="0.0.0.0"))
