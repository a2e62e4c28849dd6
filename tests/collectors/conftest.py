"""Fixtures of the NVML tests: the stub library, what it plays, and a proc file system."""

from pathlib import Path

import pytest
from beds.nvml import RECORDED, Play, stub_library


@pytest.fixture(scope="session")
def library() -> Path:
    """One build serves all tests of a process: pynvml keeps the first library for good."""
    return stub_library()


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Play:
    """Makes the stub answer a recorded scenario by name, and further lines."""

    def scenario(recorded: str = "", lines: str = "") -> None:
        text = (RECORDED / f"{recorded}.scenario").read_text() if recorded else ""
        path = tmp_path / "played.scenario"
        path.write_text(text + lines, encoding="latin-1")
        monkeypatch.setenv("NVML_STUB_SCENARIO", str(path))

    return scenario


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """An empty proc file system."""
    root = tmp_path / "proc"
    root.mkdir()
    return root
