"""The benchmark of promises sees what a cycle sees, and a change of no effect saves nothing."""

import numpy as np

from benchmarks._promised_cycle import AS_OF, recommended
from benchmarks._promised_fleet import NOW, DrawnFleet
from benchmarks.promises import applies, drawn, report, settings_of
from dashboard.cycle import World, run_cycle
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings import Settings
from data.store import Store

TINY = 7


def of_a_cycle(fleet: DrawnFleet, settings: Settings, store: Store) -> set[str]:
    """What a cycle over a store recommends."""
    world = World(
        settings=settings,
        store=store,
        collectors=(fleet,),
        catalogue=load_gpu_catalogue(),
        carbon=load_carbon_table().get(settings.energy.region),
        forgets=False,
    )
    return {
        recommendation.summary for recommendation in run_cycle(world, now=AS_OF).recommendations
    }


def test_a_drawn_fleet_is_advised_as_a_cycle_would_and_no_change_saves_nothing(
    store: Store,
) -> None:
    """One fleet is played; every change to what a job has saves exactly 0 of every figure."""
    fleet, settings = drawn(1, TINY), settings_of(TINY)
    found, catalogue = recommended(fleet, settings)
    assert {one.summary for one in found} == of_a_cycle(fleet, settings, store)
    played = applies(fleet, settings, found, catalogue)
    assert len(played) >= 3
    for one in played:
        if one.nothing is not None:
            assert (one.nothing.gpu_hours, one.nothing.kwh, one.nothing.money) == (0, 0, 0)
        assert np.isfinite([one.came.gpu_hours, one.came.kwh, one.came.money]).all()
    assert any("came to at most 0." in line for line in report(1, played))


def test_the_past_tells_nothing_of_the_future() -> None:
    """No reading is younger than the first slot, and the same seed draws the same fleet."""
    one, again = drawn(3, 2), drawn(3, 2)
    samples = one.samples(0, one.past)
    assert samples["sampled_at"].max() < NOW
    assert samples.equals(again.samples(0, again.past))
