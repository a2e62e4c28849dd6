"""Keeps the store's files to their owner, whatever the umask of the process is."""

import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger(__name__)

OWN_FOLDER = ".trimtab"
_FILE, _FOLDER = 0o600, 0o700


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, all for the owner only. Errors: OSError."""
    missing = [file for file in (folder, *folder.parents) if not file.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(_FOLDER)
    folder.mkdir(exist_ok=True)  # what stands there and is no folder is an error


def create_private(path: Path) -> None:
    """Make an empty file for its owner only where there is none. Errors: OSError."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE)
    except FileExistsError:
        return
    with os.fdopen(handle, "wb"):
        os.fchmod(handle, _FILE)


def make_private(path: Path) -> bool:
    """Remove other accounts' rights to an existing file of ours; tell whether there were any."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    if not stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.geteuid():
        return False
    path.chmod(_FILE)
    return True


def tighten(paths: tuple[Path, ...], folder: Path) -> None:
    """Tighten files that other users could read, and our own folder, with a word of it.

    A folder that its group may write keeps its group: people stop applying by a file in it.
    """
    opened = [str(path) for path in paths if make_private(path)]
    if folder.name == OWN_FOLDER and (status := folder.stat()).st_uid == os.geteuid():
        mode = stat.S_IMODE(status.st_mode)
        tight = mode & (0o770 if mode & stat.S_IWGRP else 0o700)
        if tight != mode:
            folder.chmod(tight)
            opened.append(f"{folder}/")
    if opened:
        logger.warning(
            "other users of this machine could read %s: now only their owner can",
            ", ".join(opened),
        )


def write_private(path: Path, body: bytes) -> None:
    """Write a file whole or not at all, for its owner only, and onto the disk. Errors: OSError."""
    temporary = path.with_name(f"{path.name}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, _FILE)
        file.write(body)
        file.flush()
        os.fsync(handle)
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
