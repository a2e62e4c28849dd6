"""The problem as a value: what is refused, the text format, and the grids."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.packing.grids import interval_grid
from benchmarks.packing.temporal_instance import clique_grid, instance_of
from benchmarks.packing.text_format import format_instance, parse_instance
from data.base.errors import ImpossibleProblemError

ITEM = st.tuples(st.integers(0, 20), st.integers(1, 12), st.integers(1, 10)).map(
    lambda entry: (entry[0], entry[0] + entry[1], entry[2])
)
ITEMS = st.lists(ITEM, max_size=12)


@pytest.mark.parametrize(
    ("items", "capacity", "message"),
    [
        ([(0, 1, 11)], 10, "item 0 of size 11 .* larger than the capacity of 10"),
        ([(0, 1, 1), (3, 3, 1)], 10, r"item 1 .* \[3, 3\) ends no later than it starts"),
        ([(0, 1, 0)], 10, "item 0 .* has no size"),
        ([], 0, "capacity of 0"),
    ],
)
def test_what_no_packing_could_hold_is_refused(
    items: list[tuple[int, int, int]], capacity: int, message: str
) -> None:
    """The error names the item, its numbers and what is wrong with them."""
    with pytest.raises(ImpossibleProblemError, match=message):
        instance_of(items, capacity)


@given(ITEMS)
def test_the_text_of_an_instance_reads_back_as_the_same(items: list[tuple[int, int, int]]) -> None:
    """Writing and reading changes nothing."""
    text = format_instance(instance_of(items, 10))
    again = parse_instance(text, name="again")
    assert again.capacity == 10
    assert list(zip(again.starts, again.ends, again.sizes, strict=True)) == items


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x is empty"),
        ("2 10 0 0\n0 1 2 3\n", "x announces 2 items and lists 1"),
        ("1 10 0 0\n0 1 2 3\n1 1 2 3\n", "x announces 1 items and lists 2"),
        ("1\n0 1 2 3\n", "first line has 1 numbers"),
        ("1 10 0 0\n0 1 2\n", "item line 1 has 3 numbers"),
        ("1 10 0 0\n0 1 2 3 4\n", "item line 1 has 5 numbers"),
        ("1 10 0 0\n0 1 2 big\n", "item line 1 is no row of integers"),
        ("1 10 0 0\n0 1 2 11\n", "x: item 0 of size 11 .* larger than the capacity"),
        ("1 10 0 0\n0 2 2 1\n", "x: item 0 .* ends no later"),
        ("2 10 0 0\n7 1 2 1\n7 1 2 1\n", "item line 2 repeats the index 7"),
    ],
)
def test_texts_of_another_form_are_refused_by_line(text: str, message: str) -> None:
    """The error names the text, the line and the form."""
    with pytest.raises(ImpossibleProblemError, match=message):
        parse_instance(text, name="x")


def test_a_bare_header_and_blank_lines_will_do() -> None:
    """The two unused numbers of the header are optional; blank lines do not count."""
    instance = parse_instance("1 10\n\n0 1 2 3\n", name="x")
    assert instance.items == 1


@given(ITEMS)
def test_the_clique_grid_has_the_peak_loads_of_the_interval_grid(
    items: list[tuple[int, int, int]],
) -> None:
    """What fits at the maximal cliques fits always."""
    instance = instance_of(items, 10)
    cliques, intervals = clique_grid(instance), interval_grid(instance)
    assert cliques.slots <= max(1, intervals.slots)
    assert cliques.load(instance.sizes).max(initial=0) == intervals.load(instance.sizes).max(
        initial=0
    )
    sets = {frozenset(np.flatnonzero(row)) for row in cliques.active()}
    assert not any(entry < other for entry in sets for other in sets), "only maximal sets are kept"
    for row in intervals.active():
        assert any(set(np.flatnonzero(row)) <= entry for entry in sets)
