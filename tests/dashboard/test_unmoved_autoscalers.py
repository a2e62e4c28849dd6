"""A bound that was changed brings nothing until its autoscaler goes beyond the old one."""

from datetime import timedelta
from pathlib import Path

import pytest
from beds.apply_bench import JOB, applied_bench
from factories import NOW, make_collected, make_job, make_recommendation, make_samples

from dashboard.accounting.savings.ledger import ledger
from dashboard.cli import main
from data.facts.jobs import SchedulerFacts
from data.records.actions import Action
from data.store import open_store

DETAILS = (
    ("autoscaler", "horizontalpodautoscaler.autoscaling/ranker"), ("bound_now", "2"),
    ("bound_proposed", "1"),
)  # fmt: skip

BELOW = "its autoscaler has not gone below 2 replicas yet: nothing saved so far"
ABOVE = "its autoscaler has not gone above 2 replicas yet: nothing served so far"


@pytest.mark.parametrize(
    ("action", "gpus", "words"),
    [
        (Action.LOWER_MINIMUM, 4, BELOW),
        (Action.LOWER_MINIMUM, 6, BELOW),
        (Action.LOWER_MINIMUM, 2, ""),
        (Action.RAISE_MAXIMUM, 4, ABOVE),
        (Action.RAISE_MAXIMUM, 6, ""),
        (Action.FEWER_GPUS, 4, ""),
    ],
)
def test_it_is_said_that_the_autoscaler_has_not_moved(
    store_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    action: Action,
    gpus: int,
    words: str,
) -> None:
    """By replicas of two GPUs, in the ledger, its command and the journal; it stays verified."""
    details = DETAILS if action.spec.bound else ()
    proposal = make_recommendation(action=action, details=details)
    facts = SchedulerFacts(extra=(("gpus_per_pod", "2"),))
    with open_store(store_url) as store:
        bench = applied_bench(store, tmp_path, proposal)
        end = NOW + timedelta(hours=3)
        samples = make_samples(gpus=gpus, minutes=180, end=end, utilization_ratio=0.25)
        job = make_job(JOB, gpu_count=gpus, scheduler=facts, last_seen_at=end)
        store.keep(make_collected(samples, (job,)))
        bench.clock.at = end
        bench.work(visits=4)
        (row,) = ledger(store.reader, now=end)
        journal = store.reader.journal(digest=bench.digest)
    assert row.state == "verified"
    assert (words in row.reason) if words else ("autoscaler" not in row.reason)
    assert words in [entry.detail for entry in journal if entry.event == "verified"][-1]
    capsys.readouterr()
    assert main(["--quiet", "--store", store_url, "savings", "--format=json"]) == 0
    assert words in capsys.readouterr().out
