"""/livez and /readyz of a process without a web page, for whoever restarts it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def _handler(problem: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Answer(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            if self.path == "/livez":
                self._say(200, "text/plain", "ok\n")
            elif self.path == "/readyz":
                reason = problem()
                ready = {"ready": not reason} | ({"reason": reason} if reason else {})
                self._say(503 if reason else 200, "application/json", json.dumps(ready))
            else:
                self._say(404, "text/plain", "only /livez and /readyz are here\n")

        def _say(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            """Keep the log for what matters."""

    return Answer


@contextmanager
def answering_health(host: str, port: int, problem: Callable[[], str]) -> Iterator[None]:
    """Answer while the block runs; `problem` gives why the process is not ready, '' when it is."""
    server = ThreadingHTTPServer((host, port), _handler(problem))
    thread = threading.Thread(target=server.serve_forever, name="trimtab-health")
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
