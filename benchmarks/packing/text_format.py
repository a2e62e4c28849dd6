"""The common text format of temporal bin packing instances.

First line `n C 0 0` (number of items, capacity; the rest is not used), then one line per item:
`index start end size`, life [start, end). Public instance families are published so.
"""

from benchmarks.packing.temporal_instance import TemporalInstance, instance_of
from data.base.errors import ImpossibleProblemError

_FORM = "The form is `n C 0 0`, then n lines `index start end size` of integers"


def _integers(line: str, *, where: str, least: int) -> list[int]:
    """Return the integers of a line, at least so many."""
    words = line.split()
    try:
        numbers = [int(word) for word in words]
    except ValueError as error:
        raise ImpossibleProblemError(f"{where} is no row of integers: {line[:80]!r}", _FORM) from (
            error
        )
    if len(numbers) < least:
        raise ImpossibleProblemError(f"{where} has {len(numbers)} numbers: {line[:80]!r}", _FORM)
    return numbers


def parse_instance(text: str, *, name: str) -> TemporalInstance:
    """Return the instance of a text; `name` stands in errors.

    Raises ImpossibleProblemError for a wrong number of lines or numbers, a repeated index, an item
    that ends before it starts or is larger than the capacity.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise ImpossibleProblemError(f"{name} is empty", _FORM)
    count, capacity = _integers(lines[0], where=f"{name}: the first line", least=2)[:2]
    if len(lines) - 1 != count:
        raise ImpossibleProblemError(
            f"{name} announces {count} items and lists {len(lines) - 1}",
            "Correct the first line or the list",
        )
    rows: dict[int, tuple[int, int, int]] = {}
    for number, line in enumerate(lines[1:], start=1):
        row = _integers(line, where=f"{name}: item line {number}", least=4)
        if len(row) != 4:
            raise ImpossibleProblemError(
                f"{name}: item line {number} has {len(row)} numbers: {line[:80]!r}", _FORM
            )
        index, start, end, size = row
        if index in rows:
            raise ImpossibleProblemError(
                f"{name}: item line {number} repeats the index {index}", "Number every item once"
            )
        rows[index] = (start, end, size)
    try:
        return instance_of(list(rows.values()), capacity)
    except ImpossibleProblemError as error:
        raise ImpossibleProblemError(f"{name}: {error.message}", error.hint) from error


def format_instance(instance: TemporalInstance) -> str:
    """Return the text of an instance, items numbered from 0."""
    lines = [f"{instance.items} {instance.capacity} 0 0"]
    lines += [
        f"{index} {start} {end} {size}"
        for index, (start, end, size) in enumerate(
            zip(instance.starts, instance.ends, instance.sizes, strict=True)
        )
    ]
    return "\n".join(lines) + "\n"
