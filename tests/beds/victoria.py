"""A real VictoriaMetrics (Debian package victoria-metrics) on loopback, as a second server."""

import shutil
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.ports import free_port
from beds.prometheus import _wait_ready


@contextmanager
def running_victoria(folder: Path, *arguments: str) -> Iterator[str]:
    """The address of an empty VictoriaMetrics that keeps its data in `folder`."""
    # The Debian package names the program after itself; upstream calls it victoria-metrics-prod.
    program = shutil.which("victoria-metrics")
    assert program, "victoria-metrics is not installed; as root: apt-get install victoria-metrics"
    address = f"127.0.0.1:{free_port()}"
    with (folder / "victoria.log").open("w") as log:
        process = subprocess.Popen(
            [
                program,
                f"-storageDataPath={folder / 'victoria'}",
                f"-httpListenAddr={address}",
                "-retentionPeriod=10y",
                # Imported history would else be hidden behind answers of before the import.
                "-search.disableCache",
                *arguments,
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _wait_ready(f"http://{address}/health")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(timeout=120)


def import_openmetrics(url: str, lines: Iterable[str]) -> None:
    """Send OpenMetrics lines (times in s) and make them visible to queries."""
    body = "".join(in_milliseconds(line) for line in lines if not line.startswith("#"))
    request = urllib.request.Request(
        f"{url}/api/v1/import/prometheus", data=body.encode(), method="POST"
    )
    for entry in (request, f"{url}/internal/force_flush"):
        with urllib.request.urlopen(entry, timeout=60):
            pass


def in_milliseconds(line: str) -> str:
    """Return line with its time in ms: what the text format of scrapes, unlike backfill, has."""
    rest, _, seconds = line.rstrip("\n").rpartition(" ")
    return f"{rest} {round(float(seconds) * 1000)}\n"
