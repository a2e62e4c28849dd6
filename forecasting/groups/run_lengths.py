"""Lengths of runs as shares of their time limits: a law of the queue, and one of each user.

Runs of a queue are long or short together, and those of a user more so: drawn each for itself,
their sum would be almost certain. So a play draws the law of the queue, then those of its users
(Dirichlet), then runs. Ended runs tell of a law by their shares, others by their shares so far.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, gammaln  # type: ignore[import-untyped]

Values = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int_]
Runs = Sequence[tuple[str, float]]
"""Users and shares of limits."""

_EDGES: Values = np.array([0, 0.01, 0.025, *np.linspace(0.05, 0.95, 19), 0.99, 1])
"""Of the cells of a law. The last cell holds the runs that reach their limit."""
_MEANS, _SPREADS = np.linspace(0.05, 0.95, 19), np.array([1.0, 2.0, 4.0, 10.0])
"""Before any run every mean is equally likely, and so are wide and narrow beta laws."""
_SHAPE = 8.0
"""A beta law weighs as much as so many runs that ended."""
_ALIKE: Values = np.array([2.0, 5.0, 12.0, 30.0, 80.0])
"""The law of the queue weighs as much as so many runs of a user: each equally likely at first."""
_ONE_USER = 1e6
_TINY = 1e-6


class RunLengths:
    """The laws of one queue by its runs, `ended` and `running`, and the `users` who wait."""

    def __init__(self, ended: Runs, running: Runs, users: Iterable[str]) -> None:
        names = sorted({*users, *(user for user, _share in (*ended, *running))})
        self._rows = {user: row for row, user in enumerate(names)}
        self._ended = np.zeros((len(names), len(_EDGES) - 1))
        np.add.at(self._ended, (self.rows(user for user, _ in ended), _cells(_shares(ended))), 1.0)
        self._running, self._so_far = self.rows(user for user, _ in running), _shares(running)
        self._laws = _beta_laws()
        self._likely = self._ended @ np.log(self._laws).T
        for at, law in enumerate(self._laws):
            longer = 1 - np.interp(self._so_far, _EDGES, _sums(law))
            np.add.at(self._likely[:, at], self._running, np.log(np.maximum(longer, _TINY)))
        self._count = self._ended.sum(axis=1) + np.bincount(self._running, minlength=len(names))
        self._alike = self._chances_of_alike() if len(names) > 1 else None

    def rows(self, users: Iterable[str]) -> Counts:
        """Return the numbers of these users among the laws."""
        return np.array([self._rows[user] for user in users], dtype=np.int_)

    def _chances_of_alike(self) -> Values:
        """Return how likely the ended runs are under each of `_ALIKE` (Dirichlet-multinomial)."""
        law = self._ended.sum(axis=0) + _SHAPE * self._laws.mean(axis=0)
        prior = _ALIKE[:, None, None] * (law / law.sum())
        by_cell = (gammaln(prior + self._ended) - gammaln(prior)).sum(axis=(1, 2))
        alike, runs = _ALIKE[:, None], self._ended.sum(axis=1)
        return _chances(by_cell + (gammaln(alike) - gammaln(alike + runs)).sum(axis=1))

    def draw(self, rng: np.random.Generator) -> "DrawnLengths":
        """Draw the laws of a play."""
        alike = _ONE_USER if self._alike is None else rng.choice(_ALIKE, p=self._alike)
        # Many runs of one user tell little of the others: so much does each of them count.
        weight = alike * np.log1p(self._count / alike) / np.maximum(self._count, 1)
        law = self._laws[rng.choice(len(self._laws), p=_chances(weight @ self._likely))]
        runs = self._ended.copy()
        rests = _longer(_sums(law), self._so_far, rng)
        np.add.at(runs, (self._running, _cells(rests)), 1.0)
        queue = _dirichlet(_SHAPE * law + weight @ runs, rng)
        return DrawnLengths([_sums(row) for row in _dirichlet(alike * queue + runs, rng)])


class DrawnLengths:
    """The laws of one play, a user each."""

    def __init__(self, sums: Sequence[Values]) -> None:
        self._sums = sums

    def shares(self, users: Counts, so_far: Values, rng: np.random.Generator) -> Values:
        """Draw the shares of their limits that runs take, each larger than it is so far."""
        shares = np.empty(len(users))
        for user in np.unique(users):
            of_user = users == user
            shares[of_user] = _longer(self._sums[user], so_far[of_user], rng)
        return shares


def _beta_laws() -> Values:
    """Return the chance of each cell under each law that is possible before any run."""
    means, spreads = (grid.ravel()[:, None] for grid in np.meshgrid(_MEANS, _SPREADS))
    cells = np.diff(betainc(means * spreads, (1 - means) * spreads, _EDGES[None, :]), axis=1)
    return np.asarray(np.maximum(cells, _TINY))


def _shares(runs: Runs) -> Values:
    return np.array([share for _user, share in runs], dtype=np.float64)


def _cells(shares: Values) -> Counts:
    cells = np.searchsorted(_EDGES, shares, side="right") - 1
    return np.asarray(np.clip(cells, 0, len(_EDGES) - 2), dtype=np.int_)


def _sums(law: Values) -> Values:
    return np.concatenate([[0.0], np.cumsum(law) / law.sum()])


def _longer(sums: Values, so_far: Values, rng: np.random.Generator) -> Values:
    """Draw from a law, each share larger than it is so far."""
    below = np.interp(so_far, _EDGES, sums)
    shares = np.interp(below + rng.random(len(so_far)) * (1 - below), sums, _EDGES)
    return np.asarray(np.maximum(shares, so_far))


def _dirichlet(weights: Values, rng: np.random.Generator) -> Values:
    gammas = np.maximum(rng.standard_gamma(weights), 1e-12)
    return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))


def _chances(logs: Values) -> Values:
    chances = np.exp(logs - logs.max())
    return np.asarray(chances / chances.sum())
