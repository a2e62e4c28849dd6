"""Recorded answers of Slurm, given again by commands and by an HTTP server of their own."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "recorded" / "slurm"
RELEASES = ("22.05", "24.11")
NOW = datetime(2027, 6, 1, tzinfo=UTC)
"""A time after every recording."""


def command_folder(folder: Path, **bodies: str) -> Path:
    """A folder of shell scripts named like Slurm's commands."""
    folder.mkdir(exist_ok=True)
    for name, body in bodies.items():
        script = folder / name
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
    return folder


SUBMITTED = "sbatch --parsable --gres=gpu:h100:4 --wrap=sleep"
"""How recorded jobs were submitted; accounting was not asked for it when they were."""


def recorded_commands(folder: Path, release: str) -> Path:
    """Commands that print what was recorded of a release."""
    there = RECORDED / release
    asked = (
        f"case \"$*\" in *config*) cat '{there}/config.txt';; "
        f"*reserv*) echo 'No reservations in the system';; *) cat '{there}/nodes.json';; esac"
    )
    past = f"case \"$*\" in *SubmitLine*) echo '{SUBMITTED}';; *) cat '{there}/sacct.txt';; esac"
    return command_folder(
        folder,
        squeue=f"cat '{there}/squeue.json'",
        sinfo=f"cat '{there}/nodes.json'",
        scontrol=asked,
        sacct=past,
    )


@contextmanager
def answering(answer: Callable[[str], tuple[int, bytes]]) -> Iterator[str]:
    """The address of a server that answers a path with (status, body)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def recorded_rest(release: str) -> Callable[[str], tuple[int, bytes]]:
    """Return what slurmrestd of a release answered to a path."""
    there = RECORDED / release

    def answer(path: str) -> tuple[int, bytes]:
        if path.startswith("/openapi"):
            name = "openapi.json"
        elif path.startswith("/slurmdb/"):
            name = "rest-accounting.json"
        elif path.endswith("/jobs"):
            name = "rest-jobs.json"
        elif path.endswith("/nodes"):
            name = "rest-nodes.json"
        elif path.endswith("/reservations"):
            return 200, b'{"reservations": [], "errors": []}'
        else:
            return 404, b"Unable find requested URL."
        return 200, (there / name).read_bytes()

    return answer


def refusal(release: str, name: str) -> tuple[int, bytes]:
    """Return a recorded refusal: status and body."""
    status, body = json.loads((RECORDED / release / "refusals.json").read_text())[name]
    return int(status), str(body).encode()


def recorded_job(release: str, name: str) -> dict[str, Any]:
    """The first recorded job of a name that is not over."""
    jobs = json.loads((RECORDED / release / "squeue.json").read_text())["jobs"]
    found: dict[str, Any] = next(
        job for job in jobs if job["name"] == name and "CANCELLED" not in job["job_state"]
    )
    return found
