"""What leaves nodes is put where the least is left, all of one size at once."""

import numpy as np
import pytest

from planner.advisers.removable_nodes import all_fit


def fit_in_turn(rooms: list[int], leaving: list[int]) -> bool:
    """Put one after the other, the largest first."""
    left = list(rooms)
    for boards in sorted(leaving, reverse=True):
        fitting = [node for node, size in enumerate(left) if size >= boards]
        if not fitting:
            return False
        left[min(fitting, key=lambda node: left[node])] -= boards
    return True


@pytest.mark.parametrize("largest", [1, 4, 8, 16])
def test_counts_fit_as_one_after_the_other_does(largest: int) -> None:
    """On 500 drawn fleets of two models both say the same, and both answers come up."""
    random = np.random.default_rng(largest)
    found = []
    for _fleet in range(500):
        models = [
            (
                random.integers(0, largest + 1, random.integers(1, 12)).tolist(),
                random.integers(1, largest + 1, random.integers(0, 12)).tolist(),
            )
            for _model in range(2)
        ]
        rooms, leaving = (
            np.array([np.bincount(model[part], minlength=largest + 2) for model in models])
            for part in range(2)
        )
        rooms[:, 0] = 0
        found.append(all_fit(rooms, leaving))
        assert found[-1] == all(fit_in_turn(*model) for model in models)
    assert {True, False} == set(found)


def test_what_is_larger_than_every_node_finds_no_room() -> None:
    """The last column is all that no node can take."""
    rooms, leaving = np.zeros((1, 10), dtype=np.int64), np.zeros((1, 10), dtype=np.int64)
    rooms[0, 8], leaving[0, 9] = 5, 1
    assert not all_fit(rooms, leaving)
