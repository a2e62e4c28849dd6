"""The Helm chart as a cluster would get it: values checked by its schema, templates rendered."""

import hashlib
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import yaml

CHART = Path(__file__).parents[2] / "deploy/helm/trimtab"
SOURCE = Path(__file__).with_name("chart_engine") / "main.go"
Object = dict[str, Any]


class ChartError(Exception):
    """Values that the schema or a template refuses."""


def engine() -> Path:
    """The program that renders, or a failure that says how to get it: missing is no skip."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = (
        cache / "trimtab" / f"chart-engine-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}"
    )
    assert os.access(program, os.X_OK), f"no {program}; run .ci/helm on Debian"
    return program


def merged(defaults: Any, given: Any) -> Any:
    """The values as a release has them: maps are merged, all else is replaced."""
    if not isinstance(defaults, dict) or not isinstance(given, dict):
        return given
    return {**defaults, **{key: merged(defaults.get(key), entry) for key, entry in given.items()}}


def check(values: Object) -> None:
    """Hold the values to the chart's schema. Errors: ChartError."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    try:
        jsonschema.Draft7Validator(schema).validate(merged(defaults, values))
    except jsonschema.ValidationError as error:
        raise ChartError(error.message) from error


def texts(values: Object | None = None, *, served: Sequence[str] = ()) -> dict[str, str]:
    """The rendered files by name, release `demo` in namespace `trimtab`. Errors: ChartError."""
    check(values or {})
    asked = {"name": "demo", "namespace": "trimtab", "values": values or {}, "apiVersions": served}
    done = subprocess.run(
        [engine(), CHART], input=json.dumps(asked), capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        raise ChartError(done.stderr)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def rendered(values: Object | None = None, *, served: Sequence[str] = ()) -> list[Object]:
    """The objects of a release. Errors: ChartError."""
    return [
        entry
        for name, text in texts(values, served=served).items()
        if name.endswith(".yaml")
        for entry in yaml.safe_load_all(text)
        if entry
    ]
