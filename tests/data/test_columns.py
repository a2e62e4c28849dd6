"""Frames without rows are checked as others are, and each is its owner's own."""

import pandas as pd
import pytest

from data.facts.columns import ACTIVITY, SAMPLES, check_frame, empty_frame


def test_a_frame_without_rows_is_ones_own() -> None:
    """Whoever adds a column or a row to one changes no other."""
    changed = empty_frame(ACTIVITY)
    changed["further"] = 1.0
    changed.loc[0, "gpu_uuid"] = "GPU-0"
    again = empty_frame(ACTIVITY)
    assert tuple(again.columns) == ACTIVITY.names
    assert again.empty
    checked = check_frame(again, ACTIVITY)
    checked["further"] = 1.0
    assert tuple(again.columns) == ACTIVITY.names


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (empty_frame(SAMPLES).drop(columns="gpu_uuid"), "lacks the required column 'gpu_uuid'"),
        (empty_frame(SAMPLES).assign(further=1.0), "undeclared columns"),
        (
            empty_frame(SAMPLES).assign(sampled_at=pd.Series([], dtype="datetime64[us]")),
            "must be UTC-aware",
        ),
    ],
)
def test_a_frame_without_rows_may_be_wrong(frame: pd.DataFrame, words: str) -> None:
    """Its columns and their types are those that are declared."""
    with pytest.raises(ValueError, match=words):
        check_frame(frame, SAMPLES)


def test_missing_columns_of_a_frame_without_rows_are_added() -> None:
    """As they are to one with rows."""
    bare = empty_frame(SAMPLES)[sorted(SAMPLES.required)]
    assert check_frame(bare, SAMPLES).dtypes.equals(empty_frame(SAMPLES).dtypes)
