"""The benchmark of promises sees what a cycle sees, and a change of no effect saves nothing."""

from dataclasses import replace

import numpy as np
import pytest
from factories import make_recommendation

from benchmarks._promised_cycle import AS_OF, recommended
from benchmarks._promised_fleet import NOW, STEP, DrawnFleet, EndLaw
from benchmarks.promises import (
    FUTURES,
    applies,
    bias_of,
    drawn,
    futures_of,
    report,
    settings_of,
    share_of,
)
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import run_cycle
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.actions import Action
from data.records.recommendations import Range
from data.settings.all_settings import Settings
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
    assert {entry.summary for entry in found} == of_a_cycle(fleet, settings, store)
    played = applies(fleet, settings, found, catalogue)
    assert len(played) >= 3
    for apply in played:
        if apply.nothing is not None:
            assert (apply.nothing.gpu_hours, apply.nothing.kwh, apply.nothing.money) == (0, 0, 0)
        assert np.isfinite([apply.came.gpu_hours, apply.came.kwh, apply.came.money]).all()
    assert any("came to at most 0." in line for line in report("one fleet", played))


def test_emptied_nodes_are_judged_over_what_their_sites_may_be() -> None:
    """What is promised in the mean comes in the mean, however few fleets have one to empty."""
    promised = came = 0.0
    for number in range(12):
        fleet, settings = drawn(6, number), settings_of(number)
        node, hours = fleet.nodes[0], fleet.future * STEP / 3600
        watts = fleet.idle_watts[node.gpu_model] + settings.nodes.base_watts_per_gpu
        kwh = node.gpu_count * watts / 1000 * hours * settings.energy.pue
        advice = replace(
            make_recommendation(action=Action.CONSOLIDATE, job_id="", job_name=node.name),
            savings=replace(make_recommendation().savings, energy_kwh=exactly(kwh)),
        )
        for apply in applies(fleet, settings, [advice], load_gpu_catalogue(), seed=6):
            promised += kwh
            came += apply.came.used_kwh
    assert promised == pytest.approx(came, rel=0.02)


def test_advice_for_all_jobs_of_a_model_is_not_played() -> None:
    """It names no job whose future could be drawn with it and without."""
    fleet, settings = drawn(6, 1), settings_of(1)
    advice = make_recommendation(action=Action.CO_LOCATE, job_id="", job_name="T4-16GB of drawn")
    assert applies(fleet, settings, [advice], load_gpu_catalogue(), seed=6) == []


def exactly(kwh: float) -> Range:
    """An amount of energy without any width."""
    return Range(low=kwh, central=kwh, high=kwh, unit="kWh")


def test_a_share_is_shown_with_what_few_draws_leave_open() -> None:
    """8 of 10 leave 49-96 % open (Clopper and Pearson), none of 3 up to 63 %."""
    assert share_of(8, 10) == "80 % of 10 (49–96)"
    assert share_of(0, 3) == "0 % of 3 (0–63)"
    assert share_of(3, 3) == "100 % of 3 (37–100)"


def test_fleets_err_apart_and_the_jobs_of_one_together() -> None:
    """Four equal errors of one fleet are one error; of four fleets they are half as sure."""
    assert bias_of([((1, 1), 1.0), ((1, 1), -1.0), ((1, 2), 0.0)], 10.0) == "+0.0 ± 0.0 %"
    assert bias_of([((1, 1), 2.0), ((1, 2), -2.0)], 10.0) == "+0.0 ± 28.3 %"


def test_each_future_ends_jobs_anew_as_their_fleet_was_drawn() -> None:
    """Among nine ends drawn anew the first one has every rank as often; who never ends, never."""
    ranks, limits = [], []
    for number in range(60):
        fleet = drawn(5, number)
        futures = futures_of(fleet, seed=5)
        assert len(futures) == FUTURES
        for jobs in zip(*(future.jobs for future in futures), strict=True):
            ends = [job.ends for job in jobs]
            assert min(ends) > fleet.past
            if jobs[0].end_law == EndLaw():
                assert len(set(ends)) == 1
            elif jobs[0].end_law.left:
                limits.append(np.mean([job.killed for job in jobs]))
            else:
                ranks.append(np.mean([end < ends[0] for end in ends[1:]]))
    assert np.mean(ranks) == pytest.approx(0.5, abs=0.05)
    assert np.std(ranks) == pytest.approx(12**-0.5, abs=0.04)
    assert np.mean(limits) == pytest.approx(0.5, abs=0.05)


def test_the_past_tells_nothing_of_the_future() -> None:
    """No reading is younger than the first slot, and the same seed draws the same fleet."""
    one, again = drawn(3, 2), drawn(3, 2)
    samples = one.samples(0, one.past)
    assert samples["sampled_at"].max() < NOW
    assert samples.equals(again.samples(0, again.past))
