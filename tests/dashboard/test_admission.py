"""Which requests are answered at all: raw requests against the middleware."""

import asyncio
import itertools
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.web.access.request_filter import OPEN_PATHS, Admission
from data.base.errors import SettingsError
from data.settings.access import AccessSettings

Headers = list[tuple[bytes, bytes]]
LOCAL = AccessSettings()
PROXY = AccessSettings(mode="proxy", proxy_addresses="10.0.0.5")
OIDC = AccessSettings(
    mode="oidc",
    oidc_metadata_url="https://id.example",
    oidc_client_id="x",
    oidc_client_secret="x",  # noqa: S106 - no secret
    public_url="https://trimtab.example",
)
MODES = {"local": LOCAL, "proxy": PROXY, "oidc": OIDC}
each_mode = pytest.mark.parametrize("access", MODES.values(), ids=MODES)
EVERYWHERE = "0.0.0.0"
LISTENS = ("127.0.0.1", EVERYWHERE, "::", "10.9.8.7")


def answered(
    headers: Headers,
    access: AccessSettings = LOCAL,
    *,
    listens_on: str = EVERYWHERE,
    kind: str = "http",
    method: str = "GET",
    path: str = "/",
    server: str = "10.9.8.7",
) -> tuple[int, str]:
    """Send one raw request; give status (200 when it reached the pages) and what was said."""
    sent: list[dict[str, Any]] = []

    async def inside(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> dict[str, Any]:
        assert kind == "websocket", "nothing of a refused request is read"
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "headers": headers, "server": (server, 8501)}
    scope |= {"method": method} if kind == "http" else {}
    # In a thread of its own: while the browser of other tests is open, this one has a loop already.
    with ThreadPoolExecutor(1) as thread:
        request = Admission(inside, access, listens_on=listens_on)(scope, receive, send)
        thread.submit(asyncio.run, request).result()
    if sent[0]["type"] == "websocket.close":
        return sent[0]["code"], sent[0]["reason"]
    return sent[0]["status"], sent[1]["body"].decode()


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example:8501",
        b"127.0.0.1.evil.example",
        b"localhost.evil.example",
        b"evil-trimtab.example",
        b"trimtab.example.evil.example",
        b"trimtab.example@evil.example",
        b"10.1.1.1:8501",
        b"[::1",
        b"x@localhost",
        b"localhost/x",
        b"localhost?x",
        b"local\thost",
        b"localhost\n",
        b" localhost",
        b"localhost:x",
        b"localhost:1:2",
        b"",
        b"\xff",
    ],
)
def test_a_name_of_another_site_that_leads_here_is_refused(host: bytes) -> None:
    """In every mode, wherever it listens, for pages and for sockets."""
    for (mode, access), listens_on in itertools.product(MODES.items(), LISTENS):
        for kind, refused in (("http", 421), ("websocket", 1008)):
            status, said = answered([(b"host", host)], access, listens_on=listens_on, kind=kind)
            asked = (mode, listens_on, kind)
            assert (*asked, status) == (*asked, refused)
            assert "does not answer to the host" in said, asked
            assert kind == "websocket" or "access.public_url" in said, asked


@given(st.binary(max_size=40))
def test_no_host_but_ours_is_answered(host: bytes) -> None:
    """Whatever bytes a Host header holds."""
    status, _said = answered([(b"host", host)], OIDC)
    name = host.decode("latin-1").lower().partition(":")[0]
    assert (
        status == 421
        or name
        in {
            "localhost",
            "trimtab.example",
            socket.gethostname().lower(),
        }
        or name.startswith(("127.", "[", "10.9.8.7"))
    )


@pytest.mark.parametrize("headers", [[], [(b"host", b"localhost"), (b"Host", b"evil.example")]])
def test_a_request_names_one_host(headers: Headers) -> None:
    """None, and two of which another program may take the other."""
    assert answered(headers)[0] == 421


@each_mode
@pytest.mark.parametrize("host", ["127.0.0.1:8501", "localhost", "LOCALHOST:1", "[::1]:8501"])
def test_this_machine_is_reached_by_its_own_names(access: AccessSettings, host: str) -> None:
    """A published or forwarded port keeps the name that the browser asked for."""
    assert answered([(b"host", host.encode())], access)[0] == 200


@pytest.mark.parametrize("server", ["10.9.8.7", "::ffff:10.9.8.7"])
def test_the_address_that_was_asked_is_one_of_ours(server: str) -> None:
    """No site's name can be an address; another machine's address is refused as a name is."""
    assert answered([(b"host", b"10.9.8.7:8501")], server=server)[0] == 200
    assert answered([(b"host", b"10.9.8.8:8501")], server=server)[0] == 421
    assert answered([(b"host", socket.gethostname().encode())])[0] == 200
    assert answered([(b"host", b"10.9.8.7")], listens_on="127.0.0.1", server="127.0.0.1")[0] == 421


@each_mode
def test_the_settings_name_further_hosts(access: AccessSettings) -> None:
    """The public address with any port, names of a list, and all of them behind a proxy alone."""
    named = replace(
        access, public_url="https://Gpu.Site.example/", allowed_hosts="a.example, fd00::7"
    )
    for host in (b"gpu.site.example", b"GPU.site.example:443", b"a.example:80", b"[fd00::7]:1"):
        assert answered([(b"host", host)], named)[0] == 200
    assert answered([(b"host", b"site.example")], named)[0] == 421
    if access.mode == "local":
        with pytest.raises(SettingsError, match=r"access\.allowed_hosts"):
            replace(access, allowed_hosts="*")
    else:
        assert answered([(b"host", b"any.example")], replace(access, allowed_hosts="*"))[0] == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"public_url": name}
        for name in ("trimtab.example", "ftp://x", "https://", "https://x/y", "https://[x", "http://x:0x1")
    ]
    + [{"allowed_hosts": name} for name in ("https://x", "a b", "x/y", "a:b", "x:80", "*.example")],
)  # fmt: skip
def test_settings_that_name_no_host_are_refused(fields: dict[str, Any]) -> None:
    """With the setting's name, whatever is wrong with it."""
    with pytest.raises(SettingsError, match=f"access.{next(iter(fields))}"):
        AccessSettings(**fields)


@each_mode
@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://localhost:1", "http://127.0.0.1", "null", "", "file://",
     "ftp://127.0.0.1:8501", "https://127.0.0.1:8501.evil.example", "\xe9", "http://127.0.0.1:8501/"],
)  # fmt: skip
def test_no_page_of_another_site_asks(access: AccessSettings, kind: str, origin: str) -> None:
    """Another port of this machine is another site too."""
    headers = [(b"host", b"127.0.0.1:8501"), (b"origin", origin.encode("latin-1"))]
    status, said = answered(headers, access, kind=kind)
    assert status == (403 if kind == "http" else 1008)
    assert "may not ask this dashboard" in said


@each_mode
def test_our_own_pages_ask(access: AccessSettings) -> None:
    """By the host they were loaded from, and by the public address where a proxy changes Host."""
    own = [(b"host", b"127.0.0.1:8501"), (b"origin", b"http://127.0.0.1:8501")]
    assert answered(own, access, kind="websocket")[0] == 200
    public = replace(access, public_url="https://gpu.example")
    for host, origin, status in (
        (b"gpu.example", b"https://gpu.example", 200),
        (b"gpu.example:443", b"https://gpu.example", 200),
        (b"127.0.0.1:8501", b"https://gpu.example", 200),
        (b"gpu.example", b"http://gpu.example", 403),
        (b"gpu.example", b"https://gpu.example:444", 403),
    ):
        assert answered([(b"host", host), (b"origin", origin)], public)[0] == status


@each_mode
@pytest.mark.parametrize("path", sorted(OPEN_PATHS))
def test_machines_ask_by_whatever_name(access: AccessSettings, path: str) -> None:
    """A kubelet names the pod's address, a Prometheus the service."""
    for host in (b"10.244.0.7:8501", b"trimtab:8501", b""):
        assert answered([(b"host", host)], access, path=path)[0] == 200


@each_mode
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "CONNECT", "TRACE"])
@pytest.mark.parametrize("path", ["/_stcore/upload_file/session/file", "/", "/jobs"])
def test_nothing_can_be_sent_in(access: AccessSettings, method: str, path: str) -> None:
    """Refused before a byte of the body is read."""
    status, said = answered([(b"host", b"localhost")], access, method=method, path=path)
    assert (status, said) == (405, "nothing can be sent to this dashboard but to its API\n")


def test_settings_tell_whether_they_name_a_host() -> None:
    """Without one a server behind a proxy says so when it starts."""
    assert not PROXY.names_hosts()
    assert OIDC.names_hosts()
    assert replace(PROXY, public_url="https://gpu.example").names_hosts()
    assert replace(PROXY, allowed_hosts="gpu.example").names_hosts()
