"""Records to JSON text and back, so that a record read back equals the record kept."""

import json
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from data.base.text import json_without_nul
from data.facts.identifiers import canonical_json

Record = TypeVar("Record")


def to_json(record: object) -> str:
    """Return the canonical JSON of a record, as a store can hold it."""
    return json_without_nul(canonical_json(record))


def from_json(kind: type[Record], text: str) -> Record:
    """Return record of that kind back. Errors: ValueError, TypeError when the text does not fit.

    A field that the text lacks takes its default: records kept by an earlier version stay readable.
    """
    return build(kind, json.loads(text))


def build(kind: type[Record], value: Any) -> Record:
    """Return the record of that kind that a JSON document holds. Errors: as `from_json`."""
    return typing.cast("Record", _builder(typing.cast("Any", kind))(value))


@cache
def _builder(kind: Any) -> Callable[[Any], Any]:
    """Return the function that builds a value of that type; made once, as types are slow to ask."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        some = _builder(next(option for option in inner if option is not type(None)))
        return lambda value: None if value is None else some(value)
    if origin is dict:
        entry = _builder(inner[1])
        return lambda value: {key: entry(part) for key, part in value.items()}
    if origin is tuple:
        return _tuple_builder(inner)
    if isinstance(kind, type) and is_dataclass(kind):
        return _record_builder(kind)
    if kind is datetime:
        return datetime.fromisoformat
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _tuple_builder(inner: tuple[Any, ...]) -> Callable[[Any], Any]:
    if len(inner) == 2 and inner[1] is Ellipsis:
        entry = _builder(inner[0])
        return tuple if entry is _as_it_is else lambda value: tuple(map(entry, value))
    builders = tuple(map(_builder, inner))
    return lambda value: tuple(make(part) for make, part in zip(builders, value, strict=True))


def _record_builder(kind: type) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(kind)
    builder_by_name = {field.name: _builder(hints[field.name]) for field in fields(kind)}

    def make(value: Any) -> Any:
        return kind(
            **{name: part(value[name]) for name, part in builder_by_name.items() if name in value}
        )

    return make
