"""What a source may answer instead of data: each is one named error, never a crash."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from beds.faulty_server import (
    POWER,
    Behaviour,
    broken_gzip,
    drips_body,
    drips_headers,
    faulty_server,
    gzip_bomb,
    hangs,
    redirects_and_drips,
    resets,
    says,
    truncates,
)

from collectors.prometheus import client, session
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.shared.collect import collect_all
from collectors.shared.collector import Window
from data.base.errors import (
    CollectorError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
)
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import SourceState
from data.settings.sources import PrometheusSettings

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
WINDOW = Window(start=NOW - timedelta(minutes=10), end=NOW)


@contextmanager
def answering(status: int, body: bytes, *, delay: float = 0.0) -> Iterator[str]:
    """A server that answers everything with the same status and body."""
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stop.wait(delay)
            try:
                self.send_response(status)
                self.send_header("Location", "http://127.0.0.1:9/")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except BrokenPipeError:
                return  # the client gave up waiting, as it should

        def log_message(self, *_arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
        thread.join()


def collector(url: str) -> PrometheusDcgmCollector:
    """A collector of that address."""
    settings = PrometheusSettings(url=url)
    return PrometheusDcgmCollector(PrometheusClient(settings), settings, load_gpu_catalogue())


def test_refused_port_is_unreachable() -> None:
    """Nothing listens: the message names the address."""
    with pytest.raises(SourceUnreachableError, match=r"127\.0\.0\.1:9"):
        collector("http://127.0.0.1:9").collect(WINDOW)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"<html>please sign in</html>", UnexpectedAnswerError),
        (200, b'{"status":"success","data":', UnexpectedAnswerError),
        (200, b"{}", UnexpectedAnswerError),
        (200, b"[1,2]", UnexpectedAnswerError),
        (200, b'{"status":"success","data":["up"]}', UnexpectedAnswerError),
        (302, b"", UnexpectedAnswerError),
        (401, b"unauthorized", SourceRefusedError),
        (403, b"forbidden", SourceRefusedError),
        (422, b'{"status":"error","error":"too many samples"}', SourceRefusedError),
        (503, b"overloaded", SourceUnreachableError),
    ],
)
def test_every_other_answer_is_named(status: int, body: bytes, kind: type[CollectorError]) -> None:
    """Login pages, cut JSON, wrong types, redirects and refusals have a message and a hint."""
    with answering(status, body) as url, pytest.raises(kind) as caught:
        collector(url).collect(WINDOW)
    assert caught.value.hint


def test_a_hanging_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the deadline of a request."""
    monkeypatch.setattr(session, "TIMEOUT_SECONDS", 0.3)
    with answering(200, b"{}", delay=20.0) as url, pytest.raises(SourceUnreachableError):
        collector(url).collect(WINDOW)


def test_one_failing_source_is_a_report_and_no_error() -> None:
    """The other sources still run; the reason is kept."""
    (collected,) = collect_all([collector("http://127.0.0.1:9")], WINDOW)
    assert collected.report.state is SourceState.FAILED
    assert "127.0.0.1:9" in collected.report.reason
    assert collected.samples.empty


@pytest.mark.slow
@pytest.mark.parametrize("names", [(), (POWER,)])
@pytest.mark.parametrize(
    ("behave", "kind", "says_so"),
    [
        (hangs, SourceUnreachableError, "in time"),
        (drips_body, SourceUnreachableError, "in time"),
        (drips_headers, SourceUnreachableError, "in time"),
        (redirects_and_drips, SourceUnreachableError, "in time"),
        (resets, SourceUnreachableError, "cannot reach"),
        (truncates, SourceUnreachableError, "cannot reach"),
        (gzip_bomb, SourceRefusedError, "exceeds 64 MiB"),
        (broken_gzip, UnexpectedAnswerError, "does not unpack"),
        (says(200, b"[" * 200_000), UnexpectedAnswerError, "no JSON"),
        (says(200, b'{"data": ' + b"9" * 5000 + b"}"), UnexpectedAnswerError, "no Prometheus"),
        (says(200, b"\xff\xfe{}", ("Content-Type", "text/x; charset=undefined")),
         UnexpectedAnswerError, "no JSON"),
        (says(301, b"", ("Location", "http://\xff/")), UnexpectedAnswerError, "redirects"),
        (says(429, b"", ("Retry-After", "nan")), SourceUnreachableError, "429"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_garbage")
def test_every_misbehaviour_is_named_in_bounded_time(
    behave: Behaviour,
    kind: type[CollectorError],
    says_so: str,
    names: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the first question or only when asked for data: one error, and no endless wait."""
    with faulty_server(behave, names=names) as server:
        # Unpacking up to the limit takes a busy machine more than the patience with the others.
        timeout, budget = (5.0, 40.0) if behave is gzip_bomb else (0.7, 6.0)
        monkeypatch.setattr(session, "TIMEOUT_SECONDS", timeout)
        monkeypatch.setattr(client, "BUDGET_SECONDS", budget)
        settings = PrometheusSettings(url=server.url)
        one = PrometheusDcgmCollector(PrometheusClient(settings), settings, load_gpu_catalogue())
        began = time.monotonic()
        with pytest.raises(kind, match=says_so) as caught:
            one.collect(WINDOW)
        assert time.monotonic() - began < budget + 1
    assert caught.value.hint


def test_warnings_of_a_partial_answer_are_kept() -> None:
    """A 200 with warnings is not a complete answer."""
    body = json.dumps(
        {"status": "success", "data": ["DCGM_FI_DEV_POWER_USAGE"], "warnings": ["one shard down"]}
    ).encode()
    with answering(200, body) as url:
        client = PrometheusClient(PrometheusSettings(url=url))
        assert client.metric_names() == {"DCGM_FI_DEV_POWER_USAGE"}
        assert client.take_warnings() == ("one shard down",)
