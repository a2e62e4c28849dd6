"""When replicas of a service had another engine, model, image, command or GPUs than those of now.

What a service carried then says nothing of what it carries now.
"""

from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.units import SLOT_SECONDS

_SLOT = pd.Timedelta(seconds=SLOT_SECONDS)
_VALUE = ["service", "value"]

Spans = dict[int, list[tuple[int, int]]]
"""By service: the first slot and the one after the last, slots since the epoch."""


def former_spans(engines: pd.DataFrame, runs: pd.DataFrame) -> Spans:
    """Return when replicas were read that differ from all that are read in the newest slot.

    `engines` are rows of ENGINES with their `service` and its `last_read`, `runs` those of RUNS:
    what a label ran from `since` on, the first of them from the beginning. Unknown is no
    difference.
    """
    told = engines.assign(
        value=engines["engine"] + "\0" + engines["model"],
        since=engines["oldest"],
        until=engines["newest"] + _SLOT,
    )
    labels = engines.groupby("label_id").agg(
        service=("service", "first"),
        last_read=("last_read", "first"),
        oldest=("oldest", "min"),
        newest=("newest", "max"),
    )
    ran = runs.rename(columns={"runs": "value"}).sort_values(["label_id", "since"])
    by_label = ran.groupby("label_id")["since"]
    ran["next"], is_first = by_label.shift(-1), by_label.cumcount() == 0
    ran = ran.assign(is_first=is_first).join(labels, on="label_id", how="inner")
    ended = ran["newest"] + _SLOT
    ran["until"] = ran["next"].fillna(ended).clip(upper=ended)
    ran["since"] = ran["since"].clip(lower=ran["oldest"]).mask(ran["is_first"], ran["oldest"])
    found: Spans = defaultdict(list)
    for spans in (told, ran[ran["since"] < ran["until"]]):
        for service, since, until in _former(spans).itertuples(index=False):
            found[service].append(
                (
                    int(since.timestamp()) // SLOT_SECONDS,
                    -int(-until.timestamp() // SLOT_SECONDS),
                )
            )
    return found


def _former(spans: pd.DataFrame) -> pd.DataFrame:
    """Return those whose value nothing has that was read in the newest slot of their service."""
    now = spans["until"] > spans["last_read"]
    current = pd.MultiIndex.from_frame(spans.loc[now, _VALUE])
    known = spans["service"].isin(spans.loc[now, "service"])
    is_current = pd.MultiIndex.from_frame(spans[_VALUE]).isin(current)
    return spans.loc[known & ~is_current, ["service", "since", "until"]]


def like_now(slots: npt.NDArray[np.int64], spans: list[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    """Tell which slots lie in none of the spans."""
    alike = np.ones(len(slots), dtype=bool)
    for first, after in spans:
        alike &= (slots < first) | (slots >= after)
    return alike
