"""Cells of a trace as texts and numbers, whatever type the file gives them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collectors.readings.device_labels import MAX_LABEL
from collectors.trace.numbers import NumberForm
from data.base.errors import SettingsError
from data.base.text import storable

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_MISSING = frozenset(
    ("-", "na", "n/a", "[n/a]", "nan", "null", "none", "nat", "<na>", r"\n", "[not supported]",
     "[unknown error]", "[insufficient permissions]", "[gpu is lost]")
)  # fmt: skip
"""Words, in lower case, for a value that is not there: of numbers, times and names alike."""
_MAX_BYTES = 4 * MAX_LABEL
_MAX_WHOLE = {16: 2.0**11, 32: 2.0**24, 64: 2.0**53}


@dataclass(frozen=True, slots=True)
class Texts:
    """Distinct texts, '' last, the place of each cell among them, and which cells were too long.

    `absent` maps places of '' to the word that says so in the file.
    """

    distinct: list[str]
    places: npt.NDArray[np.int64]
    long: Flags
    absent: dict[int, str]

    def spread(self, values: Any) -> Any:
        """Return the value of every cell, of one value for each distinct text."""
        return np.asarray(values)[self.places]


def is_text(kind: pa.DataType) -> bool:
    """Return whether cells of this type are text."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_null(kind)
    )


def texts_of(array: pa.Array) -> Texts:
    """Return the cells as text without blanks around it.

    '' where there is none, where a word says so, or where it is too long for a label.
    """
    if pa.types.is_dictionary(array.type):
        values, cut = _bounded(array.dictionary)
        indices = array.indices
        long_cells = None
    else:
        plain, long_cells = _bounded(array)
        encoded = plain.dictionary_encode()
        values, indices = encoded.dictionary, encoded.indices
        cut = np.zeros(len(values), dtype=bool)
    cells = [value or "" for value in values.to_pylist()]
    cut |= np.array([len(text) > MAX_LABEL for text in cells], dtype=bool)
    distinct = [
        "" if long else storable(text.strip()) for text, long in zip(cells, cut, strict=True)
    ]
    absent = {place: text for place, text in enumerate(distinct) if text.lower() in _MISSING}
    for place in absent:
        distinct[place] = ""
    filled = indices.cast(pa.int64()).fill_null(len(distinct))
    places = filled.to_numpy(zero_copy_only=False)
    long = np.append(cut, False)[places]
    long = long if long_cells is None else long | long_cells
    return Texts([*distinct, ""], places, long, absent)


def _bounded(array: pa.Array) -> tuple[pa.Array, Flags]:
    """Return the texts, missing where they are far too long, and which those were."""
    if pa.types.is_floating(array.type):
        array = _whole_numbers(array)
    text = array if pa.types.is_string(array.type) else array.cast(pa.string())
    long = pc.fill_null(pc.greater(pc.binary_length(text), _MAX_BYTES), False)
    flags = long.to_numpy(zero_copy_only=False)
    return (pc.if_else(long, None, text) if flags.any() else text), flags


def _whole_numbers(array: pa.Array) -> pa.Array:
    """Return numbers without a point where all are whole, as of ids in a column with gaps.

    Errors: SettingsError beyond 2^53 (of 32 bits 2^24), where several ids are one number.
    """
    wide = array.cast(pa.float64())
    there = wide.drop_null().to_numpy()
    there = there[np.isfinite(there)]
    if np.abs(there).max(initial=0.0) > _MAX_WHOLE[array.type.bit_width]:
        raise SettingsError(
            f"a column of names or ids holds {array.type} such as {np.abs(there).max():.17g}, of "
            "which the last digits are lost",
            "Write ids as text or as integers.",
        )
    if (there != np.trunc(there)).any():
        return array
    return pc.if_else(pc.is_finite(wide), wide, None).cast(pa.int64())


def numbers_of(array: pa.Array, form: NumberForm) -> tuple[Floats, Flags]:
    """Return the cells as numbers, NaN where there is none, and which of them are no numbers.

    Errors: SettingsError for a column of times or truth values, and of NumberForm.read.
    """
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if is_text(kind):
        texts = texts_of(array)
        values = [form.read(text) for text in texts.distinct]
        bad = np.array([value is None for value in values])
        numbers = np.array([np.nan if value is None else value for value in values])
        return texts.spread(numbers), texts.spread(bad) | texts.long
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise SettingsError(
            f"the column {form.column!r} of the trace holds {kind}, where numbers are needed",
            "Name another column, or write it as numbers.",
        )
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_float16(kind):
        array = array.cast(pa.float32())
    result = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return result.astype(np.float64), np.zeros(len(result), dtype=bool)
