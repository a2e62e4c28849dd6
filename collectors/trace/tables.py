"""Trace files as batches of columns: Parquet or CSV, compressed or not, in bounded memory.

What a file is follows from its first bytes, never from its name. CSV cells stay the text that they
are. Only the columns that a map names are read, some megabytes at a time.
"""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from collectors.readings.device_labels import MAX_LABEL
from collectors.trace.column_map import FileFormat, nearest
from data.base.errors import CollectorError, SettingsError, UnexpectedAnswerError, scrub

Columns = Mapping[str, pa.Array]
MAX_BATCH_ROWS = 65_536
_MAX_TEXT_BYTES = 256 * 2**20
"""Of one column in one row group of Parquet."""
_MAX_CELL_BYTES = 64 * MAX_LABEL
_HEADER_BYTES = 2**20
_DELIMITERS = (",", ";", "\t", "|")
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
_UNREADABLE = {b"PK\x03\x04": "a zip archive", b"\xfd7zXZ": "compressed by xz"}
_BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_UTF8 = "utf-8-sig"
_FREELY_UNPACKED, _MAX_UNPACKED_RATIO = 256 * 2**20, 100
"""Readings of CSV pack to a tenth or a thirtieth; zeros to a thousandth."""
MAX_ROW_BYTES = 4 * 2**20
"""A row of CSV has at most this size."""


def read_columns(
    path: Path,
    names: Sequence[str],
    *,
    form: FileFormat,
    where: Path,
    dropped: Counter[str],
) -> Iterator[Columns]:
    """Yield the wanted columns of a trace, batch by batch; broken rows of CSV are counted.

    Errors: SettingsError naming the column or the entry of the map `where`,
    UnexpectedAnswerError.
    """
    with failures_named(path):
        with path.open("rb") as file:
            magic = file.read(8)
        if magic.startswith(b"PAR1"):
            yield from _parquet(path, names, where)
        else:
            yield from _csv(path, magic, names, form, where, dropped)


@contextmanager
def failures_named(path: Path) -> Iterator[None]:
    """Turn the errors of libraries about a file into errors that name it."""
    try:
        yield
    except (CollectorError, SettingsError, MemoryError):
        raise
    except (OSError, ValueError, LookupError, OverflowError, EOFError, pa.ArrowException) as error:
        text = scrub(str(error), limit=160)
        if "straddling" in text:
            raise row_too_long(path) from error
        if isinstance(error, UnicodeError) or "UTF8" in text:
            raise UnexpectedAnswerError(
                f"{path} is no text in UTF-8, or in the encoding of the map",
                'If it is CSV, name its encoding in the map: [file] encoding = "latin-1".',
            ) from error
        raise UnexpectedAnswerError(
            f"cannot read {path} as Parquet or CSV: {text}",
            "Give a whole Parquet file, or CSV with a header.",
        ) from error


def _names_of(columns: Sequence[str], names: Sequence[str], where: Path) -> dict[str, str]:
    """Return the file's name of every wanted column: blanks around a name do not count.

    Errors: SettingsError.
    """
    plain = [name.strip() for name in names]
    for name in (name.strip() for name in columns):
        if name not in plain:
            raise SettingsError(
                f"{where} names the column {name!r}, which the trace does not have",
                nearest(name, [scrub(text, limit=60) for text in plain[:50]]),
            )
        if plain.count(name) > 1:
            raise SettingsError(
                f"the trace has the column {name!r} {plain.count(name)} times",
                "Give every column a name of its own.",
            )
    return {name: names[plain.index(name.strip())] for name in columns}


def _parquet(path: Path, columns: Sequence[str], where: Path) -> Iterator[Columns]:
    schema = pq.read_schema(path)
    column_names = _names_of(columns, schema.names, where)
    written = list(dict.fromkeys(column_names.values()))
    for name in written:
        if pa.types.is_nested(schema.field(name).type):
            raise SettingsError(
                f"the column {name!r} of the trace holds {schema.field(name).type}",
                "Write it as a column of plain numbers, text or times.",
            )
    texts = [name for name in written if _is_bytes(schema.field(name).type)]
    with pq.ParquetFile(path, read_dictionary=texts, pre_buffer=False, buffer_size=2**20) as file:
        rows = _batch_rows(file.metadata, written)
        for batch in file.iter_batches(rows, columns=written, use_threads=False):
            yield {name: batch.column(there) for name, there in column_names.items()}


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _batch_rows(metadata: Any, names: Sequence[str]) -> int:
    """Return the number of rows for a batch. Errors: UnexpectedAnswerError for huge cells."""
    widest = 1.0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        width = 0.0
        for column in (group.column(index) for index in range(group.num_columns)):
            if column.path_in_schema not in names or column.physical_type != "BYTE_ARRAY":
                continue
            size, cells = column.total_uncompressed_size, max(1, group.num_rows)
            if size > _MAX_TEXT_BYTES or (size / cells > _MAX_CELL_BYTES and size > 2**20):
                raise UnexpectedAnswerError(
                    f"the column {column.path_in_schema!r} has {size / 2**20:,.0f} MiB of text in "
                    f"{cells} rows of row group {number}",
                    f"A label has at most {MAX_LABEL} characters; write smaller row groups.",
                )
            width += size / cells
        widest = max(widest, width)
    return max(64, min(MAX_BATCH_ROWS, int(4 * MAX_ROW_BYTES / widest)))


def _csv(
    path: Path,
    magic: bytes,
    columns: Sequence[str],
    form: FileFormat,
    where: Path,
    dropped: Counter[str],
) -> Iterator[Columns]:
    for start, what in _UNREADABLE.items():
        if magic.startswith(start):
            raise UnexpectedAnswerError(f"{path} is {what}", "Unpack it, or use gzip or zstd.")
    packing = next((how for start, how in _COMPRESSIONS.items() if magic.startswith(start)), None)

    def opened() -> Any:
        return pa.input_stream(str(path), compression=packing)

    with opened() as stream:
        head = stream.read(_HEADER_BYTES)
    if not head.strip():
        raise UnexpectedAnswerError(f"{path} is empty", "Give a CSV file with a header.")
    encoding = form.encoding or next(
        (name for start, name in _BOMS.items() if head.startswith(start)), _UTF8
    )
    delimiter, names = _header(head, encoding, columns, form.delimiter)
    with opened() as stream:
        _require_rows(stream, path, encoding, QuotedFields(path, delimiter, len(names)))
    if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
        encoding = "utf8"  # under this name pyarrow reads it without Python
    column_names = _names_of(columns, names, where)
    written = list(dict.fromkeys(column_names.values()))

    def broken(row: Any) -> str:
        dropped["wrong-columns"] += 1
        return "skip"

    with opened() as stream:
        reader = pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False, block_size=MAX_ROW_BYTES, encoding=encoding
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=broken
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=written,
                column_types={name: pa.string() for name in written},
                strings_can_be_null=False,
            ),
        )
        for batch in reader:
            yield {name: batch.column(there) for name, there in column_names.items()}


class QuotedFields:
    """The quoted fields of a text that comes piece by piece, its lines ended by line feeds.

    A stray quote swallows whole rows. A field of several lines that holds as many delimiters as a
    row is no field of the file: rows that one quote swallows add up to one of the right width only
    so, and would be lost without a word. Nor is one after whose last quote the text goes on.
    """

    def __init__(self, path: Path, delimiter: str, width: int) -> None:
        """Take a file whose header has `width` columns."""
        self._path, self._delimiter = path, delimiter
        self._row = max(1, width - 1)
        begun = rf'"(?<=[\n{re.escape(delimiter)}]")'
        self._quoted = re.compile(begun + r'([^"]*+(?:""[^"]*+)*+)("?)')
        self._unread = "\n"
        self._line = 0

    def read(self, piece: str) -> None:
        """Look at the next piece. Errors: UnexpectedAnswerError naming the line of the quote."""
        text, last = self._unread + piece, len(self._unread + piece) - 1
        # A quote that ends the piece may be the first of two that stand for a quote.
        for field in self._quoted.finditer(text):
            if "\n" in field[1]:
                self._require_field(text, field)
            if field.end() == len(text):
                last = field.start() - 1
        self._line += text.count("\n", 0, last)
        self._unread = text[last:]
        if len(self._unread) > MAX_ROW_BYTES:
            raise row_too_long(self._path)

    def _require_field(self, text: str, field: re.Match[str]) -> None:
        after, what = text[field.end() : field.end() + 1], "a quoted field of several lines"
        if field[1].count(self._delimiter) >= self._row:
            what += f" that holds {self._row} {self._delimiter!r} or more, as a row does"
        elif after not in ("", "\n", self._delimiter):
            what += f" that is followed by {after!r}, not by {self._delimiter!r} or a line break"
        else:
            return
        raise self._error(text, field, what)

    def end(self) -> None:
        """Say that no piece follows. Errors: UnexpectedAnswerError for a quote left open."""
        field = self._quoted.match(self._unread, 1)
        if field and not field[2]:
            raise self._error(self._unread, field, "a quote that nothing closes")

    def _error(self, text: str, field: re.Match[str], what: str) -> UnexpectedAnswerError:
        line = self._line + text.count("\n", 0, field.start())
        return UnexpectedAnswerError(
            f"line {line} of {self._path} opens {what}",
            "Close the quote in that line, or take it out; write a field of several lines in one.",
        )


def _require_rows(stream: Any, path: Path, encoding: str, fields: QuotedFields) -> None:
    """Refuse wrong encodings, endless lines and stray quotes before pyarrow sees them.

    Its threads call back into Python for a wrong row, and wait for it without end after an error.
    """
    decode = codecs.getincrementaldecoder(encoding)()
    decoder, line, size = io.IncrementalNewlineDecoder(decode, translate=True), 0, 0
    most = max(_FREELY_UNPACKED, _MAX_UNPACKED_RATIO * path.stat().st_size)
    while block := stream.read(_HEADER_BYTES):
        size += len(block)
        if size > most:
            raise UnexpectedAnswerError(
                f"{path} unpacks to more than {most >> 20:,} MiB",
                f"No recording packs to 1/{_MAX_UNPACKED_RATIO}: unpack it, and look at it.",
            )
        text = decoder.decode(block)
        first, last = block.find(b"\n"), block.rfind(b"\n")
        line = line + len(block) if first < 0 else len(block) - last
        if line > MAX_ROW_BYTES:
            raise row_too_long(path)
        fields.read(text)
    fields.read(decoder.decode(b"", final=True))
    fields.end()


def _header(
    head: bytes, encoding: str, columns: Sequence[str], delimiter: str
) -> tuple[str, list[str]]:
    """Return the delimiter, as the map gives it or as finds most wanted columns, and the names."""
    text = head.decode(encoding, "replace").removeprefix("\ufeff").lstrip("\r\n")
    plain, candidates = {name.strip() for name in columns}, []
    for candidate in (delimiter,) if delimiter else _DELIMITERS:
        try:
            names = next(csv.reader(io.StringIO(text, newline=""), delimiter=candidate), [])
        except csv.Error:
            names = []
        candidates.append((len(plain & {name.strip() for name in names}), candidate, names))
    _hits, best, names = max(candidates, key=lambda entry: entry[0])
    return best, names


def row_too_long(path: Path) -> UnexpectedAnswerError:
    """Return the error of a row that is larger than a row may be."""
    return UnexpectedAnswerError(
        f"{path} has a row of more than {MAX_ROW_BYTES // 2**20} MiB",
        "Is a quote left open, or is this no CSV?",
    )
