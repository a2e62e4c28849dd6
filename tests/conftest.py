"""What holds for every test."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from reliability import Measured, ReliabilityReport

GOLDEN = Path(__file__).parent / "golden"
_WRITE_GOLDEN = os.environ.get("TRIMTAB_GOLDEN") == "1"
_SCREENSHOTS = "TRIMTAB_SCREENSHOTS"


def pytest_configure(config: pytest.Config) -> None:
    """Run the tests of the faults alone and write their table, when asked to."""
    if os.environ.get("TRIMTAB_RELIABILITY") == "1":
        config.pluginmanager.register(ReliabilityReport())


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the person who runs the tests reach no test."""
    for name in list(os.environ):
        if name.startswith("TRIMTAB_") and name != _SCREENSHOTS:
            monkeypatch.delenv(name)


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    """Notes a figure of the test for docs/reliability.md."""
    return lambda said: record_property("measured", said)


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a text with a file of tests/golden; `make golden` writes the file instead.

    A test that uses it has `golden` in its name or in that of its file.
    """

    def same_as_golden(name: str, text: str) -> None:
        path = GOLDEN / name
        if _WRITE_GOLDEN:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{name} differs: see `make golden`"

    return same_as_golden
