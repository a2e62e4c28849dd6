"""Readings of inference engines, as the store keeps them."""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
from factories import NOW

from data.facts.columns import SERVING, check_frame


def served(
    rates: np.ndarray, *, label: str = "search/ranker-0", end: datetime = NOW, **columns: object
) -> pd.DataFrame:
    """A replica that takes these requests a second, 4 s each, by slots of five minutes."""
    starts = [end - timedelta(minutes=5 * slot) for slot in range(len(rates), 0, -1)]
    values: dict[str, object] = {
        "slot_start": pd.to_datetime(starts, utc=True).as_unit("us"), "label_id": label,
        "engine": "vllm", "model": "m", "address": "a", "running_requests": 4 * rates,
        "waiting_requests": 0.0, "finished_requests": 300 * rates,
        "request_seconds": 1200 * rates, "request_count": 300 * rates,
    }  # fmt: skip
    return check_frame(pd.DataFrame(values | columns), SERVING)
