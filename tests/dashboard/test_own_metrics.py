"""Trimtab's own metrics: what is known, in units; hostile labels stay labels."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from factories import NOW, make_collected, make_plan, make_recommendation
from prometheus_client.parser import text_string_to_metric_families

from dashboard.cycle.cycle_thread import CycleState
from dashboard.web.server.prometheus_metrics import MAX_NAMED_FINDINGS, OwnMetrics
from data.records.recommendations import Decision, Recommendation
from data.store import Store, open_store

HOSTILE = 'ns/a"} 1\ntrimtab_up 7\n\u202e{x="'


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """A store without a row."""
    with open_store(store_url) as opened:
        yield opened


def keep(store: Store, *recommendations: Recommendation) -> None:
    """Keep samples and a cycle of two minutes with these recommendations."""
    store.keep(make_collected())
    store.keep_cycle(
        cycle_id="c1",
        started_at=NOW,
        finished_at=NOW + timedelta(minutes=2),
        forecasts=(),
        plan=make_plan(),
        recommendations=recommendations,
    )


def scraped(
    store: Store, state: CycleState | None = None, *, after: timedelta = timedelta(minutes=12)
) -> dict[str, dict[str, float]]:
    """Value by label text by metric name, as Prometheus' own parser reads them."""
    text = OwnMetrics(store.reader, lambda: state or CycleState(), lambda: False).exposition(
        NOW + after
    )
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def test_an_empty_store_has_no_plan_and_no_age(store: Store) -> None:
    """What is unknown has no series: no age of no sample, no cost of no plan."""
    found = scraped(store)
    assert found["trimtab_last_cycle_failed"] == {"": 0.0}
    assert not {name for name in found if "age" in name or "plan" in name or "fleet" in name}


@pytest.mark.parametrize("minutes", [-100_000, -60, -4, -1, 0, 1, 2, 60])
def test_no_age_is_negative_wherever_the_clock_stands(store: Store, minutes: int) -> None:
    """An age that the clock cannot tell has no series; how far it is behind is told instead."""
    keep(store)
    found = scraped(store, after=timedelta(minutes=minutes))
    ages = {name: value[""] for name, value in found.items() if "age_seconds" in name}
    assert all(age >= 0 for age in ages.values())
    assert ("trimtab_last_cycle_age_seconds" in ages) == (minutes >= -3)
    assert found["trimtab_clock_behind_seconds"] == {"": max(0.0, 60.0 * (2 - minutes))}


def test_the_cycle_and_the_plan_are_told(store: Store) -> None:
    """Ages and durations are seconds; the gap is that of the plan."""
    keep(store)
    found = scraped(store, CycleState(last_error="no route to host"))
    assert found["trimtab_last_cycle_failed"] == {"": 1.0}
    assert found["trimtab_newest_sample_age_seconds"] == {"": 12 * 60.0}
    assert found["trimtab_last_cycle_age_seconds"] == {"": 600.0}
    assert found["trimtab_last_cycle_duration_seconds"] == {"": 120.0}
    plan = make_plan()
    assert found["trimtab_plan_cost"] == {"": plan.cost}
    assert found["trimtab_plan_gap_ratio"][""] == pytest.approx(plan.gap_ratio)
    assert sum(found["trimtab_fleet_gpus"].values()) == pytest.approx(1.0)


def test_the_waiting_savings_are_those_of_open_recommendations(store: Store) -> None:
    """A rejected one is counted in its state and saves nothing any more."""
    one, other = make_recommendation(), make_recommendation(job_id="search/other")
    keep(store, one, other)
    assert one.savings.cost is not None
    both = scraped(store)["trimtab_waiting_savings_cost"]
    assert both["estimate=central"] == pytest.approx(2 * one.savings.cost.central)
    store.append_decision(
        digest=one.digest, decision=Decision.REJECTED, by="ada", at=NOW, comment=""
    )
    after = scraped(store)
    assert after["trimtab_waiting_savings_cost"]["estimate=central"] == pytest.approx(
        one.savings.cost.central
    )
    assert after["trimtab_recommendations"][f"action={one.action},state=rejected"] == 1.0
    assert len(after["trimtab_recommendation_saving_cost"]) == 1


def test_a_job_is_not_named(store: Store) -> None:
    """Whoever reaches the port may read: a recommendation is told by number and kind."""
    one = make_recommendation(job_id=HOSTILE, namespace=HOSTILE)
    keep(store, one)
    found = scraped(store)
    assert "trimtab_up" not in found
    (labels,) = found["trimtab_recommendation_saving_cost"]
    kind = f"action={one.action},finding=TT-1"
    assert labels == f"{kind},risk={one.risk},state=proposed"


def test_savings_are_told_by_state_and_kind(store: Store) -> None:
    """What was promised, of rejected ones too; a saving that is not known has no part in it."""
    one, other = make_recommendation(), make_recommendation(job_id="search/other")
    keep(store, one, other)
    store.append_decision(
        digest=one.digest, decision=Decision.REJECTED, by="ada", at=NOW, comment=""
    )
    found = scraped(store)
    assert one.savings.cost is not None
    assert found["trimtab_recommended_savings_cost"] == {
        f"action={one.action},state={state}": one.savings.cost.central
        for state in ("proposed", "rejected")
    }
    assert "trimtab_recommended_savings_energy_kilowatthours" not in found


def test_a_thousand_recommendations_make_no_thousand_series(store: Store) -> None:
    """The largest are named; the sum holds all."""
    many = [
        make_recommendation(job_id=f"search/job-{index}")
        for index in range(MAX_NAMED_FINDINGS + 20)
    ]
    keep(store, *many)
    found = scraped(store)
    assert len(found["trimtab_recommendation_saving_cost"]) == MAX_NAMED_FINDINGS
    assert sum(found["trimtab_recommendations"].values()) == MAX_NAMED_FINDINGS + 20
