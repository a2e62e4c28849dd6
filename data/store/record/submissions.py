"""Submitted jobs in the store: kept as they are now, with what their finished runs measured."""

from __future__ import annotations

import sqlalchemy as sa

from data.base.errors import AlreadySubmittedError, StoreError, scrub
from data.records.submissions import MeasuredPeak, Submission
from data.store.engine import tables
from data.store.engine.bulk import put_rows
from data.store.engine.record_json import to_json
from data.store.facts.fact_reader import FactReader

_MIN_PREFIX = 6


class SubmissionReader(FactReader):
    """Submitted jobs; nothing here writes."""

    def submissions(self) -> tuple[Submission, ...]:
        """Return every submission, the latest first."""
        rows = tables.submissions.c
        return self._records(Submission, sa.select(rows.record).order_by(rows.sequence.desc()))

    def submission(self, submission_id: str) -> Submission:
        """Return the one whose id starts so. Errors: StoreError when none or several do."""
        prefix, rows = submission_id.strip().lower(), tables.submissions.c
        query = sa.select(rows.record).where(rows.submission_id.startswith(prefix, autoescape=True))
        matches = self._records(Submission, query) if len(prefix) >= _MIN_PREFIX else ()
        if len(matches) != 1:
            what = f"{len(matches)} submissions" if matches else "no submission"
            raise StoreError(
                f"{what} with the id {scrub(submission_id, limit=40)!r}",
                "`trimtab submissions list` shows the ids; six characters are the fewest.",
            )
        return matches[0]

    def measured_peaks(self, family: str) -> tuple[MeasuredPeak, ...]:
        """Return the measured peaks of a family's finished runs, the oldest first."""
        rows = tables.measured_peaks.c
        peaks = sa.select(rows.record).where(rows.family == family)
        return self._records(MeasuredPeak, peaks.order_by(rows.measured_at, rows.job_id))


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
