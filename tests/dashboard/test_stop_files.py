"""Whatever stands where the stop file belongs stops applying at once, and hangs nothing."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beds.raw_requests import answer
from browser.bed import Server, running_server

MEMORY_KIB = 300_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose stop file has a folder of its own, which holds nothing."""
    folder = tmp_path_factory.mktemp("stop")
    (folder / "there").mkdir()
    with running_server(
        f"duckdb:///{folder}/t.duckdb", folder, TRIMTAB_APPLY_STOP_FILE=f"{folder}/there/STOP"
    ) as running:
        yield running


def stop_file(server: Server) -> Path:
    """Where the file of the server belongs."""
    return server.log.parent / "there" / "STOP"


def switch(server: Server, method: str = "GET") -> dict[str, Any]:
    """Return what the server answers of its kill switch."""
    body = b"{}" if method == "POST" else b""
    length = {"Content_Length": str(len(body)), "Content_Type": "application/json"}
    status, text = answer(
        server, "/api/v1/stop", method=method, body=body, X_Trimtab_By="Robin", **length
    )
    assert status == 200, text
    return dict(json.loads(text))


def memory_kib(server: Server) -> int:
    """Return the largest resident memory of the server so far."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 31)


SHAPES: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "link to endless zeros": lambda path: path.symlink_to("/dev/zero"),
    "link to a terminal": lambda path: path.symlink_to("/dev/ptmx"),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path),
    "folder": Path.mkdir,
    "number of 5,000 digits": lambda path: path.write_text("1" * 5000),
    "number in a field": lambda path: path.write_text('{"by": ' + "1" * 5000 + "}"),
    "deep list": lambda path: path.write_text("[" * 200_000),
    "list": lambda path: path.write_text("[1]"),
    "bytes of no text": lambda path: path.write_bytes(b"\xff\x00\xfe"),
    "2 GiB of zeros": _huge,
    "empty file": Path.touch,
    "folder that is gone": lambda path: path.parent.rmdir(),
    "file in the place of the folder": lambda path: (path.parent.rmdir(), path.parent.touch()),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_cannot_be_read_is_stopped(server: Server, shape: str) -> None:
    """Asked, stopped once more and resumed, on a started server within its usual memory."""
    path, before = stop_file(server), memory_kib(server)
    assert switch(server)["stopped"] is False
    SHAPES[shape](path)
    try:
        told = switch(server)
        assert told["stopped"] is True, told
        assert len(told["reason"]) < 500
        assert "\ntrimtab_apply_stopped 1" in answer(server, "/metrics")[1]
        if "the place" not in shape:
            assert switch(server, "POST")["stopped"] is True
        assert memory_kib(server) < before + MEMORY_KIB
    finally:
        if path.parent.is_dir():
            shutil.rmtree(path.parent)
        path.parent.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
    assert switch(server)["stopped"] is False


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_shows_and_changes_no_other_file(
    server: Server, link: Callable[[Path, Path], None]
) -> None:
    """Who may write the folder alone neither reads nor overwrites what only the server may."""
    path, other = stop_file(server), server.log.parent / "other"
    other.write_text("password = 7f3a", encoding="utf-8")
    link(path, other)
    try:
        state = switch(server)
        assert state["stopped"] is True
        assert "7f3a" not in json.dumps(state)
        assert switch(server, "POST")["stopped"] is True
        assert other.read_text(encoding="utf-8") == "password = 7f3a"
        assert switch(server, "DELETE")["stopped"] is False
        assert other.read_text(encoding="utf-8") == "password = 7f3a"
    finally:
        path.unlink(missing_ok=True)
