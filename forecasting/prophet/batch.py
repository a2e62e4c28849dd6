"""Prophet's additive model, fitted exactly to a whole batch of series at once.

`fit_batch` gives the maximum of Prophet's own posterior (docs/internals/forecasting.md says what
"equal to Prophet" means), `ProphetFits.predict` its forecast.
Unknown values are dropped, as Prophet does: a series with gaps has changepoints, scaling and a Gram
matrix of its own. Series that share their pattern of known slots share that work, wherever the
pattern lies in the window and whatever its phase in the week (see `prophet_terms.turned`).
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from data.base.errors import ForecastError
from forecasting.prophet.gram_kernel import gram_of
from forecasting.prophet.kernel import LEVEL
from forecasting.prophet.rows_kernel import (
    Answers,
    RowSurvey,
    passes_through,
    scale_rows,
    smooth_columns,
    solve_own,
    solve_shared,
    survey_rows,
)
from forecasting.prophet.terms import (
    Floats,
    Integers,
    Seasonality,
    auto_seasonalities,
    fourier_columns,
    shifted,
    smooth_precision,
)
from forecasting.prophet.terms_kernel import CHANGEPOINTS, changepoint_rows
from forecasting.prophet.variance_kernel import MIN_VARIANCE


class FitStatus(IntEnum):
    """The outcome of one series' fit; from TOO_FEW_POINTS on there is none and forecasts are NaN.

    THROUGH_ALL_POINTS: nothing is left of the series but rounding, so the posterior grows without
    bound as sigma goes to 0; the terms are right, sigma stands at its floor.
    """

    FITTED = 0
    CONSTANT = 1
    THROUGH_ALL_POINTS = 2
    TOO_FEW_POINTS = 3
    AS_MANY_TERMS_AS_POINTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TermGroup:
    """The series `rows` whose design has these seasonalities."""

    seasonalities: tuple[Seasonality, ...]
    rows: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class ProphetFits:
    """The fits of a batch, and their inputs; arrays are [series] unless stated.

    `first_slot` is in s since the epoch, `values` [series, slots], `scale` Prophet's y_scale.
    """

    slot_seconds: int
    first_slot: Integers
    values: Floats
    survey: RowSurvey
    groups: tuple[TermGroup, ...]
    answers: Answers
    scale: Floats
    status: npt.NDArray[np.int8]

    @property
    def fitted(self) -> npt.NDArray[np.bool_]:
        """A mask of the series with a forecast."""
        return self.status < FitStatus.TOO_FEW_POINTS

    def predict(self, horizon: int) -> Floats:
        """Return Prophet's yhat of the `horizon` slots after the window: [series, horizon].

        NaN without a fit. Errors: ForecastError for a horizon below 1.
        """
        if horizon < 1:
            raise ForecastError(f"the horizon is {horizon}", "give at least one slot")
        slots = self.values.shape[1] + np.arange(horizon)
        span = np.maximum(self.survey.last - self.survey.first, 1)[:, None]
        t = (slots - self.survey.first[:, None]) / span
        point = np.asarray(self.answers.intercept[:, None] + self.answers.slope[:, None] * t)
        for group in self.groups:
            columns = fourier_columns(slots * self.slot_seconds, group.seasonalities)
            point[group.rows] += np.asarray(
                self.answers.smooth[group.rows, 2 : 2 + columns.shape[1]] @ columns.T
            )
        with np.errstate(over="ignore"):  # a scale near the largest float: infinite is the truth
            return np.asarray(point * self.scale[:, None])


_CHUNK = 512
"""Rows solved at once: their scaled values stay in the cache between scaling and the product."""
_SHARED_FROM = 3
"""Rows from which one pattern is worth a matrix product."""
_CONSTANT_SIGMA = 1e-9
"""Prophet's own sigma of a constant series."""


def fit_batch(values: Floats, slot_seconds: int, first_slot: int | Integers) -> ProphetFits:
    """Fit every row of `values` [series, slots]; what is not finite is unknown.

    Row i starts at `first_slot` (s since the epoch, UTC; one for all or [series]) and has a value
    every `slot_seconds`. No series can make the batch fail: see `FitStatus`. Errors: ForecastError
    for values that are no [series, slots] and for slots without length.
    """
    rows = np.ascontiguousarray(values, dtype=np.float64)
    if rows.ndim != 2:
        raise ForecastError(f"values have {rows.ndim} dimensions", "give [series, slots]")
    if slot_seconds <= 0:
        raise ForecastError(f"slot_seconds is {slot_seconds}", "give whole seconds above 0")
    begins = np.broadcast_to(np.asarray(first_slot, dtype=np.int64), len(rows))
    survey = survey_rows(rows)
    status = _first_status(survey)
    scale = np.maximum(np.abs(survey.low), np.abs(survey.high))
    scale[~np.isfinite(scale) | (scale == 0.0)] = 1.0
    groups = _term_groups(survey, np.flatnonzero(status == FitStatus.FITTED), slot_seconds)
    widest = max(
        (len(smooth_precision(term_group.seasonalities)) for term_group in groups),
        default=2,
    )
    batch = _Batch(
        values=rows,
        slot_seconds=slot_seconds,
        survey=survey,
        scale=scale,
        answers=_no_answers(len(rows), widest),
    )
    for group in groups:
        _solve_group(batch, group)
    _finish(batch, status)
    return ProphetFits(
        slot_seconds=slot_seconds,
        first_slot=begins,
        values=rows,
        survey=survey,
        groups=groups,
        answers=batch.answers,
        scale=scale,
        status=status,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """The batch and the arrays of its answers."""

    values: Floats
    slot_seconds: int
    survey: RowSurvey
    scale: Floats
    answers: Answers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """Series whose known slots are `slots + offsets`: equal but for their beginnings."""

    slots: Integers
    rows: Integers
    offsets: Integers


def _first_status(survey: RowSurvey) -> npt.NDArray[np.int8]:
    status = np.full(len(survey.counts), FitStatus.FITTED, dtype=np.int8)
    status[survey.low == survey.high] = FitStatus.CONSTANT
    status[survey.counts < 2] = FitStatus.TOO_FEW_POINTS
    return status


def _term_groups(survey: RowSurvey, rows: Integers, slot_seconds: int) -> tuple[TermGroup, ...]:
    """Group these rows by their seasonalities, which span and closest points decide."""
    spans = survey.last[rows] - survey.first[rows]
    widest = int(spans.max(initial=0)) + 1
    pairs, member = np.unique(spans + widest * survey.closest[rows], return_inverse=True)
    terms = [
        auto_seasonalities(pair % widest * slot_seconds, pair // widest * slot_seconds)
        for pair in pairs.tolist()
    ]
    distinct = list(dict.fromkeys(terms))
    of_pair = np.array([distinct.index(term) for term in terms], dtype=np.int64)
    return tuple(
        TermGroup(seasonalities=entry, rows=rows[of_pair[member] == i])
        for i, entry in enumerate(distinct)
    )


def _no_answers(series: int, widest: int) -> Answers:
    """Return the place of the answers, NaN where there will be none."""
    return Answers(
        smooth=np.zeros((series, widest)),
        delta=np.zeros((series, CHANGEPOINTS)),
        slope=np.full(series, np.nan),
        intercept=np.full(series, np.nan),
        variance=np.full(series, np.nan),
        unbounded=np.zeros(series, np.bool_),
    )


def _solve_group(batch: _Batch, group: TermGroup) -> None:
    """Solve the series that have these seasonalities."""
    slots = batch.values.shape[1]
    clock = fourier_columns(np.arange(slots) * batch.slot_seconds, group.seasonalities)
    patterns, alone = _patterns(batch, group.rows)
    rough = [_solve_pattern(batch, pattern, clock, group.seasonalities) for pattern in patterns]
    solve_own(
        batch.values,
        np.concatenate([alone, *rough]),
        batch.survey,
        batch.scale,
        clock,
        smooth_precision(group.seasonalities),
        batch.answers,
    )


def _patterns(batch: _Batch, rows: Integers) -> tuple[list[_Pattern], Integers]:
    """Return the patterns of known slots that several series share, and the series left alone."""
    survey = batch.survey
    spans = survey.last[rows] - survey.first[rows]
    gapless = survey.counts[rows] == spans + 1
    members = [rows[gapless & (spans == span)] for span in np.unique(spans[gapless])]
    with_gaps: dict[bytes, list[int]] = {}
    for i in rows[~gapless].tolist():
        gaps = np.isfinite(batch.values[i, survey.first[i] : survey.last[i] + 1])
        with_gaps.setdefault(gaps.tobytes(), []).append(i)
    members += [np.array(with_gap) for with_gap in with_gaps.values()]
    patterns, alone = [], [np.zeros(0, dtype=np.int64)]
    for which in members:
        if len(which) < _SHARED_FROM:
            alone.append(which)
            continue
        finite = np.isfinite(batch.values[which[0], survey.first[which[0]] :])
        patterns.append(
            _Pattern(slots=np.flatnonzero(finite), rows=which, offsets=survey.first[which])
        )
    return patterns, np.concatenate(alone)


def _solve_pattern(
    batch: _Batch, pattern: _Pattern, clock: Floats, seasonalities: tuple[Seasonality, ...]
) -> Integers:
    """Solve the series of one pattern by one Gram matrix and one matrix product per chunk.

    Gives those that need more digits than this leaves.
    """
    answers, slots = batch.answers, pattern.slots
    t = slots / slots[-1]
    smooth = smooth_columns(t, slots, clock)
    rows = changepoint_rows(len(slots))
    if passes_through(t, smooth, rows):
        answers.unbounded[pattern.rows] = True
        return np.zeros(0, dtype=np.int64)
    gram = gram_of(t, smooth, smooth_precision(seasonalities), rows)
    columns = np.concatenate(
        [smooth @ gram.basis, np.maximum(t[:, None] - gram.changepoints, 0.0)], axis=1
    )
    again = []
    scaled = np.empty((min(_CHUNK, len(pattern.rows)), len(slots)))
    for begin in range(0, len(pattern.rows), _CHUNK):
        which = pattern.rows[begin : begin + _CHUNK]
        part = scaled[: len(which)]
        offsets = pattern.offsets[begin : begin + _CHUNK]
        means, squares = scale_rows(batch.values, which, offsets, slots, batch.scale, part)
        products = part @ columns
        rough = solve_shared(gram, which, means, squares, products, answers)
        again.append(which[rough])
    last = 2 + clock.shape[1]
    # The clock of the design began with the pattern; the answers' begins with the window.
    block = answers.smooth[pattern.rows, 2:last]
    moved = shifted(block, seasonalities, pattern.offsets * batch.slot_seconds)
    answers.smooth[pattern.rows, 2:last] = moved
    return np.concatenate(again)


def _finish(batch: _Batch, status: npt.NDArray[np.int8]) -> None:
    """Fill in constant series as Prophet does, and write the status of the others."""
    answers, survey = batch.answers, batch.survey
    constant = np.flatnonzero(status == FitStatus.CONSTANT)
    answers.slope[constant] = 0.0
    answers.intercept[constant] = survey.low[constant] / batch.scale[constant]
    answers.variance[constant] = _CONSTANT_SIGMA**2
    answers.smooth[constant, LEVEL] = answers.intercept[constant]
    status[answers.unbounded] = FitStatus.AS_MANY_TERMS_AS_POINTS
    through = (answers.variance <= MIN_VARIANCE) & (status == FitStatus.FITTED)
    status[through] = FitStatus.THROUGH_ALL_POINTS
