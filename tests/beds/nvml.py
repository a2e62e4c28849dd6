"""The compiled stub of the NVIDIA driver library, one per process.

pynvml keeps the first library that it loads for good, so all tests of a process share one build.
"""

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

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
