"""The bill of materials says what the lock says."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reliability import Measured

ROOT = Path(__file__).parents[1]


def bill_of(lock: str) -> dict[str, Any]:
    """What `make sbom` would write of a lock."""
    made = subprocess.run(
        [sys.executable, "deploy/sbom.py", lock], cwd=ROOT, capture_output=True, check=True
    )
    return dict(json.loads(made.stdout))


@pytest.mark.parametrize("lock", ["requirements.lock", "deploy/requirements.lock"])
def test_every_locked_package_stands_in_it_once(lock: str, measured: Measured) -> None:
    """Name, version and every hash; nine of ten packages tell their licence."""
    bill = bill_of(lock)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    text = (ROOT / lock).read_text(encoding="utf-8")
    pinned = [line.split("==") for line in text.splitlines() if not line.startswith(" ")]
    wanted = [(name.partition("[")[0], rest.split()[0]) for name, rest in pinned]
    components = bill["components"]
    assert [(component["name"], component["version"]) for component in components] == wanted
    assert len({component["bom-ref"] for component in components}) == len(wanted)
    hashes = [entry["content"] for part in components for entry in part["hashes"]]
    assert hashes == [line.split(":")[1][:64] for line in text.splitlines() if "sha256:" in line]
    assert all(component["hashes"] for component in components)
    licensed = sum("licenses" in component for component in components)
    assert licensed > 0.9 * len(components)
    measured(f"{lock}: {len(components)} packages, {licensed} with a licence")


def test_the_same_lock_gives_the_same_bill() -> None:
    """No time and no random number stands in it."""
    assert bill_of("requirements.lock") == bill_of("requirements.lock")
