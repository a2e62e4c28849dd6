"""Answers to queries of pages that a cycle prepares for the next visitor.

An answer counts for the very batch and cycle that it was made from, and for the version of Trimtab
that made it: after any other the question is asked anew. So a prepared answer is never older than
what the store holds, and equals what the question would answer. Prepared answers are of the whole
fleet; an owner's reader never looks for one.
"""

from __future__ import annotations

import base64
import io
import typing
from collections.abc import Hashable, Mapping
from datetime import datetime
from functools import cache
from importlib.metadata import version as version_of
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from data.facts.identifiers import digest_of_text
from data.store.engine import tables
from data.store.engine.bulk import frame_of, put_rows
from data.store.engine.migrate import newest_schema
from data.store.engine.record_json import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

QUESTIONS = frozenset(
    {
        "boards_since",
        "energy_parts",
        "fleet_history",
        "forecast_summary",
        "group_history",
        "job_choices",
        "job_holders",
        "served_boards",
        "served_tokens",
    }
)
"""Those that read a history, or all forecasts or jobs, for a small answer."""

_FRAME, _NUMBERS, _RECORD = "frame ", "numbers ", "record "
_NONE = -1
"""Stands for the batch and cycle of a row that holds no answer."""
Version = tuple[int | None, ...]


def name_of(key: tuple[Hashable, ...]) -> str:
    """Return the name of the answer to a question with its arguments, as this Trimtab makes it."""
    return f"{key[0]} {digest_of_text(repr((*_maker(), *key)))}"


@cache
def _maker() -> tuple[str, int]:
    """Return the maker of answers: another version may count differently from the same rows."""
    return version_of("trimtab"), newest_schema()


def written(answer: Any) -> str:
    """Return an answer as text: of a frame, an array of numbers or a record."""
    import numpy as np
    import pandas as pd

    if isinstance(answer, pd.DataFrame):
        return _FRAME + _packed(answer)
    if isinstance(answer, np.ndarray):
        return _NUMBERS + _packed(pd.DataFrame({"number": answer}))
    return _RECORD + to_json(answer)


def read_back(text: str, question: Callable[..., Any]) -> Any:
    """Return the answer to a question from its text.

    Errors: ValueError, TypeError, KeyError or OSError for any other text.
    """
    kind, _space, body = text.partition(" ")
    if f"{kind} " == _FRAME:
        return _unpacked(body)
    if f"{kind} " == _NUMBERS:
        return _unpacked(body)["number"].to_numpy()
    if f"{kind} " == _RECORD:
        return from_json(typing.get_type_hints(question)["return"], body)
    raise ValueError(f"no prepared answer: {text[:20]!r}")


def _packed(frame: pd.DataFrame) -> str:
    import pyarrow as pa

    rows = pa.Table.from_pandas(frame, preserve_index=False, nthreads=1)
    sink = io.BytesIO()
    with pa.ipc.new_stream(
        sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as stream:
        stream.write_table(rows)
    return base64.b64encode(sink.getvalue()).decode("ascii")


def _unpacked(body: str) -> pd.DataFrame:
    import pyarrow as pa

    with pa.ipc.open_stream(base64.b64decode(body)) as stream:
        return frame_of(stream.read_all())


def answer_query(name: str, version: Version) -> sa.Select[tuple[str]]:
    """Return the query for the text of an answer that was made from this batch and cycle."""
    batch, cycle = _numbers(version)
    answers = tables.prepared_answers.c
    return sa.select(answers.record).where(
        answers.name == name, answers.batch == batch, answers.cycle == cycle
    )


def keep_answers(
    connection: sa.Connection, answers: Mapping[str, str], version: Version, at: datetime
) -> None:
    """Keep answers by name, made from this batch and cycle, in place of all others.

    Rows are updated where they stand: DuckDB gives the room of a deleted row back only with the
    hundred thousand rows around it, and a store would grow by all answers with every cycle.
    """
    import pandas as pd

    batch, cycle = _numbers(version)
    rows = [
        {
            "place": place,
            "name": name,
            "batch": batch,
            "cycle": cycle,
            "made_at": at,
            "record": text,
        }
        for place, (name, text) in enumerate(answers.items())
    ]
    put_rows(connection, tables.prepared_answers.name, pd.DataFrame(rows), key=("place",))
    forget_answers(connection, since=len(rows))


def forget_answers(connection: sa.Connection, *, since: int = 0) -> None:
    """Empty the rows of all answers, or of those from one place on."""
    table = tables.prepared_answers
    emptied = table.update().values(name="", batch=_NONE, cycle=_NONE, record="")
    connection.execute(emptied.where(table.c.place >= since, table.c.batch != _NONE))


def _numbers(version: Version) -> tuple[int, int]:
    """Return the newest batch and cycle, 0 where there is none yet."""
    batch, cycle = (number or 0 for number in version[:2])
    return batch, cycle
