"""Numbers for people have three digits, and ranges one last digit."""

from dataclasses import replace

import pytest
from factories import make_recommendation
from hypothesis import given
from hypothesis import strategies as st

from dashboard.common.figures import (
    figure_text,
    range_text,
    range_texts,
    samples_text,
    short_name,
    target_text,
)
from data.records.recommendations import Range


def between(low: float, central: float, high: float) -> Range:
    """A range in kWh."""
    return Range(low=low, central=central, high=high, unit="kWh")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.123456, "0.123"),
        (12.345, "12.3"),
        (999.4, "999"),
        (1234.5, "1,234"),
        (-1999.6, "-2,000"),
        (1e-5, "1e-05"),
    ],
)
def test_three_digits(value: float, text: str) -> None:
    """Whole from a thousand on."""
    assert figure_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (between(9.8, 12.4, 15.1), "12.4 (9.8–15.1) kWh"),
        (between(-0.609, -0.00425, 2.34), "0 (-0.61 to 2.34) kWh"),
        (between(60.0, 60.0, 60.64), "60 (60–60.6) kWh"),
        (between(940.2, 1512.3, 2198.0), "1,512 (940–2,198) kWh"),
        (between(-1900.0, -20.4, -1.6), "-20 (-1,900 to -2) kWh"),
        (between(0.0, 0.0, 0.0), "0 kWh"),
        (between(0.00012, 0.00034, 0.00056), "0.00034 (0.00012–0.00056) kWh"),
        (None, "—"),
    ],
)
def test_a_range_has_the_last_digit_of_its_largest(value: Range | None, text: str) -> None:
    """A central value far below its own bounds is zero for all that is known."""
    assert range_text(value) == text


def test_low_central_high() -> None:
    """In that order."""
    assert range_texts(between(1.0, 2.0, 3.0)) == ("1", "2", "3")


@given(name=st.text(), limit=st.integers(2, 60))
def test_a_short_name_keeps_both_ends(name: str, limit: int) -> None:
    """A name that fits stays; of a longer one its beginning and its end are there."""
    short = short_name(name, limit)
    assert len(short) <= limit
    if len(name) <= limit:
        assert short == name
    else:
        head = limit // 2
        assert len(short) == limit
        assert name.startswith(short[:head])
        assert short[head] == "…"
        assert name.endswith(short[head + 1 :])


@pytest.mark.parametrize(
    ("job_id", "name", "text"),
    [
        ("slurm:3", "train-llm", "train-llm (slurm:3)"),
        ("search/ranker-0", "ranker", "search/ranker-0"),
        ("slurm:3", "", "slurm:3"),
        ("", "H100-SXM5-80GB", "H100-SXM5-80GB"),
    ],
)
def test_a_target_is_named_by_the_name_that_its_owner_knows(
    job_id: str, name: str, text: str
) -> None:
    """An id of Slurm says nothing to who wrote the job; a pod's holds the name."""
    assert target_text(make_recommendation(job_id=job_id, job_name=name)) == text


def test_evidence_without_samples_says_so() -> None:
    """Advice on a fleet without jobs rests on no sample: a window of 0 minutes means nothing."""
    evidence = make_recommendation().evidence
    assert samples_text(evidence).endswith("% complete")
    assert samples_text(replace(evidence, samples=0)) == "none: it rests on no job's samples"
