"""A real Prometheus on loopback with options of its own: limits, sign-in, a port that it keeps."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.ports import free_port
from beds.prometheus import server_path

_READY = "Server is ready to receive web requests"


@contextmanager
def prometheus_with(
    folder: Path, *options: str, port: int = 0, scheme: str = "http"
) -> Iterator[str]:
    """The address of a Prometheus on the data of `folder`, until the block ends or it is left."""
    config = folder / "prometheus.yml"
    config.write_text("global: {}\n")
    address = f"127.0.0.1:{port or free_port()}"
    log = folder / f"log-{time.monotonic_ns()}"
    with log.open("w") as file:
        process = subprocess.Popen(
            [
                server_path("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder}",
                "--storage.tsdb.retention.time=5y",
                # Back-filled series have no staleness markers: below a minute, so that a series
                # that ended is not answered once more.
                "--query.lookback-delta=50s",
                f"--web.listen-address={address}",
                *options,
            ],
            stdout=file,
            stderr=file,
        )
    try:
        # The log tells: to ask, one would have to sign in.
        for _attempt in range(1800):
            if _READY in log.read_text() or process.poll() is not None:
                break
            time.sleep(0.1)
        assert _READY in log.read_text(), log.read_text()[-2000:]
        yield f"{scheme}://{address}"
    finally:
        process.terminate()
        process.wait(timeout=120)
