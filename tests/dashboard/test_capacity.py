"""How many boards to keep: against every other number, on a store, by the command."""

import json
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from factories import H100, NOW, make_collected, make_job, make_samples
from hypothesis import given
from hypothesis import strategies as st
from waiting_jobs import waiting_jobs

from dashboard.accounting.facility.capacity import (
    HOURS_PER_MONTH,
    MIN_HOURS,
    CapacityRow,
    HourPrices,
    boards_to_keep,
    capacity_rows,
    cost_per_hour,
)
from dashboard.cli import main
from data.facts.jobs import JobState, Platform, SchedulerFacts
from data.settings.all_settings import Settings
from data.settings.statements import GpuPrice, StatementSettings
from data.store import Store, open_store

DAYS = MIN_HOURS // 24 + 1
PRICED = Settings(
    statement=StatementSettings(
        prices=(
            GpuPrice(gpu_model=H100, per_gpu_hour=2.0, kind="committed"),
            GpuPrice(gpu_model=H100, per_gpu_hour=5.0),
        )
    )
)


@given(
    hours=st.lists(st.floats(0, 40, allow_nan=False), min_size=1, max_size=60).map(np.array),
    kept=st.floats(0.01, 10),
    missing=st.floats(0, 50),
    step=st.sampled_from([1, 2, 4, 8]),
)
def test_no_other_number_costs_less(
    hours: np.ndarray, kept: float, missing: float, step: int
) -> None:
    """The oracle tries every multiple of the step up to the peak."""
    prices = HourPrices(board=kept, missing=missing)
    chosen = boards_to_keep(hours, prices, step=step)
    assert chosen % step == 0
    others = range(0, int(hours.max()) + 2 * step, step)
    best = min(cost_per_hour(boards, hours, prices) for boards in others)
    assert cost_per_hour(chosen, hours, prices) == pytest.approx(best)


def rows_of(url: str, settings: Settings, *, days: int = DAYS) -> tuple[CapacityRow, ...]:
    """Return the rows of 4 boards of which one job held two, while another waited for four."""
    samples = make_samples(gpus=4, minutes=days * 24 * 60)
    samples.loc[samples["gpu_uuid"] > "GPU-0001", "job_id"] = ""
    with open_store(url) as store:
        store.keep(make_collected(samples=samples, jobs=waiting_jobs(NOW)))
        return capacity_rows(store.reader, settings)


def test_demand_is_what_was_held_and_waited_for(store_url: str) -> None:
    """Half an hour of 4 GPUs and ten minutes of 2 were waited for; a held job waits for none."""
    (row,) = rows_of(store_url, PRICED)
    assert row.boards == row.boards_per_node == 4
    assert row.hours_known == pytest.approx(DAYS * 24, abs=1)
    assert row.waited_gpu_hours == pytest.approx(4 * 30 / 60 + 2 * 10 / 60)
    assert row.demand_mean == pytest.approx(2 + row.waited_gpu_hours / row.hours_known)
    assert (row.kept_price, row.missing_price) == (2.0, 5.0)
    # Two boards all the time: 4 kept cost 8 an hour, none 10 and what was waited for.
    assert row.to_keep == 4
    assert row.cost_kept == row.cost_now
    assert row.cost_now == pytest.approx(HOURS_PER_MONTH * 8, rel=0.01)
    assert row.advice == "keep 4"


def test_a_day_without_a_board_is_unknown_of_its_model_alone(store: Store) -> None:
    """The job that held it goes on after it; what waits for the other model counts all the time."""
    minutes = DAYS * 24 * 60
    samples = make_samples(gpus=3, minutes=minutes)
    samples.loc[samples["gpu_uuid"] > "GPU-0000", "gpu_model"] = "A100-SXM4-80GB"
    since = NOW - timedelta(hours=60)
    is_away = (samples["sampled_at"] >= since) & (samples["sampled_at"] < since + timedelta(days=1))
    samples = samples[~(is_away & (samples["gpu_uuid"] == "GPU-0001"))].reset_index(drop=True)
    waiting = make_job(
        "search/next",
        scheduler=SchedulerFacts(
            submitted_at=since + timedelta(hours=2), started_at=since + timedelta(hours=5)
        ),
    )
    store.keep(make_collected(samples, (make_job(gpu_count=3), waiting)))
    rows = {row.gpu_model: row for row in capacity_rows(store.reader, Settings())}
    assert rows[H100].hours_known == rows["A100-SXM4-80GB"].hours_known + 24
    assert rows[H100].waited_gpu_hours == 3
    assert rows["A100-SXM4-80GB"].demand_mean == pytest.approx(2)


@pytest.mark.parametrize("cluster", ["", "@pune"])
@pytest.mark.parametrize("days", [2, MIN_HOURS // 24 + 1])
def test_hours_before_a_model_came_are_no_demand_of_nothing(
    store: Store, cluster: str, days: int
) -> None:
    """Boards that came after others are asked for since then; of two days nothing is advised."""
    samples = make_samples(gpus=4, minutes=2 * DAYS * 24 * 60)
    new = samples["gpu_uuid"] > "GPU-0001"
    samples.loc[new, ["gpu_model", "node", "job_id"]] = [
        "A100-SXM4-80GB",
        f"new-1{cluster}",
        f"ml/job{cluster}",
    ]
    samples = samples[~new | (samples["sampled_at"] > NOW - timedelta(days=days))]
    store.keep(make_collected(samples, (make_job(gpu_count=2), make_job(f"ml/job{cluster}"))))
    rows = {row.gpu_model: row for row in capacity_rows(store.reader, Settings())}
    row = rows[f"A100-SXM4-80GB{cluster}"]
    assert row.hours_known == pytest.approx(days * 24, abs=1)
    assert row.demand_mean == pytest.approx(2)
    assert (row.to_keep, row.to_keep_low) == ((None, None) if days == 2 else (2, 2))


@pytest.mark.parametrize(
    ("reason", "wants"),
    [("Resources", True), ("Priority", True), ("None", True), ("SchedDefer", True),
     ("Unschedulable", True), ("JobHeldAdmin", False), ("DependencyNeverSatisfied", False),
     ("JobArrayTaskLimit", False), ("ReqNodeNotAvail", False), ("PartitionDown", False),
     ("QOSMaxGRESPerUser", False), ("AssocGrpGRES", False), ("MaxGRESPerAccount", False),
     ("AssociationJobLimit", False), ("Licenses", False)],
)  # fmt: skip
def test_only_who_wants_boards_counts(store: Store, reason: str, wants: bool) -> None:
    """No board more starts a job that a limit, a licence or a node keeps back."""
    facts = SchedulerFacts(
        state=JobState.PENDING, reason=reason, submitted_at=NOW - timedelta(hours=3)
    )
    job = make_job("slurm:9", platform=Platform.SLURM, gpu_count=2, scheduler=facts)
    store.keep(make_collected(make_samples(minutes=6 * 60), (job, make_job())))
    (row,) = capacity_rows(store.reader, Settings())
    assert row.waited_gpu_hours == pytest.approx(6 * wants)


@pytest.mark.parametrize("reason", ["", "BeginTime"])
def test_the_waits_before_a_requeue_count(store: Store, reason: str) -> None:
    """With the GPUs and the model of then; accounting keeps BeginTime of each requeued run."""
    day = timedelta(days=1)
    runs = ((2 * day, 4, H100, 2.0), (day, 2, H100, 3.0), (day / 2, 8, "A100-SXM4-80GB", 5.0))
    samples = make_samples(gpus=2, minutes=DAYS * 24 * 60)
    samples.loc[samples["gpu_uuid"] > "GPU-0000", "gpu_model"] = "A100-SXM4-80GB"
    store.keep(make_collected(samples))
    for ago, gpus, model, hours in runs:
        came = NOW - ago
        facts = SchedulerFacts(
            reason=reason, submitted_at=came, started_at=came + timedelta(hours=hours)
        )
        job = make_job(
            "slurm:9",
            platform=Platform.SLURM,
            gpu_model=model,
            gpu_count=gpus,
            last_seen_at=came + timedelta(hours=hours),
            scheduler=facts,
        )
        store.keep(make_collected(samples[:0], (job,), batch_id=str(ago)))
    rows = {row.gpu_model: row.waited_gpu_hours for row in capacity_rows(store.reader, Settings())}
    assert rows == {H100: pytest.approx(4 * 2 + 2 * 3), "A100-SXM4-80GB": pytest.approx(8 * 5)}


def test_unknown_is_said(tmp_path: Path) -> None:
    """Without a week of demand or without a price there is no number, and the reason stands."""
    (short,) = rows_of(f"duckdb:///{tmp_path}/a.duckdb", PRICED, days=2)
    assert (short.to_keep, short.cost_now, short.to_keep_low) == (None, None, None)
    assert "hours of demand are known" in short.advice
    other = StatementSettings(prices=(GpuPrice(gpu_model="A100-SXM4-80GB", per_gpu_hour=1.0),))
    (unpriced,) = rows_of(f"duckdb:///{tmp_path}/b.duckdb", Settings(statement=other))
    assert (unpriced.to_keep, unpriced.kept_price) == (None, None)
    assert "statement.prices" in unpriced.advice


def test_the_command_lists_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the catalogue's price a missing GPU-hour costs what planning.shortfall_weight says."""
    url = f"duckdb:///{tmp_path}/store.duckdb"
    (row,) = rows_of(url, Settings())
    assert main(["--quiet", "--store", url, "capacity", "--format=json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["to_keep"] == row.to_keep
    assert listed["prices_from"].endswith("20 times as much (planning.shortfall_weight)")
    assert main(["--quiet", "--store", f"duckdb:///{tmp_path}/none.duckdb", "capacity"]) != 0
