"""Serves the simulated fleet on /metrics, as its exporters would."""

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from collectors.simulated_exposition import exposition
from collectors.simulated_fleet import SimulatedFleet
from data.clock import utc_now
from data.errors import SourceNotConfiguredError


def exposition_server(fleet: SimulatedFleet, host: str, port: int) -> ThreadingHTTPServer:
    """Return a bound server; the caller runs and closes it. Errors: SourceNotConfiguredError."""
    try:
        return ThreadingHTTPServer((host, port), _handler(lambda: exposition(fleet, utc_now())))
    except OSError as error:
        raise SourceNotConfiguredError(
            f"cannot listen on {host}:{port}: {error.strerror}", "Give another --port."
        ) from error


def serve_exposition(fleet: SimulatedFleet, host: str, port: int) -> None:
    """Serve until interrupted."""
    with exposition_server(fleet, host, port) as server:
        server.serve_forever()


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer /metrics with the exposition and everything else with 404."""
            found = self.path.partition("?")[0] == "/metrics"
            body = text().encode() if found else b"see /metrics\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing: scrapes are not news."""

    return Handler
