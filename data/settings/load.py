"""Settings from trimtab.toml, then the environment, then the command line; later wins.

An unknown name is an error that names the nearest known one: a misspelt safety setting must not
be ignored.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from data.base.errors import SettingsError, scrub, without_password
from data.base.files import read_small_file, require_own
from data.base.state_folder import DEFAULT_FOLDER, LOCAL_FOLDER, state_folder
from data.base.units import SLOT_SECONDS
from data.settings.all_settings import Settings
from data.settings.fields import LIST, PATH, settings_in, shown_value
from data.settings.renamed import (
    MERGED,
    WITHOUT_EFFECT,
    has_no_effect,
    warn_of_merged,
    with_merged,
)

DEFAULT_FILE = Path("trimtab.toml")
ENVIRONMENT_PREFIX = "TRIMTAB_"
_CLUSTERS = "clusters.others"
_DUCKDB = "duckdb:///"
_MERGED_KINDS = {old: kind for merge in MERGED.values() for old, kind in merge.kinds.items()}
_MERGED_PATHS = {old for merge in MERGED.values() if merge.are_paths for old in merge.kinds}
_TOO_LARGE = 2**63
_LONG_NUMBER = re.compile(r"[0-9_]{4300}")
REDACTED = "***"
_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings in force, and for every `section.field` where its value came from."""

    settings: Settings
    origins: Mapping[str, str]


@cache
def _declared() -> Mapping[str, tuple[Any, Field[Any]]]:
    """Return the default and the field of all that settings hold, as `section.field`."""
    defaults = Settings()
    return {
        f"{section.name}.{field.name}": (getattr(part, field.name), field)
        for section in fields(Settings)
        for part in (getattr(defaults, section.name),)
        for field in fields(part)
    }


@cache
def _all_kinds() -> dict[str, type]:
    """Return every setting as `section.field` with its type."""
    declared = _declared().items()
    return {name: type(value) for name, (value, field) in declared if "meaning" in field.metadata}


@cache
def _marked(mark: str) -> frozenset[str]:
    """Return what is declared with a mark (secret, PATH, LIST), as `section.field`."""
    return frozenset(name for name, (_, field) in _declared().items() if field.metadata.get(mark))


def _from_folder(values: dict[str, tuple[Any, str]], folder: Path) -> dict[str, tuple[Any, str]]:
    """Return the settings of a file in `folder` with its relative paths counted from there."""
    if folder == Path.cwd():
        return values
    settings = dict(values)
    for name in (_marked(PATH) | _MERGED_PATHS) & values.keys():
        text, where = values[name]
        path = _relative_path(text)
        if path is None:
            continue
        address = _DUCKDB if text.startswith(_DUCKDB) else ""
        settings[name] = (f"{address}{folder / path}", where)
    for name, (rows, where) in values.items():
        if name == _CLUSTERS:
            placed_rows = (replace(row, settings=str(folder / row.settings)) for row in rows)
            settings[name] = (tuple(placed_rows), where)
    return settings


def _relative_path(text: str) -> Path | None:
    """Return the relative path that a setting holds, bare or as the address of a DuckDB file."""
    path = text.removeprefix(_DUCKDB)
    if "://" in path or not path or path.startswith(("/", "~", ":")):
        return None
    if path == text and "/" not in path and path.startswith("lib"):
        return None  # the name of a library, which the loader finds
    return Path(path)


def _finite(name: str, value: Any, where: str) -> Any:
    """Refuse nan and inf: no comparison with nan holds, and an endless wait is no wait.

    And what no arithmetic of ours was written for: whole numbers of more than 63 bits.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"{name} from {where} is {value}", "It must be a finite number.")
    if isinstance(value, int) and abs(value) >= _TOO_LARGE:
        raise SettingsError(
            f"{name} from {where} is {shown_value(value)}", "It must be below 2 to the 63rd."
        )
    return value


def _require_known(name: str, kinds: Mapping[str, type], where: str) -> None:
    if name not in kinds:
        nearest = difflib.get_close_matches(name, kinds, n=1, cutoff=0.3)
        raise SettingsError(
            f"unknown setting {name!r} in {where}",
            f"Did you mean {nearest[0]}?" if nearest else "`trimtab settings` lists all settings.",
        )


def _rows_from_toml(name: str, value: Any, kind: type, where: str) -> tuple[Any, ...]:
    """Read a list of tables into rows of that kind."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise SettingsError(
            f"{name} in {where} is {_text(name, value)}", f"Write each as a table below [[{name}]]."
        )
    kinds = get_type_hints(kind)
    rows = []
    for number, table in enumerate(value, 1):
        at = f"{name} {number}"
        for field in table:
            _require_known(field, kinds, f"{at} of {where}")
        cells = {
            field: _from_toml(f"{at} {field}", entry, kinds[field], where)
            for field, entry in table.items()
        }
        missing = [
            field.name
            for field in fields(kind)
            if field.default is MISSING and field.name not in cells
        ]
        if missing:
            raise SettingsError(f"{at} in {where} lacks {', '.join(missing)}", "Add it.")
        rows.append(kind(**cells))
    return tuple(rows)


def _text(name: str, value: Any) -> str:
    """Return a value for a message, unless it is a secret."""
    return REDACTED if name in _marked("secret") else shown_value(value)


_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    datetime: "a time with its zone",
}


def _from_text(name: str, text: str, kind: type, where: str) -> Any:
    if kind is tuple:
        raise SettingsError(f"{name} from {where} is a text", f"Write [[{name}]] in a file.")
    try:
        value = _WORDS[text.strip().lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        raise SettingsError(
            f"{name} from {where} is {_text(name, text)}", f"It must be {_KINDS[kind]}."
        ) from None
    return _finite(name, value, where)


def _joined(name: str, entries: list[Any], where: str) -> str:
    """Return the entries of a TOML list as the text that a setting of several entries holds."""
    for entry in entries:
        is_plain = isinstance(entry, str | int | float) and not isinstance(entry, bool)
        if not is_plain or "," in str(entry) or not str(entry).strip():
            raise SettingsError(
                f"{name} in {where} holds {_text(name, entry)}",
                "Each entry must be a text or a number, without a comma.",
            )
        _finite(name, entry, where)
    return ",".join(map(str, entries))


def _from_toml(name: str, value: Any, kind: type, where: str) -> Any:
    if isinstance(value, list) and name in _marked(LIST):
        return _joined(name, value, where)
    fitting = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(_finite(name, value, where))
    if not fitting:
        raise SettingsError(
            f"{name} in {where} is {_text(name, value)}", f"It must be {_KINDS[kind]}."
        )
    return _finite(name, value, where)


def _file_values(path: Path | None, kinds: Mapping[str, type]) -> dict[str, tuple[Any, str]]:
    if path is None and not DEFAULT_FILE.is_file():
        return {}
    source = path or DEFAULT_FILE
    where = f"file {source}"
    try:
        body = read_small_file(source)
        require_own(source)
        document = tomllib.loads(body.decode("utf-8-sig"))
    except OSError as error:
        raise SettingsError(
            f"cannot read the settings file {source}: {error.strerror}",
            "Give --settings the path of a TOML file.",
        ) from error
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise SettingsError(
            f"{source} is not valid TOML{_line_of_long_number(source)}: {scrub(str(error))}",
            "Mend that line.",
        ) from error
    values: dict[str, tuple[Any, str]] = {}
    for section, body in document.items():
        if not isinstance(body, dict):
            _require_known(section, kinds, where)
            continue
        for field, value in body.items():
            if has_no_effect(f"{section}.{field}", where):
                continue
            name = f"{section}.{field}"
            warn_of_merged(name, where)
            _require_known(name, kinds, where)
            kind = _declared()[name][1].metadata.get("rows") if name in _declared() else None
            read = (
                _from_toml(name, value, kinds[name], where)
                if kind is None
                else _rows_from_toml(name, value, kind, where)
            )
            values[name] = (read, where)
    return _from_folder(values, source.absolute().parent)


def _line_of_long_number(path: Path) -> str:
    """Name the line of a number that Python refuses to read: it does not say where it stands."""
    lines = read_small_file(path).decode(errors="replace").splitlines()
    numbers = (number for number, line in enumerate(lines, 1) if _LONG_NUMBER.search(line))
    number = next(numbers, None)
    return "" if number is None else f" in line {number} ({scrub(lines[number - 1], limit=60)})"


def _state_values(environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """Return the defaults that stand in the state folder, with the path of that folder."""
    folder = state_folder(environ)
    if folder == LOCAL_FOLDER and Path(LOCAL_FOLDER).is_dir():
        require_own(Path(LOCAL_FOLDER), group=True)  # people may stop applying there
    values: dict[str, tuple[Any, str]] = {}
    for name in _marked(PATH):
        text = _declared()[name][0]
        if DEFAULT_FOLDER in text:
            values[name] = (text.replace(DEFAULT_FOLDER, folder), "default")
    return values


def _refuse_earlier(environ: Mapping[str, str]) -> None:
    """Refuse to begin anew beside the store or the stop file of a version before 0.1."""
    folder = state_folder(environ)
    names = [name for name in ("trimtab.duckdb", "STOP") if Path(LOCAL_FOLDER, name).exists()]
    if folder != LOCAL_FOLDER and names:
        raise SettingsError(
            f"{LOCAL_FOLDER} in the working directory holds {' and '.join(names)} of an earlier "
            "version",
            f"Move its files to {folder}, or name them by store.url and apply.stop_file.",
        )


def _variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return ENVIRONMENT_PREFIX + name.replace(".", "_", 1).upper()


def _environment_values(
    environ: Mapping[str, str], kinds: Mapping[str, type]
) -> dict[str, tuple[Any, str]]:
    by_variable = {_variable(name): name for name in (*kinds, *WITHOUT_EFFECT)}
    values: dict[str, tuple[Any, str]] = {}
    for variable, text in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable not in by_variable:
            hits = difflib.get_close_matches(variable, map(_variable, kinds), n=1, cutoff=0.3)
            raise SettingsError(
                f"unknown environment variable {variable}",
                f"Did you mean {hits[0]}?" if hits else "`trimtab settings` lists all settings.",
            )
        source = f"the environment ({variable})"
        if has_no_effect(by_variable[variable], source):
            continue
        name = by_variable[variable]
        warn_of_merged(name, source)
        where = f"environment {variable}"
        read = _from_text(name, text, kinds[name], where)
        values[name] = (read, where)
    return values


def load_settings(
    path: Path | None = None,
    *,
    environ: Mapping[str, str],
    overrides: Mapping[str, str] | None = None,
    is_main: bool = True,
) -> LoadedSettings:
    """Return the settings in force. Errors: SettingsError for an unknown name or a wrong value.

    `path` None takes ./trimtab.toml when it is there; `overrides` are `section.field` to text.
    Relative paths count from the folder of the file that they stand in, those of the environment
    and the command line from the working directory. Defaults stand in the state folder. Without
    `is_main` they are of a further cluster, whose store and stop file nobody uses.
    """
    kinds = _all_kinds()
    every = kinds | _MERGED_KINDS
    values = with_merged(
        _state_values(environ) | _file_values(path, every) | _environment_values(environ, every)
    )
    for name, text in (overrides or {}).items():
        _require_known(name, kinds, "the command line")
        values[name] = (_from_text(name, text, kinds[name], "the command line"), "command line")
    if is_main and "default" in (values["store.url"][1], values["apply.stop_file"][1]):
        _refuse_earlier(environ)
    settings = Settings()
    for section in fields(Settings):
        changed = {
            name.partition(".")[2]: value
            for name, (value, _origin) in values.items()
            if name.partition(".")[0] == section.name
        }
        part = replace(getattr(settings, section.name), **changed)
        settings = replace(settings, **{section.name: part})
    # From one cycle to the next a service has a number of replicas.
    stale = max(settings.serving.stale_minutes, settings.serve.cycle_minutes + SLOT_SECONDS / 60)
    settings = replace(settings, serving=replace(settings.serving, stale_minutes=stale))
    origins = {name: values[name][1] if name in values else "default" for name in kinds}
    return LoadedSettings(settings=settings, origins=origins)


def files_read(loaded: LoadedSettings) -> str:
    """Return the files that settings came from, in words."""
    names = {origin.partition(", ")[0] for origin in loaded.origins.values()}
    paths = sorted(str(Path(name[5:]).absolute()) for name in names if name.startswith("file "))
    return f"settings from {', '.join(paths)}" if paths else "no setting from a file"


def setting_rows(loaded: LoadedSettings) -> list[dict[str, Any]]:
    """Return every setting with value (secrets redacted), origin and meaning."""
    rows = []
    for section in fields(Settings):
        part = getattr(loaded.settings, section.name)
        for field in settings_in(part):
            name = f"{section.name}.{field.name}"
            value = getattr(part, field.name)
            if field.metadata["secret"] and value:
                value = REDACTED
            elif isinstance(value, str):
                value = without_password(value)
            rows.append(
                {
                    "name": name,
                    "value": value,
                    "origin": loaded.origins[name],
                    "meaning": field.metadata["meaning"],
                }
            )
    return rows
