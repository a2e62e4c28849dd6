"""Reads a small file that a person names: a pipe, a device or a huge file is refused."""

import errno
import os
import stat
from pathlib import Path


def read_small_file(path: Path, *, max_bytes: int = 1 << 20) -> bytes:
    """Return what is in the file. Errors: OSError, whose `strerror` says what is wrong with it."""
    # Opening a pipe without a writer would wait for one.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        body = file.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes >> 10:,} KiB", str(path))
    return body
