"""Records to JSON text and back, so that a record read back equals the record kept."""

import json
import types
import typing
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from data.base.text import json_without_nul
from data.facts.identifiers import canonical_json

Record = TypeVar("Record")
_AS_JSON_HAS_IT = (str, int, float, bool)


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
    return typing.cast("Record", _build(kind, value))


def _build(kind: Any, value: Any) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        options = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        return None if value is None else _build(options[0], value)
    if origin is dict:
        return {key: _build(typing.get_args(kind)[1], entry) for key, entry in value.items()}
    if origin is tuple:
        return _build_tuple(typing.get_args(kind), value)
    if isinstance(kind, type) and is_dataclass(kind):
        pairs = (pair for pair in _inner_kinds(kind) if pair[0] in value)
        return kind(**{name: _build(inner, value[name]) for name, inner in pairs})
    return _build_scalar(kind, value)


@cache
def _inner_kinds(kind: type) -> tuple[tuple[str, Any], ...]:
    """Name and type of every field; a plan of a thousand jobs asks a hundred thousand times."""
    hints = typing.get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind))


def _build_tuple(inner: tuple[Any, ...], value: list[Any]) -> tuple[Any, ...]:
    if len(inner) == 2 and inner[1] is Ellipsis:
        if inner[0] in _AS_JSON_HAS_IT:
            return tuple(value)
        return tuple(_build(inner[0], entry) for entry in value)
    return tuple(_build(kind, entry) for kind, entry in zip(inner, value, strict=True))


def _build_scalar(kind: Any, value: Any) -> Any:
    if kind is datetime:
        return datetime.fromisoformat(value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return value
