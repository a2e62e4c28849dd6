"""Emissions per million tokens of the runs that say how many tokens they work through.

No source reports steps, samples or tokens of a running job. A submitted job file may state the
tokens of its whole run (`data.tokens`): when it finished, that many were done.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from data.records.recommendations import Range
from data.records.submissions import Submission, SubmissionState

_MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitScore:
    """One finished run: `sci_gco2e` per million tokens, None while its emissions are unknown."""

    job_id: str
    tokens: float
    sci_gco2e: Range | None


def tokens_of(submission: Submission) -> float | None:
    """Return the tokens of the whole run as its job file states them, None when it does not."""
    document: Any = json.loads(submission.job)
    value = document.get("tokens") if isinstance(document, dict) else None
    return float(value) if isinstance(value, int | float) and value > 0 else None


def finished_runs(
    submissions: Iterable[Submission], *, start: datetime, end: datetime
) -> dict[str, float]:
    """Return tokens by job id of what began and finished within [start, end) in one attempt."""
    tokens_by_job = {}
    for submission in submissions:
        last, tokens = submission.latest, tokens_of(submission)
        is_complete = len(submission.attempts) == 1 and last.state is SubmissionState.FINISHED
        inside = last.sent_at >= start and last.ended_at is not None and last.ended_at <= end
        if is_complete and inside and last.job_id and tokens is not None:
            tokens_by_job[last.job_id] = tokens
    return tokens_by_job


def unit_scores(
    tokens: Mapping[str, float], emissions_kgco2e: Mapping[str, Range | None]
) -> tuple[UnitScore, ...]:
    """Return the scores by job id; the emissions are location-based plus embodied ones."""
    scores = []
    for job_id, count in sorted(tokens.items()):
        emitted = emissions_kgco2e.get(job_id)
        factor = 1000 * _MILLION / count
        scores.append(
            UnitScore(
                job_id=job_id,
                tokens=count,
                sci_gco2e=emitted
                and replace(emitted.times(factor), unit="gCO2e per million tokens"),
            )
        )
    return tuple(scores)
