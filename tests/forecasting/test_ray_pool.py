"""A real Ray cluster on this machine gives what threads give, in the same order."""

import os
import sys
from dataclasses import replace

import pytest
from beds.ray_cluster import Fate, all_added, on_a_cluster
from forecasting_cases import HOURLY, daily, series

from data.base.errors import SettingsError
from data.records.forecasts import QuantilePath
from forecasting.distributed.ray_pool import by_ray
from forecasting.jobs.forecast_path import PathTask
from forecasting.jobs.path_pool import paths_of

TASKS = [
    PathTask(series=series(daily(4, seed=seed)), first_slot=4 * 86_400, horizon=6)
    for seed in range(70)
]


@pytest.mark.slow
def test_a_cluster_gives_what_threads_give() -> None:
    """Two batches of series: the same paths in the same order; a batch that fails is done here."""
    naive = replace(HOURLY, model="seasonal-naive")

    def there(address: str) -> tuple[list[QuantilePath], list[QuantilePath]]:
        many = paths_of(TASKS, settings=HOURLY, ray_address=address)
        return many, paths_of(TASKS[:3], settings=naive, ray_address=address)

    here = paths_of(TASKS, settings=HOURLY), paths_of(TASKS[:3], settings=naive)
    assert on_a_cluster(there) == here


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "raylet"])
def test_whatever_dies_costs_no_result(victim: str) -> None:
    """A batch whose workers die every time, or take the cluster along, is done by the caller."""
    home = os.getpid()
    batches = [[Fate(home=home, add=add)] for add in (1, 2, 3)]
    batches[1].append(Fate(home=home, add=4, victim=victim))

    def answers(address: str) -> list[list[tuple[int, bool]]]:
        return list(by_ray(all_added, batches, address=address))

    first, doomed, last = on_a_cluster(answers)
    assert doomed == [(3, True), (5, True)]
    assert (first[0][0], last[0][0]) == (2, 4)
    if victim == "worker":
        assert not first[0][1]
        assert not last[0][1]


def test_without_ray_the_setting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names setting, value and extra."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        SettingsError, match=r"ray\.address is 'auto', and a library for it is not installed: ray"
    ):
        paths_of(TASKS[:1], settings=HOURLY, ray_address="auto")
