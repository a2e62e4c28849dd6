"""A real Prometheus (Debian package) on loopback, back-filled or scraping."""

import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.ports import free_port

_READY_SECONDS = 180


def server_path(name: str) -> str:
    """The program, or a failure that says how to get it: a missing server is no skip."""
    found = shutil.which(name)
    assert found, f"{name} is not installed; as root: apt-get install prometheus"
    return found


def backfill(lines: Iterable[str], folder: Path) -> None:
    """Write OpenMetrics lines as blocks that Prometheus serves."""
    recording = folder / "history.om"
    with recording.open("w", encoding="utf-8") as file:
        file.writelines(lines)
    subprocess.run(
        [server_path("promtool"), "tsdb", "create-blocks-from", "openmetrics", recording, folder],
        check=True,
        capture_output=True,
    )


@contextmanager
def running_prometheus(folder: Path, *, scrape: str = "") -> Iterator[str]:
    """The address of a Prometheus on `folder`, scraping `scrape` (host:port) every second."""
    job = (
        f"  - job_name: fleet\n    honor_labels: true\n"
        f"    static_configs: [{{targets: ['{scrape}']}}]\n"
        if scrape
        else ""
    )
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n" + job if job else "global: {}\n"
    )
    address = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                server_path("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder}",
                "--storage.tsdb.retention.time=5y",
                # Back-filled series have no staleness markers: below the step of the recordings a
                # series that ended would be answered once more.
                "--query.lookback-delta=4m",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        _wait_ready(f"http://{address}/-/ready")
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(timeout=120)


def _wait_ready(url: str) -> None:
    for _attempt in range(_READY_SECONDS * 5):
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"{url} was not ready in {_READY_SECONDS} s")
