"""What superseded cycles thought is forgotten; what people decided on is not."""

from dataclasses import replace
from datetime import datetime, timedelta

from factories import NOW, make_plan, make_recommendation

from data.records.forecasts import ForecastSkipped
from data.records.recommendations import Decision, Recommendation
from data.settings.all_settings import RetentionSettings
from data.store import Store


def keep(store: Store, number: int, at: datetime) -> Recommendation:
    """Keep a cycle with one forecast and one recommendation, which is given."""
    plan = replace(make_plan(), plan_id=f"{number}" * 12)
    one = replace(make_recommendation(job_id=f"search/{number}"), plan_id=plan.plan_id)
    store.keep_cycle(
        cycle_id=f"c{number}",
        started_at=at,
        finished_at=at,
        forecasts=(
            ForecastSkipped(
                job_id="search/a", reason="too young", samples=0, history_slots=0, known_slots=0
            ),
        ),
        plan=plan,
        recommendations=(one,),
    )
    return one


def counts(store: Store) -> tuple[int, int, int]:
    """Rows of forecasts, plans and recommendations."""
    rows = store.reader.counts()
    return rows["forecasts"], rows["plans"], rows["recommendations"]


def test_each_kind_goes_after_its_own_time(store: Store) -> None:
    """Forecasts after hours, plans after a day, undecided advice after a week."""
    keep(store, 1, NOW)
    keep(store, 2, NOW + timedelta(days=9))
    retention = RetentionSettings()
    left = []
    for hours in (5, 7, 25, 24 * 8):
        store.forget(retention, NOW + timedelta(hours=hours))
        left.append(counts(store))
    assert left == [(2, 2, 2), (1, 2, 2), (1, 1, 2), (1, 1, 1)]


def test_the_newest_cycle_keeps_everything(store: Store) -> None:
    """A recording, or a fleet that was switched off, still shows its last plan."""
    keep(store, 1, NOW)
    store.forget(RetentionSettings(), NOW + timedelta(days=13))
    assert counts(store) == (1, 1, 1)


def test_what_was_decided_on_is_kept_for_good(store: Store) -> None:
    """The recommendation that somebody rejected, and the plan it came from."""
    one = keep(store, 1, NOW)
    store.append_decision(
        digest=one.digest, decision=Decision.REJECTED, by="ada", at=NOW, comment=""
    )
    keep(store, 2, NOW + timedelta(days=1))
    store.forget(RetentionSettings(), NOW + timedelta(days=13))
    assert counts(store) == (1, 2, 2)
    assert store.reader.plan(one.plan_id) is not None
    assert store.reader.verify_audit() == ()
