"""What holds for every test."""

import os

import pytest

_TEST_SWITCHES = ("TRIMTAB_GOLDEN", "TRIMTAB_SCREENSHOTS")
"""Variables that speak to the tests, not to the program under test."""


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the person who runs the tests reach no test."""
    for name in list(os.environ):
        if name.startswith("TRIMTAB_") and name not in _TEST_SWITCHES:
            monkeypatch.delenv(name)
