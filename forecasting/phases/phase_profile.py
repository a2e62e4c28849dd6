"""The profile of a job's phases that a forecast uses: the kinds expected in each slot.

Two parts. Where the epoch is known and at least two slots long, each slot has an angle in it, and
dips are expected where they were. Everything else follows the job's own past as a Markov chain in
continuous time: the rate of leaving a kind is exits seen over time spent in it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import expm  # type: ignore[import-untyped]

from forecasting.phases.records import PhaseKind, Phases

Values = npt.NDArray[np.float64]

MIN_SLOTS_PER_EPOCH = 2.0
KINDS = tuple(kind for kind in PhaseKind if kind is not PhaseKind.UNKNOWN)
_PASSING = frozenset({PhaseKind.WARM_UP, PhaseKind.SPIKE, PhaseKind.DIP})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseProfile:
    """Phases on a grid of slots: `past` ones from the series' first sample, `horizon` after them.

    `past_shares` (slots, kinds) and `future_shares` (horizon, kinds) give the share of each slot in
    each of `kinds`, 0..1; a past row may sum to less where time is unknown, a future row where
    nothing is known. `knows_epoch`: dips are expected where they were.
    """

    kinds: tuple[PhaseKind, ...]
    past_shares: Values
    future_shares: Values
    knows_epoch: bool


def phase_profile(phases: Phases, *, slot_seconds: float, horizon: int) -> PhaseProfile:
    """Return the profile of a job over its past slots and the next `horizon` ones.

    Errors: ValueError for a slot or horizon that is none.
    """
    if not (slot_seconds > 0 and math.isfinite(slot_seconds)) or horizon < 0:
        raise ValueError(
            f"{horizon} slots of {slot_seconds} s are no horizon: both must be finite and positive"
        )
    span = phases.samples * phases.step_seconds
    past_count = math.ceil(span / slot_seconds)
    edges: Values = np.arange(past_count + horizon + 1, dtype=np.float64) * slot_seconds
    kinds = tuple(
        kind for kind in KINDS if any(segment.kind is kind for segment in phases.segments)
    )
    past_shares = _past_shares(phases, kinds, edges[: past_count + 1], slot_seconds)
    future_shares = _future_shares(phases, kinds, edges[past_count:] - span)
    angle = _angle(phases, edges, slot_seconds)
    if angle is not None:
        future_shares = _dips_where_they_were(
            past_shares, future_shares, kinds, angle, phases.epoch.seconds or 1.0, edges
        )
    return PhaseProfile(
        kinds=kinds,
        past_shares=past_shares,
        future_shares=future_shares,
        knows_epoch=angle is not None,
    )


def _past_shares(
    phases: Phases, kinds: Sequence[PhaseKind], edges: Values, slot_seconds: float
) -> Values:
    """Return the share of every past slot in each kind, by the time that segments overlap it."""
    bounds = np.array([0, *(segment.end for segment in phases.segments)]) * phases.step_seconds
    shares = np.zeros((len(edges) - 1, len(kinds)))
    for column, kind in enumerate(kinds):
        lengths = [
            (segment.end - segment.start) * phases.step_seconds if segment.kind is kind else 0.0
            for segment in phases.segments
        ]
        elapsed = np.interp(edges, bounds, np.concatenate([[0.0], np.cumsum(lengths)]))
        shares[:, column] = np.diff(elapsed) / slot_seconds
    return np.clip(shares, 0.0, 1.0)


def _future_shares(phases: Phases, kinds: Sequence[PhaseKind], edges: Values) -> Values:
    """Return the expected share of every future slot in each kind.

    `edges` are seconds after the last sample. Expected occupation of the chain: the integral of
    p exp(Qt), from the exponential of [[Q, I], [0, 0]] (Van Loan 1978).
    """
    shares = np.zeros((len(edges) - 1, len(kinds)))
    past = [segment.kind for segment in phases.segments if segment.kind is not PhaseKind.UNKNOWN]
    if not past or not len(shares):
        return shares
    rates = _rates(phases, kinds)
    size = len(rates)
    block = np.zeros((2 * size, 2 * size))
    block[:size, :size], block[:size, size:] = rates, np.eye(size)
    chance = np.zeros(size)
    chance[kinds.index(past[-1])] = 1.0
    chance = chance @ expm(rates * max(0.0, float(edges[0])))
    slot = float(edges[1] - edges[0])
    step = expm(block * slot)
    for row in range(len(shares)):
        shares[row] = chance @ step[:size, size:] / slot
        chance = chance @ step[:size, :size]
    return np.clip(shares, 0.0, 1.0)


def _rates(phases: Phases, kinds: Sequence[PhaseKind]) -> Values:
    """Return the chain's rates per second between the kinds.

    A kind that passes by its nature and was never seen to end is taken to end at the rate of one
    exit in the time seen; work and idle without an exit last.
    """
    size = len(kinds)
    exits, spent = np.zeros((size, size)), np.zeros(size)
    for segment in phases.segments:
        if segment.kind is not PhaseKind.UNKNOWN:
            spent[kinds.index(segment.kind)] += (segment.end - segment.start) * phases.step_seconds
    for segment, after in zip(phases.segments, phases.segments[1:], strict=False):
        if PhaseKind.UNKNOWN not in (segment.kind, after.kind) and segment.kind is not after.kind:
            exits[kinds.index(segment.kind), kinds.index(after.kind)] += 1
    for row, kind in enumerate(kinds):
        if not exits[row].any() and kind in _PASSING and PhaseKind.STEADY in kinds:
            exits[row, kinds.index(PhaseKind.STEADY)] = 1
    rates = exits / np.where(spent > 0, spent, np.inf)[:, None]
    return np.asarray(rates - np.diag(rates.sum(axis=1)))


def _angle(phases: Phases, edges: Values, slot_seconds: float) -> Values | None:
    """Return the position of every slot's middle in the epoch, 0 where a dip begins, below 1.

    None where the epoch is unknown, or so short that its dips average out within a slot.
    """
    epoch = phases.epoch
    if epoch.seconds is None or epoch.phase_seconds is None:
        return None
    if epoch.seconds < MIN_SLOTS_PER_EPOCH * slot_seconds:
        return None
    middles = (edges[:-1] + edges[1:]) / 2
    return np.asarray(((middles - epoch.phase_seconds) / epoch.seconds) % 1.0)


def _dips_where_they_were(
    past: Values,
    future: Values,
    kinds: Sequence[PhaseKind],
    angle: Values,
    epoch_seconds: float,
    edges: Values,
) -> Values:
    """Return the future shares with dips placed by the mean past share at the same angle.

    The epoch has as many angles as slots; what is not a dip shares the rest as before.
    """
    dip = kinds.index(PhaseKind.DIP)
    observed = past.sum(axis=1) > 0
    bins = max(2, round(epoch_seconds / float(edges[1] - edges[0])))
    places = np.minimum((angle * bins).astype(int), bins - 1)
    before_now, after_now = places[: len(past)][observed], places[len(past) :]
    counts = np.bincount(before_now, minlength=bins)
    covered = counts[after_now] > 0
    placed = future.copy()
    total = np.bincount(before_now, weights=past[observed, dip], minlength=bins)
    usual = total / np.maximum(counts, 1)
    placed[covered, dip] = usual[after_now][covered]
    others = [column for column in range(len(kinds)) if column != dip]
    rest = np.clip(1.0 - placed[:, dip], 0.0, None)
    before = placed[:, others].sum(axis=1)
    scale = np.where(before > 0, rest / np.where(before > 0, before, 1.0), 0.0)
    placed[:, others] *= scale[:, None]
    return placed
