"""A small stand-in of a Kubernetes API of 2026, for what the real one of the bed is too old for.

It holds objects by path, takes JSON patches as the real server does (409, 422 and dry runs,
checked against its recorded refusals) and lets the pod template of a Job change while it is
suspended and has no pods (KEP-5440), which no server at hand does. What it holds and what a patch
makes is checked against the schemas that servers from 1.33 to 1.37 publish. It makes no pods.
"""

import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from beds.published_schemas import schema_refusal

from dashboard.apply.kubernetes.state.json_patch import as_text, patched, value_at

Reply = tuple[int, bytes, dict[str, str]]


class FakeApi(ThreadingHTTPServer):
    """Objects by path; `lists` answers lists, empty ones of `known` kinds.

    `instead` is what a test wants answered to a patch.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, dict[str, Any]] = {}
        self.lists: dict[str, list[dict[str, Any]]] = {}
        self.known = {"horizontalpodautoscalers", "pods", "nodes", "resourcequotas", "limitranges"}
        self.version = ("1", "36")
        self.instead: Callable[[str], Reply | None] = lambda _query: None
        self.sent: list[tuple[str, list[dict[str, Any]]]] = []
        """(query, operations) of every patch, in order."""

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    def put(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """Have an object, and give it as it is kept."""
        metadata = document.setdefault("metadata", {})
        metadata.setdefault("uid", f"uid-of-{path}")
        metadata.setdefault("resourceVersion", "1")
        metadata.setdefault("generation", 1)
        refusal = schema_refusal(document)
        assert refusal is None, refusal
        self.objects[path] = document
        return document

    def read(self, path: str) -> Reply:
        """Answer a GET."""
        if path == "version":
            return _json(200, {"major": self.version[0], "minor": self.version[1]})
        if path in self.objects:
            return _json(200, self.objects[path])
        if path in self.lists or path.rpartition("/")[2] in self.known:
            return _json(200, {"kind": "List", "items": self.lists.get(path, [])})
        return _status(404, "NotFound", f"{path} not found")

    def patch(self, path: str, query: str, operations: list[dict[str, Any]]) -> Reply:
        """Answer a JSON patch, and keep what it makes unless it is a dry run."""
        self.sent.append((query, operations))
        reply = self.instead(query)
        if reply is not None:
            return reply
        if path not in self.objects:
            return _status(404, "NotFound", f"{path} not found")
        old = self.objects[path]
        for operation in operations:
            if operation["op"] == "test" and as_text(value_at(old, operation["path"])) != as_text(
                operation["value"]
            ):
                return _status(422, "Invalid", "the server rejected our request")
        new = patched(old, operations)
        if value_at(new, "/metadata/resourceVersion") != value_at(old, "/metadata/resourceVersion"):
            return _status(409, "Conflict", "the object has been modified")
        if (refusal := schema_refusal(new)) is not None:
            return _status(400, "BadRequest", refusal)
        if new.get("kind") == "Job" and not _may(old, new):
            return _status(422, "Invalid", "spec.template: field is immutable")
        if "dryRun" not in parse_qs(query):
            number = int(old["metadata"]["resourceVersion"]) + 1
            new["metadata"]["resourceVersion"] = str(number)
            new["metadata"]["generation"] += 1
            self.objects[path] = new
        return _json(200, new)


def _may(old: Any, new: Any) -> bool:
    """Whether a Job may change so: its template only while it is suspended without pods."""
    same = value_at(old, "/spec/template") == value_at(new, "/spec/template")
    active = value_at(old, "/status/active") or 0
    return same or (value_at(old, "/spec/suspend") is True and active == 0)


def _json(status: int, document: Any) -> Reply:
    return status, json.dumps(document).encode(), {}


def _status(code: int, reason: str, message: str) -> Reply:
    return _json(code, {"kind": "Status", "code": code, "reason": reason, "message": message})


class _Handler(BaseHTTPRequestHandler):
    server: FakeApi

    def do_GET(self) -> None:
        self._say(*self.server.read(urlsplit(self.path).path.strip("/")))

    def do_PATCH(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Type"] != "application/json-patch+json":
            self._say(*_status(415, "UnsupportedMediaType", "415: Unsupported Media Type"))
            return
        reply = self.server.patch(parts.path.strip("/"), parts.query, json.loads(body))
        self._say(*copy.deepcopy(reply))

    def _say(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        return


@contextmanager
def fake_api() -> Iterator[FakeApi]:
    """The server."""
    server = FakeApi()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
