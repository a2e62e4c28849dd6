"""Series: gaps unknown, outliers counted. Keys: runs of one job are recognised."""

import numpy as np
import pandas as pd
import pytest
from factories import make_job
from forecasting_cases import history
from hypothesis import given
from hypothesis import strategies as st

from data.facts.jobs import WorkloadKind
from data.records.forecasts import Quantity
from forecasting.forecast import borrowed
from forecasting.series.demand_series import DemandSeries, regular_series, winsorised
from forecasting.series.job_keys import job_key, lenders, name_stem


def series_of(rows: pd.DataFrame) -> DemandSeries:
    """The series of the GPUs of one job on slots of an hour, of which it has four."""
    starts = rows["slot_start"].to_numpy(dtype="datetime64[s]").astype(np.int64)
    amounts = rows["effective_gpus"].to_numpy(dtype=np.float64)
    return regular_series(starts, amounts, Quantity.EFFECTIVE_GPUS, slot_seconds=3600, upper=4.0)


def test_a_gap_stays_unknown() -> None:
    """An hour without a row is NaN between its neighbours."""
    rows = history("a/b", np.array([1.0, np.nan, 3.0]))
    found = series_of(rows)
    assert np.array_equal(found.values, [1.0, np.nan, 3.0], equal_nan=True)


def test_slots_at_the_limit_are_counted_as_censored() -> None:
    """A job that used all it had may have wanted more."""
    rows = history("a/b", np.array([1.0, 3.95, 4.0, 9.0, np.inf]))
    found = series_of(rows)
    assert found.censored == 3
    assert found.values[3] == 4.0
    assert np.isnan(found.values[4])


def test_a_lone_outlier_is_cut_down_and_counted() -> None:
    """One reading of a thousand times the rest goes; a level shift stays."""
    spiked = np.where(np.arange(300) == 70, 1e6, 100.0)
    values, count = winsorised(spiked)
    assert (values.max(), count) == (500.0, 1)
    shifted = np.where(np.arange(300) > 290, 1e6, 100.0)
    assert winsorised(shifted) == (pytest.approx(shifted), 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("train-bert-20260105", "train-bert-20260106"),
        ("train_bert_run3", "train-bert-run-4"),
        ("sweep-3f2a9c1", "sweep-77b1d02"),
        ("nightly-20260105T0300", "nightly-20260106T0300"),
        ("llama3-sft-v2", "llama3-sft-v3"),
        ("JOB 17", "job 18"),
    ],
)
def test_runs_of_one_job_share_a_stem(one: str, other: str) -> None:
    """Dates, hashes, versions and run numbers do not count."""
    assert name_stem(one) == name_stem(other)


@pytest.mark.parametrize(
    ("one", "other"), [("llama2-sft", "llama3-sft"), ("train", "serve"), ("123_4", "124_4")]
)
def test_different_jobs_do_not(one: str, other: str) -> None:
    """A digit inside the name counts, and a name of digits only is its own."""
    assert name_stem(one) != name_stem(other)


@given(st.text(max_size=60))
def test_any_name_has_a_stem(name: str) -> None:
    """Names come from labels and may hold anything."""
    assert isinstance(name_stem(name), str)


def test_lenders_are_sought_from_the_closest_on() -> None:
    """The same job first, then the same owner, then the same kind; a different model never."""
    new = make_job("ml/train-5", name="train-5", owner="ml")
    same = make_job("ml/train-4", name="train-4", owner="ml")
    owner = make_job("ml/other", name="other", owner="ml")
    kind = make_job("web/rank", name="rank", owner="web")
    training = make_job("web/fit", name="fit", owner="web", kind=WorkloadKind.TRAINING)
    elsewhere = make_job("ml/train-3", name="train-3", owner="ml", gpu_model="A100-SXM4-80GB")
    everyone = [new, same, owner, kind, training, elsewhere]
    assert lenders(new, everyone) == ("1 run of the same job", (same,))
    assert lenders(new, everyone[2:]) == ("1 run of the same owner", (owner,))
    assert lenders(new, everyone[3:]) == ("1 run of the same kind", (kind,))
    assert lenders(new, everyone[4:]) == ("", ())
    assert job_key(new) != job_key(elsewhere)


def test_each_lender_counts_the_same() -> None:
    """A month of one run does not drown a day of another."""
    found = borrowed(np.zeros(0), [np.full(720, 1.0), np.full(24, 3.0)], 2, lower=0.0, upper=8.0)
    assert found is not None
    assert (found.q10[0], found.q90[1]) == (1.0, 3.0)
    assert 1.0 < found.q50[0] < 3.0


def test_what_is_lent_spreads_wider_than_it_is_named() -> None:
    """Of values from 0 to 100: q10 and q90 are the 5 and 95 %, q05 and q95 the 2 and 98 %."""
    found = borrowed(np.zeros(0), [np.linspace(0, 100, 1001)], 1, lower=0.0, upper=200.0)
    assert found is not None
    rows = [found.q05[0], found.q10[0], found.q50[0], found.q90[0], found.q95[0]]
    assert rows == pytest.approx([2, 5, 50, 95, 98], abs=0.1)


def test_its_own_slots_count_as_they_grow() -> None:
    """With sixteen known slots a job's own spread weighs half."""
    lent = [np.full(100, 4.0)]
    halves = borrowed(np.full(16, 2.0), lent, 1, lower=0.0, upper=8.0)
    assert halves is not None
    assert halves.q50[0] == pytest.approx(3.0)
    assert borrowed(np.full(3, 1.0), [np.full(5, np.nan)], 1, lower=0.0, upper=8.0) is None
