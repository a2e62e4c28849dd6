"""Shared boards by use: by the work of each holder where it is known, in equal parts elsewhere."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from drawn import examples
from factories import H100, make_collected, make_job, make_samples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rollup_cases import allocations

from dashboard.accounting.cost.charges import SHARED
from dashboard.accounting.cost.statement import CostRow, CostStatement, make_cost_statement
from dashboard.accounting.energy.periods import PeriodLength
from data.facts.columns import SERVING, check_frame, empty_frame
from data.settings.all_settings import Settings
from data.settings.statements import GpuPrice, Invoice, StatementSettings
from data.store import Store, open_store

BEGIN = datetime(2026, 3, 2, 8, tzinfo=UTC)
SHARED_AT, END = BEGIN + timedelta(hours=2), BEGIN + timedelta(hours=4)
STEP = timedelta(minutes=5)
PRICE = 3.0
SETTINGS = Settings(
    statement=StatementSettings(
        prices=(GpuPrice(gpu_model=H100, per_gpu_hour=PRICE),),
        invoices=(Invoice(name="A-1", amount=40.0, start=BEGIN, end=END),),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A service: two hours alone at `busy`, then two beside others; tokens a slot, None untold."""

    busy: float
    alone: int | None
    beside: int | None

    @property
    def work(self) -> float | None:
        """The board-time that its tokens of the shared hours take alone, in its own unit."""
        if not self.alone or self.beside is None:
            return None
        return self.beside * self.busy / self.alone


HOLDERS = st.builds(
    Holder,
    busy=st.floats(0.05, 1.0),
    alone=st.none() | st.integers(0, 500),
    beside=st.none() | st.integers(0, 500),
)


def fill(store: Store, holders: list[Holder]) -> None:
    """Keep the four hours of services that meet on one board after two."""
    samples, spans, served = [], [], []
    jobs = [f"t{number}/deployment/s" for number in range(len(holders))]
    for job, holder in zip(jobs, holders, strict=True):
        for place, since, until, tokens in (
            ("own", BEGIN, SHARED_AT, holder.alone),
            ("all", SHARED_AT, END, holder.beside),
        ):
            board, pod = f"GPU-{job if place == 'own' else 'all'}", f"{job}-{place}"
            times = pd.date_range(since, until, freq=STEP).as_unit("us")
            samples.append(
                make_samples(
                    minutes=len(times),
                    sampled_at=times,
                    gpu_uuid=board,
                    job_id=pod,
                    utilization_ratio=holder.busy if place == "own" else 0.6,
                )
            )
            spans.append(
                {
                    "job_id": job,
                    "label_id": pod,
                    "gpu_uuid": board,
                    "node": "node-1",
                    "started_at": since,
                    "seen_at": until,
                    "source": "test",
                }
            )
            if tokens is not None:
                slots = pd.date_range(since, until, freq=STEP, inclusive="left")
                served.append(
                    pd.DataFrame({"slot_start": slots, "label_id": pod, "engine": "vllm"}).assign(
                        generation_tokens=float(tokens)
                    )
                )
    serving = pd.concat(served, ignore_index=True) if served else empty_frame(SERVING)
    serving["slot_start"] = serving["slot_start"].astype("datetime64[us, UTC]")
    store.keep(
        make_collected(
            pd.concat(samples, ignore_index=True),
            tuple(make_job(job, namespace=job.partition("/")[0]) for job in jobs),
            allocations=allocations(*spans),
            serving=check_frame(serving, SERVING),
        )
    )


def statement(
    store: Store, *by: str, every: PeriodLength = PeriodLength.TOTAL, is_coarse: bool = False
) -> CostStatement:
    """The statement of the four hours."""
    return make_cost_statement(
        store.reader, SETTINGS, start=BEGIN, end=END, by=by, every=every, is_coarse=is_coarse
    )


def by_use(holders: list[Holder]) -> list[float]:
    """The oracle: the board-hours of each holder beside the others, by use."""
    equal = 2 / len(holders)
    known = [holder.work for holder in holders if holder.work is not None]
    if len(known) < 2 or not sum(known):
        return [equal] * len(holders)
    room = equal * len(known) / sum(known)
    return [equal if one.work is None else one.work * room for one in holders]


def total(rows: tuple[CostRow, ...]) -> float:
    """What rows cost by use."""
    return sum(row.use_cost or 0.0 for row in rows)


def check(store: Store, holders: list[Holder]) -> None:
    """Each holder's cost by use is the oracle's, and every grouping is what by share is."""
    fill(store, holders)
    bill = statement(store, "job", "state")
    shares = [row for row in bill.rows if row.names[1] == SHARED]
    read = sum(holder.work is not None for holder in holders) > 1
    for row, holder, hours in zip(shares, holders, by_use(holders), strict=True):
        assert row.gpu_cost == pytest.approx(PRICE * 2 / len(holders), rel=1e-6)
        assert row.use_cost == pytest.approx(PRICE * hours, rel=1e-6, abs=1e-9)
        unread = 0.0 if read and holder.work is not None else row.shared_hours
        assert row.unread_hours == pytest.approx(unread)
    assert all(row.use_cost == row.gpu_cost for row in bill.rows if row.names[1] != SHARED)
    paid = bill.total.gpu_cost
    assert paid is not None
    for by in ("tenant", "job", "model", "board", "cluster"):
        made = statement(store, by)
        assert [total(made.rows), made.total.use_cost] == pytest.approx([paid, paid])
    assert total(statement(store, "job", every=PeriodLength.HOUR).rows) == pytest.approx(paid)
    coarse = statement(store, "tenant", is_coarse=True)
    whole = statement(store, "tenant")
    assert [row.use_cost for row in coarse.rows] == pytest.approx(
        [row.use_cost for row in whole.rows]
    )
    (invoice,) = whole.invoices
    electricity = whole.total.electricity_cost or 0.0
    assert total(whole.rows) + electricity + invoice.residual == pytest.approx(40.0)


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(holders=st.lists(HOLDERS, min_size=2, max_size=4))
def test_any_shared_board_is_paid_once(
    holders: list[Holder], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Known and unknown work, none at all, and services that never were alone."""
    folder = tmp_path_factory.mktemp("use")
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        check(store, holders)


def test_two_of_three_by_hand(tmp_path: Path) -> None:
    """Half as busy for as many tokens, and one that tells nothing keeps its third by name."""
    holders = [
        Holder(busy=0.4, alone=100, beside=100),
        Holder(busy=0.2, alone=100, beside=100),
        Holder(busy=0.9, alone=None, beside=None),
    ]
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        check(store, holders)
        rows = statement(store, "job", "state").rows
    shares = {row.names[0]: row for row in rows if row.names[1] == SHARED}
    costs = [row.use_cost for row in shares.values()]
    assert costs == pytest.approx([8 / 3, 4 / 3, 2.0], rel=1e-6)
    assert [row.unread_hours for row in shares.values()] == pytest.approx([0, 0, 2 / 3])


def test_of_half_an_hour_the_work_of_the_hour_counts(tmp_path: Path) -> None:
    """A range within an hour: its board-time, shared as the whole hour was."""
    holders = [Holder(busy=0.6, alone=100, beside=50), Holder(busy=0.6, alone=100, beside=150)]
    start = SHARED_AT + timedelta(minutes=10)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        fill(store, holders)
        made = make_cost_statement(
            store.reader, SETTINGS, start=start, end=start + timedelta(minutes=30), by=("job",)
        )
    assert [row.use_cost for row in made.rows] == pytest.approx([0.375, 1.125], rel=1e-6)
