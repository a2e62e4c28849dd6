"""Reads a small file that a person names: a pipe, a device or a huge file is refused.

Where a file says what to run, so is one that another account could have written.
"""

import errno
import os
import stat
from pathlib import Path

from data.base.errors import SettingsError, SourceNotConfiguredError


def open_unlinked(path: Path, flags: int) -> int:
    """Return a handle of a regular file under this one name, or of a new one. Errors: OSError."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link", str(path)) from error
        raise
    entry = os.fstat(handle)
    if stat.S_ISREG(entry.st_mode) and entry.st_nlink == 1:
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is not a regular file, or it has several names", str(path))


def read_small_file(path: Path, *, max_bytes: int = 1 << 20, linked: bool = True) -> bytes:
    """Return the content of a file. Errors: OSError, whose `strerror` says what is wrong.

    `linked`: it may be a link, or have further names.
    """
    # Opening a pipe without a writer would wait for one.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags) if linked else open_unlinked(path, flags)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        body = file.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes >> 10:,} KiB", str(path))
    return body


def text_of_setting(path: str, name: str, hint: str = "Name a file that can be read.") -> str:
    """Return the text of the file that a setting names, without blanks around it.

    Errors: SourceNotConfiguredError naming the setting, with the hint.
    """
    try:
        return read_small_file(Path(path).expanduser()).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "it is no UTF-8 text")
        raise SourceNotConfiguredError(f"cannot read {name} {path}: {why}", hint) from error


def require_own(path: Path, *, group: bool = False) -> None:
    """Refuse (SettingsError) a file or folder, or its folder, that another account can write.

    Root and a private group, whose number is that of its account, are not other accounts; nobody
    writes a mount that is read-only, and a sticky folder keeps its files to their owners. `group`:
    its group may write it.
    """
    for place in dict.fromkeys((path.resolve(), path.resolve().parent, path.absolute().parent)):
        entry = place.stat()
        if entry.st_uid not in (0, os.geteuid()):
            raise SettingsError(
                f"{place} belongs to the account {entry.st_uid}, and could make this one run "
                f"anything: {path} is not read",
                f"If it is yours, run `chown {os.geteuid()} {place}`; else work in another folder.",
            )
        private = group or entry.st_gid == entry.st_uid
        writable = entry.st_mode & (stat.S_IWOTH if private else stat.S_IWOTH | stat.S_IWGRP)
        sticky = stat.S_ISDIR(entry.st_mode) and entry.st_mode & stat.S_ISVTX
        if writable and not sticky and not os.statvfs(place).f_flag & os.ST_RDONLY:
            raise SettingsError(
                f"{place} can be written by other accounts, which could make this one run "
                f"anything: {path} is not read",
                f"Run `chmod go-w {place}`.",
            )
