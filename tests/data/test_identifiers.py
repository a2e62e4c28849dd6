"""Digests cover a record whole, and the same record always has the same text."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest
from factories import make_plan, make_recommendation

from data.facts.identifiers import canonical_json, digest_of


class Colour(StrEnum):
    """A word."""

    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """The inner record."""

    at: datetime
    colour: Colour = Colour.RED
    ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The outer one."""

    leaves: tuple[Leaf, ...]
    named: dict[str, Leaf]


def test_the_text_of_a_record_is_written_down() -> None:
    """Records within records, tuples and mappings; times in ISO 8601, unknown as null."""
    leaf = Leaf(at=datetime(2026, 1, 7, 12, tzinfo=UTC))
    inner = '{"at":"2026-01-07T12:00:00+00:00","colour":"red","ratio":null}'
    text = canonical_json(Tree(leaves=(leaf,), named={"b": leaf}))
    assert text == f'{{"leaves":[{inner}],"named":{{"b":{inner}}}}}'


@pytest.mark.parametrize("record", [make_plan(), make_recommendation()])
def test_a_record_and_its_copy_as_plain_values_have_one_digest(record: Any) -> None:
    """No field of it is left out but the digest of the text that it was read from."""
    copy = asdict(record)
    assert copy.pop("kept_digest", "") == ""
    assert digest_of(record) == digest_of(copy)


def test_what_is_no_record_is_refused() -> None:
    """A digest of an object's address would be another one tomorrow."""
    with pytest.raises(TypeError, match="cannot digest a object"):
        canonical_json({"a": object()})
