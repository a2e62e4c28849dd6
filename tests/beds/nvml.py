"""The compiled stub of the NVIDIA driver library, one per process, and its scenarios.

pynvml keeps the first library that it loads for good, so all tests of a process share one build.
"""

import atexit
import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from collectors.nvml.sampler import NvmlCollector
from collectors.shared.collector import Window
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.settings.sources import NvmlSettings

RECORDED = Path(__file__).parents[1] / "recorded" / "nvml"
NOW = datetime(2026, 1, 8, 12, 0, 0, tzinfo=UTC)
WINDOW = Window(start=NOW - timedelta(minutes=5), end=NOW)
Play = Callable[..., None]

H100 = """\
gpu{0} name NVIDIA H100 80GB HBM3
gpu{0} uuid GPU-{0}
gpu{0} power_mw 300000
gpu{0} energy_mj 5000000
gpu{0} limit_mw 700000
gpu{0} sm_util 50
gpu{0} utilization 99
gpu{0} memory_total 85520809984
gpu{0} memory_used 1073741824
"""

SOURCE = Path(__file__).parents[1] / "collectors" / "nvml_stub" / "nvml_stub.c"


def build(folder: Path, *flags: str) -> Path:
    """The stub, compiled; a missing compiler fails and says how to get one."""
    compiler = shutil.which("gcc")
    assert compiler, "gcc is not installed; as root: apt-get install gcc libc6-dev"
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [
            *(compiler, "-shared", "-fPIC", "-Wall", "-Werror", *flags),
            *("-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(SOURCE)),
        ],
        check=True,
        timeout=60,
    )
    return library


@cache
def stub_library() -> Path:
    """The build of this process."""
    folder = Path(tempfile.mkdtemp(prefix="nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build(folder)


def cgroup(proc: Path, pid: int, path: str) -> None:
    """Put a process there."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text(f"0::{path}\n")


def collector(library: Path, proc: Path, mapping: str = "", **more: object) -> NvmlCollector:
    """A collector of that library on node n1 at NOW."""
    fields: dict[str, object] = {"clock": lambda: NOW, "gpm_gap_seconds": 0.0, **more}
    return NvmlCollector(
        NvmlSettings(enabled=True, library=str(library), mapping_directory=mapping),
        load_gpu_catalogue(),
        "n1",
        proc_root=proc,
        **fields,  # type: ignore[arg-type]
    )


def rows(collected: Collected) -> list[dict[str, object]]:
    """The samples as dictionaries."""
    return collected.samples.to_dict("records")


def stub(library: Path, name: str) -> int:
    """A counter of the stub itself."""
    return int(getattr(ctypes.CDLL(str(library)), name)())
