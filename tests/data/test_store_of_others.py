"""A store of another user: the refusal names it and whose it is, and is no traceback."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from data.base.errors import StoreError
from data.settings.store import is_file
from data.store import open_store

NOBODY = 65534
CLOSED = ("folder", "file") if os.geteuid() == 0 else ("folder",)
"""Who owns a file may always use it: that of others takes two users, and so root."""


@pytest.fixture
def file() -> Iterator[Path]:
    """A store in a folder that every user can reach."""
    folder = Path(tempfile.mkdtemp())
    path = folder / "trimtab.duckdb"
    with open_store(f"duckdb:///{path}"):
        pass
    try:
        yield path
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def told_to_others(path: Path) -> str:
    """What opening says to a user who does not own the store."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        try:
            open_store(f"duckdb:///{path}", create=False)
            said = "opened"
        except StoreError as error:
            said = str(error)
        except BaseException as error:  # noqa: BLE001 - told to the test, which fails by it
            said = repr(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.parametrize("closed", CLOSED)
def test_a_store_of_another_user_is_named(closed: str, file: Path) -> None:
    """Whether the folder keeps others out or the file does, and what to do."""
    file.parent.chmod(0o755 if closed == "file" else 0o000)
    told = told_to_others(file)
    assert told.startswith(f"this user may not use the store {file}")
    assert "ermission denied" in told
    assert "Run the command as the user who owns it" in told
    if closed == "file":
        assert f"{file} of {file.owner()}:" in told


def test_what_is_not_there_is_not_there(tmp_path: Path) -> None:
    """A folder or a file that is missing is no refusal."""
    (tmp_path / "a file").touch()
    assert is_file(tmp_path / "a file")
    assert not is_file(tmp_path / "none")
    assert not is_file(tmp_path / "none" / "none")
    assert not is_file(tmp_path / "a file" / "none")


def test_a_store_on_a_read_only_file_system_is_called_that(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is there, and so is its folder."""
    file.chmod(0o644)

    def refuse(_path: Path, _mode: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    said = r"cannot open the store \S+ for writing: Read-only file"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "chmod", refuse)
        with pytest.raises(StoreError, match=said):
            open_store(f"duckdb:///{file}", create=False)
