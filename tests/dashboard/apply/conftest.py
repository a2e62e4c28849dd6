"""Fixtures of the tests of applying."""

from pathlib import Path

import pytest
from beds.power import PowerBed


@pytest.fixture
def power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PowerBed:
    """A node with one H100 at 700 W."""
    bed = PowerBed(tmp_path)
    monkeypatch.setenv("NVML_STUB_SCENARIO", str(bed.scenario))
    return bed
