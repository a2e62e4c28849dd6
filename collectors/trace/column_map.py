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
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from collectors.readings.device_labels import MAX_LABEL
from collectors.readings.metric_names import FIELDS, Field
from data.base.errors import SettingsError, scrub
from data.base.text import storable
from data.facts.columns import NUMBER, SAMPLES

_JOB_FACTS = ("platform", "kind", "owner", "namespace")
_MEMORY = {
    "mib": 1.0, "gib": 1024.0, "bytes": 1 / 1_048_576, "mb": 1e6 / 1_048_576,
    "gb": 1e9 / 1_048_576,
}  # fmt: skip
_POWER = {"watts": 1.0, "kilowatts": 1000.0, "milliwatts": 0.001}
FACTORS: Mapping[str, Mapping[str, float]] = {
    "utilization_ratio": {"ratio": 1.0, "percent": 0.01},
    "memory_used_mib": _MEMORY,
    "memory_total_mib": _MEMORY,
    "power_watts": _POWER,
    "power_limit_watts": _POWER,
    "energy_joules": {"joules": 1.0, "millijoules": 0.001, "kwh": 3_600_000.0},
}
"""Target to unit to the factor into ours."""
TIME_UNITS = {
    "timestamp": 0.0,
    "days": 86_400.0,
    "hours": 3_600.0,
    "minutes": 60.0,
    "seconds": 1.0,
    "milliseconds": 1e-3,
    "microseconds": 1e-6,
    "nanoseconds": 1e-9,
}
"""Unit of the time column to seconds; a timestamp is no number."""
_MAX_MAP_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedColumn:
    """One target column: the file's column, the factor into our unit, and options."""

    column: str
    unit: str = ""
    factor: float = 1.0
    prefix: str = ""
    zero_is_unknown: bool = False
    confirmed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTime:
    """The time column. `start` is the time of 0 in it, None for timestamps."""

    column: str
    unit: str
    start: datetime | None = None
    format: str = ""
    zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """The format of a CSV file; '' where its bytes tell."""

    delimiter: str = ""
    encoding: str = ""
    decimal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceMap:
    """A checked map."""

    path: Path
    source: str
    time: TraceTime
    form: FileFormat
    columns: Mapping[str, MappedColumn]
    constants: Mapping[str, Any]

    @property
    def tells_boards_by_index(self) -> bool:
        """Return whether node and index tell boards apart: the file has no column of names."""
        return "gpu_uuid" not in self.columns and "gpu_index" in self.columns

    @property
    def assumed(self) -> tuple[tuple[str, str], ...]:
        """The map's statements; its zone is assumed only where a time of the file names none."""
        start, zone = self.time.start, self.time.zone
        fields = {"start": start.isoformat() if start else "", "timezone": zone}
        constants = {name: str(value) for name, value in self.constants.items()}
        if self.tells_boards_by_index:
            constants["gpu_uuid"] = "node and gpu_index: no column names boards"
        return tuple((name, text) for name, text in (fields | constants).items() if text)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return a hint that names the nearest known name, or all of them."""
    names = list(candidates)
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    # A header may have hundreds of names, or be one line of JSON.
    listed = scrub(", ".join(names), limit=400)
    return f"Did you mean {matches[0]!r}?" if matches else f"Known: {listed}."


def load_map(path: Path) -> TraceMap:
    """Return the map of a TOML file. Errors: SettingsError naming the entry and the fix."""
    document = _document(path)
    _require_names(path, document, ("source", "file", "time", "columns", "constants"), "section")
    constants = _table(path, document, "constants")
    targets = tuple(name for name in SAMPLES.names if name != "sampled_at")
    _require_names(path, constants, (*targets, *_JOB_FACTS), "entry of [constants]")
    columns = _table(path, document, "columns")
    _require_names(path, columns, targets, "target in [columns]")
    if "job_id" not in columns and "job_id" not in constants:
        raise SettingsError(f"{path} maps no job_id", "Add [columns.job_id] column = ...")
    source = document.get("source", path.stem)
    if not isinstance(source, str) or not 0 < len(source) <= MAX_LABEL:
        raise SettingsError(f"{path}: source is {str(source)[:40]!r}", 'Write source = "NAME".')
    return TraceMap(
        path=path,
        source=storable(source),
        time=_time(path, _table(path, document, "time")),
        form=_form(path, _table(path, document, "file")),
        columns={name: _column(path, name, entry) for name, entry in columns.items()},
        constants={name: _constant(path, name, value) for name, value in constants.items()},
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_MAP_BYTES:
            raise SettingsError(f"{path} is too large for a map", "Is it the trace?")
        if not path.is_file():
            raise SettingsError(f"the map {path} is no file", "Give --map the path of a TOML file.")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"cannot read the map {path}: {error.strerror}", "Give --map the path of a TOML file."
        ) from error
    except (ValueError, RecursionError) as error:
        # Beside its own errors tomllib lets through numbers of 4,300 digits and deep nesting.
        reason = scrub(str(error), limit=120)
        raise SettingsError(f"{path} is not valid TOML: {reason}", "Mend that line.") from error


def _time(path: Path, time: Mapping[str, Any]) -> TraceTime:
    keys = ("column", "unit", "start", "format", "timezone")
    _require_names(path, time, keys, "entry of [time]")
    unit = str(time.get("unit", "timestamp"))
    if unit not in TIME_UNITS:
        raise SettingsError(f"{path}: time unit {unit!r} is unknown", nearest(unit, TIME_UNITS))
    zone, form = time.get("timezone", ""), time.get("format", "")
    try:
        if zone:
            ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise SettingsError(
            f"{path}: [time] timezone {zone!r} is unknown", 'Write one such as "Europe/Berlin".'
        ) from error
    if not isinstance(form, str):
        raise SettingsError(f"{path}: [time] format is {form!r}", 'Write format = "%d/%m/%Y".')
    return TraceTime(
        column=_text(path, time, "column", "[time]"),
        unit=unit,
        start=_start(path, time) if unit != "timestamp" else None,
        format=form,
        zone=zone,
    )


def _form(path: Path, file: Mapping[str, Any]) -> FileFormat:
    _require_names(path, file, ("delimiter", "encoding", "decimal"), "entry of [file]")
    texts = {name: value for name, value in file.items() if isinstance(value, str) and value}
    for name in file.keys() - texts.keys():
        raise SettingsError(f"{path}: [file] {name} is {file[name]!r}", "Write it as text.")
    delimiter, encoding = texts.get("delimiter", ""), texts.get("encoding", "utf-8")
    if len(delimiter.encode()) > 1 or delimiter in ('"', "\r", "\n"):
        raise SettingsError(f"{path}: [file] delimiter is {delimiter!r}", "Give one sign.")
    try:
        "x".encode(encoding).decode(encoding)
    except (LookupError, ValueError, AssertionError, TypeError) as error:
        raise SettingsError(
            f"{path}: [file] encoding {scrub(encoding)!r} is unknown", 'Write "utf-8" or "latin-1".'
        ) from error
    if texts.get("decimal", ".") not in (".", ","):
        raise SettingsError(f"{path}: [file] decimal is {texts['decimal']!r}", 'Write "." or ",".')
    return FileFormat(**texts)


def _constant(path: Path, name: str, value: Any) -> Any:
    """Return a constant of the type that its target has. Errors: SettingsError."""
    if name in FACTORS:
        limit = field_of(name).largest
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= limit:
            raise SettingsError(
                f"{path}: constant {name} is {scrub(str(value)[:40])}",
                f"Write a number from 0 to {limit:g}.",
            )
        return float(value)
    if not isinstance(value, str) or len(value) > MAX_LABEL:
        raise SettingsError(
            f"{path}: constant {name} is {scrub(str(value)[:40])!r}", f'Write {name} = "TEXT".'
        )
    return storable(value)


def field_of(target: str) -> Field:
    """Return the field of telemetry whose limits hold for a target as well."""
    quantity = "gpu_util" if target == "utilization_ratio" else target
    return next(field for field in FIELDS if field.quantity == quantity)


def _table(path: Path, document: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name, {})
    if not isinstance(value, dict):
        raise SettingsError(f"{path}: {name} is {value!r}", f"It must be a table [{name}].")
    return value


def _require_names(path: Path, table: Mapping[str, Any], allowed: Iterable[str], what: str) -> None:
    for name in table:
        if name not in allowed:
            raise SettingsError(f"{path}: unknown {what} {name!r}", nearest(name, allowed))


def _text(path: Path, table: Mapping[str, Any], name: str, where: str) -> str:
    value = table.get(name)
    if not isinstance(value, str) or not value:
        raise SettingsError(f"{path}: {where} lacks {name}", f'Add {name} = "NAME OF A COLUMN".')
    return value


def _start(path: Path, time: Mapping[str, Any]) -> datetime:
    text = time.get("start", "")
    try:
        at = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
    except (ValueError, OverflowError):
        at = datetime.min  # noqa: DTZ901 - stands for "no zone", refused below
    if at.tzinfo is None:
        raise SettingsError(
            f"{path}: [time] start is {text!r}",
            'A trace with relative times needs start = "2026-01-05T00:00:00Z".',
        )
    if not 1970 <= at.year <= 2096:
        raise SettingsError(f"{path}: [time] start is {text!r}", "Give a year from 1970 to 2096.")
    return at.astimezone(UTC)


def _column(path: Path, target: str, entry: Any) -> MappedColumn:
    if not isinstance(entry, dict):
        raise SettingsError(
            f"{path}: columns.{target} is {entry!r}", f"Write it as a table [columns.{target}]."
        )
    keys = ("column", "unit", "prefix", "zero_is_unknown", "confirmed")
    _require_names(path, entry, keys, f"key of columns.{target}")
    factor, unit = 1.0, str(entry.get("unit", ""))
    if SAMPLES.columns[target][0] == NUMBER:
        units = FACTORS[target]
        if unit not in units:
            raise SettingsError(
                f"{path}: columns.{target} has the unit {unit!r}", nearest(unit, units)
            )
        factor = units[unit]
    return MappedColumn(
        column=_text(path, entry, "column", f"columns.{target}"),
        unit=unit,
        factor=factor,
        prefix=storable(str(entry.get("prefix", "")))[:MAX_LABEL],
        zero_is_unknown=_flag(path, target, entry, "zero_is_unknown"),
        confirmed=_flag(path, target, entry, "confirmed"),
    )


def _flag(path: Path, target: str, entry: Mapping[str, Any], name: str) -> bool:
    """Return a flag; the text "false" is none. Errors: SettingsError."""
    value = entry.get(name, False)
    if not isinstance(value, bool):
        raise SettingsError(
            f"{path}: columns.{target} has {name} = {scrub(str(value)[:40])!r}",
            f"Write {name} = true or {name} = false, without quotes.",
        )
    return value
