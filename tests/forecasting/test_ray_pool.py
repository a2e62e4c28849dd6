"""A real Ray cluster on this machine gives what threads give, in the same order."""

import os
import sys
from dataclasses import replace

import pytest
from forecasting_cases import HOURLY, daily, series

from data.errors import SettingsError
from forecasting.forecast_path import PathTask
from forecasting.path_pool import paths_of
from forecasting.ray_pool import LOCAL, by_ray

TASKS = [
    PathTask(series=series(daily(4, seed=seed)), first_slot=4 * 86_400, horizon=6)
    for seed in range(70)
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Ray itself warns of
def test_a_cluster_gives_what_threads_give() -> None:
    """Two batches of series: the same paths in the same order; a batch that fails is done here."""
    assert paths_of(TASKS, settings=HOURLY, ray_address=LOCAL) == paths_of(TASKS, settings=HOURLY)
    naive = replace(HOURLY, model="seasonal-naive")
    assert paths_of(TASKS[:3], settings=naive, ray_address=LOCAL) == paths_of(
        TASKS[:3], settings=naive
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Ray itself warns of
def test_a_dying_worker_costs_no_result() -> None:
    """A batch whose workers die every time is done by the caller."""
    home = os.getpid()

    def answer(batch: list[int]) -> list[int]:
        if os.getpid() != home and 3 in batch:
            os._exit(1)
        return [one + 1 for one in batch]

    assert list(by_ray(answer, [[1, 2], [3, 4]], address=LOCAL)) == [[2, 3], [4, 5]]


def test_without_ray_the_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names setting, value and extra."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r"ray\.address is 'auto', but Ray is not installed"):
        paths_of(TASKS[:1], settings=HOURLY, ray_address="auto")
