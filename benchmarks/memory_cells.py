"""Cells of a measured row: missing ones are NaN in a frame and None here."""

from typing import Any

import pandas as pd


def number(value: Any) -> float | None:
    """Return a number, None when the cell is empty."""
    return None if pd.isna(value) else float(value)


def count(value: Any) -> int | None:
    """Return a whole number, None when the cell is empty."""
    return None if pd.isna(value) else int(value)


def text(value: Any) -> str:
    """Return a text, '' when the cell is empty."""
    return "" if pd.isna(value) else str(value)
