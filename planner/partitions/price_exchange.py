"""Prices of all that parts share: each part answers them, and their use together moves them.

The steps are those of the whole problem (`planner.solver.prices`), so the bound is as good as
undivided; a round sends each part the prices [H, R + G] and gets back its use [H, R] and one sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from planner.partitions.part_work import PartLayout, Question, answer_of
from planner.partitions.workers import Workplaces
from planner.slots.slot_problem import Floats, Indices
from planner.solver.prices import BlockAnswer, PriceExchange, ResourcePrices

_REMEMBERED = 0.9


class MeanUse:
    """The mean of what parts used [P, H, R], later answers counting more."""

    def __init__(self, parts: int, shape: tuple[int, ...]) -> None:
        self._sum = np.zeros((parts, *shape))
        self._weight = 0.0

    def note(self, used: Sequence[Floats]) -> None:
        """Take in one round of answers."""
        self._sum = _REMEMBERED * self._sum + np.stack(used)
        self._weight = _REMEMBERED * self._weight + 1

    def mean(self) -> Floats:
        """Return the mean of the rounds so far."""
        return np.asarray(self._sum / self._weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartMarket(PriceExchange):
    """All parts as one market; blocks [B, 16] of the parts lie one after another."""

    places: Workplaces
    layouts: tuple[PartLayout, ...]
    mean_use: MeanUse

    @property
    def all_blocks(self) -> Indices:
        """Return every block."""
        return np.arange(sum(len(layout.job) for layout in self.layouts))

    def part_prices(self, prices: ResourcePrices) -> list[ResourcePrices]:
        """Return the prices for each part, with those of its own work."""
        ends = np.cumsum([0, *(len(layout.job) for layout in self.layouts)])
        return [replace(prices, work=prices.work[a:b]) for a, b in pairwise(ends)]

    def ask(self, prices: ResourcePrices, blocks: Indices, *, searches: int) -> BlockAnswer:
        """Return the optimum of every job at these prices: each part answers for all its blocks."""
        del blocks
        answers = self.places.each(
            answer_of,
            [Question(prices=price, searches=searches) for price in self.part_prices(prices)],
        )
        self.mean_use.note([entry.used for entry in answers])
        return BlockAnswer(
            value=sum(entry.value for entry in answers),
            values=np.concatenate([entry.values for entry in answers]),
            used=np.sum([entry.used for entry in answers], axis=0),
            work=np.concatenate([entry.work for entry in answers]),
        )

    def free_prices(self) -> ResourcePrices:
        """Return prices of zero; work at a third of what unfinished work costs."""
        shape = self.rows.limit.shape
        unfinished = np.concatenate([layout.unfinished_price for layout in self.layouts])
        return ResourcePrices(
            rows=np.zeros(shape),
            boots=np.zeros((shape[0], self.rows.types)),
            work=unfinished / 3,
        )
