"""The column map of a trace: which column is what, in which unit, and what is assumed.

A map is a TOML file; docs/examples/alibaba-genai.toml is one.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from data.columns import NUMBER, SAMPLES
from data.errors import SettingsError

_JOB_FACTS = ("platform", "kind", "owner", "namespace")
_FACTORS: dict[str, dict[str, float]] = {
    "utilization_ratio": {"ratio": 1.0, "percent": 0.01},
    "memory_used_mib": {"mib": 1.0, "gib": 1024.0, "bytes": 1 / 1_048_576, "mb": 1e6 / 1_048_576},
    "power_watts": {"watts": 1.0, "kilowatts": 1000.0, "milliwatts": 0.001},
    "energy_joules": {"joules": 1.0, "millijoules": 0.001, "kwh": 3_600_000.0},
}
_FACTORS["memory_total_mib"] = _FACTORS["memory_used_mib"]
_TIME_UNITS = {"seconds": "s", "milliseconds": "ms", "timestamp": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedColumn:
    """One target column: the file's column, the factor into our unit, and options."""

    column: str
    factor: float = 1.0
    prefix: str = ""
    zero_is_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceMap:
    """A checked map. `start` is the assumed time of 0 in the time column, None for timestamps."""

    path: Path
    source: str
    time_column: str
    time_unit: str
    start: datetime | None
    columns: Mapping[str, MappedColumn]
    constants: Mapping[str, Any]

    @property
    def assumed(self) -> tuple[tuple[str, str], ...]:
        """What the map states because the file does not."""
        start = () if self.start is None else (("start", self.start.isoformat()),)
        return start + tuple((name, str(value)) for name, value in self.constants.items())


def nearest(name: str, known: Iterable[str]) -> str:
    """Give a hint that names the nearest known name, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    return f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(names)}."


def load_map(path: Path) -> TraceMap:
    """Give the map of a TOML file. Errors: SettingsError naming the entry and the fix."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"cannot read the map {path}: {error.strerror}", "Give --map the path of a TOML file."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is no valid TOML: {error}", "Mend that line.") from error
    _require_names(path, document, ("source", "time", "columns", "constants"), "section")
    time = _table(path, document, "time")
    _require_names(path, time, ("column", "unit", "start"), "entry of [time]")
    unit = str(time.get("unit", "timestamp"))
    if unit not in _TIME_UNITS:
        raise SettingsError(f"{path}: time unit {unit!r} is unknown", nearest(unit, _TIME_UNITS))
    constants = _table(path, document, "constants")
    known = (*SAMPLES.names, *_JOB_FACTS)
    _require_names(path, constants, known, "entry of [constants]")
    columns = _table(path, document, "columns")
    _require_names(path, columns, SAMPLES.names, "target in [columns]")
    if "job_id" not in columns and "job_id" not in constants:
        raise SettingsError(f"{path} maps no job_id", "Add [columns.job_id] column = ...")
    return TraceMap(
        path=path,
        source=str(document.get("source", path.stem)),
        time_column=_text(path, time, "column", "[time]"),
        time_unit=_TIME_UNITS[unit],
        start=_start(path, time) if unit != "timestamp" else None,
        columns={name: _column(path, name, entry) for name, entry in columns.items()},
        constants=constants,
    )


def _table(path: Path, document: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name, {})
    if not isinstance(value, dict):
        raise SettingsError(f"{path}: {name} is {value!r}", f"It must be a table [{name}].")
    return value


def _require_names(path: Path, table: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    for name in table:
        if name not in known:
            raise SettingsError(f"{path}: unknown {what} {name!r}", nearest(name, known))


def _text(path: Path, table: Mapping[str, Any], name: str, where: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or not value:
        raise SettingsError(f"{path}: {where} lacks {name}", f'Add {name} = "NAME OF A COLUMN".')
    return value


def _start(path: Path, time: Mapping[str, Any]) -> datetime:
    text = time.get("start", "")
    try:
        at = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
    except ValueError:
        at = datetime.min  # noqa: DTZ901 - stands for "no zone", refused below
    if at.tzinfo is None:
        raise SettingsError(
            f"{path}: [time] start is {text!r}",
            'A trace with relative times needs start = "2026-01-05T00:00:00Z".',
        )
    return at.astimezone(UTC)


def _column(path: Path, target: str, entry: Any) -> MappedColumn:
    if not isinstance(entry, dict):
        raise SettingsError(
            f"{path}: columns.{target} is {entry!r}", f"Write it as a table [columns.{target}]."
        )
    _require_names(
        path, entry, ("column", "unit", "prefix", "zero_is_unknown"), f"key of columns.{target}"
    )
    factor = 1.0
    if SAMPLES.columns[target][0] == NUMBER:
        units = _FACTORS[target]
        unit = str(entry.get("unit", ""))
        if unit not in units:
            raise SettingsError(
                f"{path}: columns.{target} has the unit {unit!r}", nearest(unit, units)
            )
        factor = units[unit]
    return MappedColumn(
        column=_text(path, entry, "column", f"columns.{target}"),
        factor=factor,
        prefix=str(entry.get("prefix", "")),
        zero_is_unknown=bool(entry.get("zero_is_unknown", False)),
    )
