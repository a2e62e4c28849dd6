"""Submitted jobs in the store: kept as they are now, with what their finished runs measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from data.base.errors import AlreadySubmittedError, StoreError, scrub
from data.records.submissions import MeasuredPeak, Submission
from data.store.engine import tables
from data.store.engine.bulk import put_rows
from data.store.engine.record_json import from_json, to_json
from data.store.facts.fact_reader import FactReader

if TYPE_CHECKING:
    pass

_MIN_PREFIX = 6


class SubmissionReader(FactReader):
    """Submitted jobs; nothing here writes."""

    def submissions(self) -> tuple[Submission, ...]:
        """Return every submission, the latest first."""
        statement = sa.select(tables.submissions.c.record).order_by(
            tables.submissions.c.sequence.desc()
        )
        return tuple(from_json(Submission, row.record) for row in self._rows(statement))

    def submission(self, submission_id: str) -> Submission:
        """Return the one whose id starts so. Errors: StoreError when none or several do."""
        prefix = submission_id.strip().lower()
        column = tables.submissions.c.submission_id
        rows = (
            self._rows(
                sa.select(tables.submissions.c.record).where(
                    column.startswith(prefix, autoescape=True)
                )
            )
            if len(prefix) >= _MIN_PREFIX
            else []
        )
        if len(rows) != 1:
            what = f"{len(rows)} submissions" if rows else "no submission"
            raise StoreError(
                f"{what} with the id {scrub(submission_id, limit=40)!r}",
                "`trimtab submissions list` shows the ids; six characters are the fewest.",
            )
        return from_json(Submission, rows[0].record)

    def measured_peaks(self, family: str) -> tuple[MeasuredPeak, ...]:
        """Return the measured peaks of a family's finished runs, the oldest first."""
        table = tables.measured_peaks
        statement = (
            sa.select(table.c.record)
            .where(table.c.family == family)
            .order_by(table.c.measured_at, table.c.job_id)
        )
        return tuple(from_json(MeasuredPeak, row.record) for row in self._rows(statement))


def write_submission(connection: sa.Connection, submission: Submission, *, new: bool) -> None:
    """Write a submission in place of what was kept of it.

    Errors: StoreError for a new one that is known, or whose job is still open: a second click
    sends nothing.
    """
    table = tables.submissions
    same_id = table.c.submission_id == submission.submission_id
    place = connection.execute(sa.select(table.c.sequence).where(same_id)).scalar()
    if new:
        same_job = sa.and_(table.c.job_digest == submission.job_digest, table.c.is_open)
        twin = connection.execute(
            sa.select(table.c.submission_id).where(sa.or_(same_id, same_job))
        ).scalar()
        if twin is not None:
            raise AlreadySubmittedError(
                f"the same job is already submitted as {twin} and has not ended",
                f"See `trimtab submissions show {twin}`, or change the job.",
            )
    highest = connection.execute(sa.select(sa.func.max(table.c.sequence))).scalar_one()
    row = {
        "submission_id": submission.submission_id,
        "sequence": int(highest or 0) + 1 if place is None else place,
        "job_digest": submission.job_digest,
        "is_open": submission.state.is_open,
        "record": to_json(submission),
    }
    import pandas as pd

    put_rows(connection, table.name, pd.DataFrame([row]), key=("submission_id",))


def write_measured_peak(connection: sa.Connection, peak: MeasuredPeak) -> bool:
    """Keep what a job measured; a job counts once. Says whether it is new."""
    table = tables.measured_peaks
    same = sa.and_(table.c.family == peak.family, table.c.job_id == peak.job_id)
    if connection.execute(sa.select(sa.func.count()).select_from(table).where(same)).scalar_one():
        return False
    connection.execute(
        table.insert().values(
            family=peak.family,
            job_id=peak.job_id,
            measured_at=peak.measured_at,
            record=to_json(peak),
        )
    )
    return True
