"""Prints what a lock brings along as CycloneDX 1.6 JSON: name, version, hashes, licence.

`python deploy/sbom.py requirements.lock`. Licences come from the metadata of the installed
distributions; a package that is not installed has none. The same lock and the same environment
give the same text: there is no time and no random number in it.
"""

import json
import re
import sys
import uuid
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

_PINNED = re.compile(r"^(?P<name>[a-z0-9-]+)(\[[a-z,]+\])?==(?P<version>[^ ;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CLASSIFIER = "License :: OSI Approved :: "
_MAX_NAME = 100
"""Some packages put the whole text of their licence where its name belongs."""


def locked(text: str) -> list[tuple[str, str, list[str]]]:
    """Return (name, version, SHA-256 of its files) of every package of a lock."""
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        if pinned := _PINNED.match(line):
            found.append((pinned["name"], pinned["version"], []))
        elif digest := _HASH.search(line):
            found[-1][2].append(digest[1])
    return found


def licences(said: PackageMetadata) -> list[dict[str, Any]]:
    """Return the licences as CycloneDX has them: the SPDX expression, else names, else none."""
    if expression := said.get("License-Expression"):
        return [{"expression": expression}]
    classifiers = said.get_all("Classifier") or []
    names = [
        classifier.removeprefix(_CLASSIFIER)
        for classifier in classifiers
        if classifier.startswith(_CLASSIFIER)
    ]
    name = (said.get("License") or "").strip()
    if not names and 0 < len(name) <= _MAX_NAME and "\n" not in name:
        names = [name]
    return [{"license": {"name": entry}} for entry in names]


def component(name: str, version: str, hashes: list[str]) -> dict[str, Any]:
    """Return one package as a CycloneDX component."""
    address = f"pkg:pypi/{name}@{version}"
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": address,
        "name": name,
        "version": version,
        "purl": address,
        "hashes": [{"alg": "SHA-256", "content": text} for text in hashes],
    }
    try:
        if found := licences(metadata(name)):
            made["licenses"] = found
    except PackageNotFoundError:
        pass  # locked for another platform, or not installed here
    return made


def bill(lock: str, version: str) -> dict[str, Any]:
    """Return the bill of materials of a lock's text, for that version of Trimtab."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, lock)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "trimtab",
                "name": "trimtab",
                "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": [component(*pair) for pair in locked(lock)],
    }


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    json.dump(bill(text, metadata("trimtab")["Version"]), sys.stdout, indent=1)
    sys.stdout.write("\n")
