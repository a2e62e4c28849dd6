"""The files that launchers read: YAML, JSON and TOML of any origin, as flat keys and values."""

import json
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dashboard.submission.launchers.fields import LaunchDialect, dialect
from data.base.errors import ChangeRefusedError, scrub
from data.base.files import read_small_file

FRAMEWORKS = (
    "nemo", "verl", "axolotl", "torchtitan", "llamafactory", "swift", "megatron", "vllm", "tgi",
    "trl",
)  # fmt: skip
SUFFIXES = (".yaml", ".yml", ".json", ".toml")
_MAX_BYTES = 256 << 10
_MAX_ALIASES = 8
_MAX_KEYS = 10_000
_MAX_DEPTH = 12


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader that follows few aliases: a handful of lines could mean gigabytes."""

    aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return a node, after counting the aliases so far."""
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > _MAX_ALIASES:
                raise yaml.YAMLError(f"it has more than {_MAX_ALIASES} aliases")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Return a mapping. Errors: YAMLError for a key that stands in it twice."""
        keys = [
            (key.tag, key.value) for key, _value in node.value if isinstance(key, yaml.ScalarNode)
        ]
        _require_once([value for tag, value in keys if not tag.endswith(":merge")])
        return super().construct_mapping(node, deep)


def _require_once(keys: Sequence[str]) -> None:
    """Errors: YAMLError for a key that stands twice: nobody can tell which value is meant."""
    twice = next((key for key, count in Counter(keys).items() if count > 1), None)
    if twice is not None:
        raise yaml.YAMLError(f"the key {twice} stands in it twice")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require_once([key for key, _value in pairs])
    return dict(pairs)


def read_document(path: Path) -> dict[str, Any]:
    """Return the flat keys of a file with their values: numbers, words, lists of words.

    Errors: ChangeRefusedError naming the file and what is wrong with it.
    """
    try:
        body = read_small_file(path, max_bytes=_MAX_BYTES)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or "it is no path"
        raise _refused(path, reason, "Give the path of the launcher's file.") from error
    try:
        document = _parsed(body.decode("utf-8"), path.suffix.lower())
    except (ValueError, RecursionError, OverflowError, yaml.YAMLError) as error:
        nested = isinstance(error, RecursionError)
        reason = "it is nested too deeply" if nested else scrub(str(error), limit=160)
        kind = path.suffix.lower().removeprefix(".").upper()
        raise _refused(path, reason, f"Mend it: it must be {kind}.") from error
    return flat(document, path)


def read_object(text: str, flag: str) -> dict[str, Any]:
    """Return the flat keys of a JSON object that a flag gives in place of a file.

    Errors: ChangeRefusedError naming the flag and what is wrong with its value.
    """
    try:
        document = _parsed(text, ".json")
    except (ValueError, RecursionError) as error:
        reason = f"its value is no JSON: {scrub(str(error), limit=120)}"
        raise _refused(Path(flag), reason, "Mend it, or give a file.") from error
    return flat(document, Path(flag))


def flat(document: Any, path: Path) -> dict[str, Any]:
    """Return the leaves of a document by their dotted keys. Errors: ChangeRefusedError."""
    if not isinstance(document, Mapping):
        raise _refused(path, "it holds no keys", "Give a file of keys and values.")
    values: dict[str, Any] = {}
    for key, value in _leaves(document, path, depth=0):
        values[key] = value
        if len(values) > _MAX_KEYS:
            raise _refused(path, f"it has more than {_MAX_KEYS:,} keys", "Give a smaller file.")
    return values


def _refused(path: Path, reason: str, fix: str) -> ChangeRefusedError:
    return ChangeRefusedError(f"cannot read {scrub(str(path), limit=120)}: {reason}", fix)


def _parsed(text: str, suffix: str) -> Any:
    if suffix == ".json":
        return json.loads(text, object_pairs_hook=_once)
    if suffix == ".toml":
        return tomllib.loads(text)
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of the safe loader


def _leaves(
    table: Mapping[Any, Any], path: Path, *, depth: int, above: str = ""
) -> Iterator[tuple[str, Any]]:
    if depth > _MAX_DEPTH:
        raise _refused(path, f"it is nested deeper than {_MAX_DEPTH}", "Give a flatter file.")
    for name, value in table.items():
        key = f"{above}{str(name).strip().replace('-', '_')}"
        if isinstance(value, Mapping):
            yield from _leaves(value, path, depth=depth + 1, above=f"{key}.")
        elif isinstance(value, list):
            if all(isinstance(entry, str | int | float) for entry in value):
                yield key, value
        else:
            yield key, value


def framework_of(keys: Mapping[str, Any], path: Path) -> LaunchDialect:
    """Return the framework of a file, by the keys that only this framework has.

    Errors: ChangeRefusedError for a file that describes no job, such as a launcher's alone.
    """
    for name in FRAMEWORKS:
        if any(mark in keys for mark in dialect(name).marks):
            return dialect(name)
    if "model_name_or_path" in keys:
        return dialect("trl")
    for name in ("accelerate", "deepspeed_file"):
        if sum(dialect(name).field_of(key) is not None for key in keys) > 1:
            raise _refused(
                path,
                "it says how processes are spread, and nothing of the model",
                "Give the whole command: trimtab estimate -- accelerate launch ... train.py ...",
            )
    raise _refused(
        path,
        "it is none of the known files",
        f"Known are those of {', '.join(FRAMEWORKS)}, or give the command after --.",
    )
