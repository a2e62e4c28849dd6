"""Spans of replicas with another engine, model, image, command or GPUs than those of now.

What a service carried then says nothing of what it carries now.
"""

from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.base.units import SLOT_SECONDS

_SLOT = pd.Timedelta(seconds=SLOT_SECONDS)
_LATELY, _DAY = pd.Timedelta(hours=2), pd.Timedelta(days=1)
"""Boards are told by the hour, of which the newest may lack some."""
_ROLLOUT = pd.Timedelta(hours=1)

Spans = dict[int, dict[int, list[tuple[int, int]]]]
"""By service and replica: the first slot and the one after the last, slots since the epoch."""


def former_spans(engines: pd.DataFrame, runs: pd.DataFrame) -> Spans:
    """Return the spans of each replica in which it was of a kind that its service has no more.

    `engines` are rows of ENGINES with their `service`, its `last_read` and the `replica`, `runs`
    those of RUNS: what a label ran from `since` on, the first of them from the beginning. Unknown
    is no difference, nor is what boards tell of some pods and their scheduler of others.
    """
    reports = engines.assign(
        value=engines["engine"] + "\0" + engines["model"],
        told_by="engines",
        since=engines["oldest"],
        until=engines["newest"] + _SLOT,
    )
    labels = engines.groupby("label_id").agg(
        service=("service", "first"),
        replica=("replica", "first"),
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
    by_service: Spans = defaultdict(lambda: defaultdict(list))
    for spans in (reports, ran[ran["since"] < ran["until"]]):
        for service, replica, since, until in _former(spans).itertuples(index=False):
            by_service[service][replica].append(
                (
                    int(since.timestamp()) // SLOT_SECONDS,
                    -int(-until.timestamp() // SLOT_SECONDS),
                )
            )
    return by_service


def _former(spans: pd.DataFrame) -> pd.DataFrame:
    """Return the spans whose kind, their value, is none of those that their service has now.

    It has those of the last two hours. Others of the last day count as well where one of these was
    there before they went, by more than a rollout takes: what comes by day alone is back tomorrow.
    """
    kinds = spans.groupby(["service", "told_by", "value"])
    came, went = kinds["since"].transform("min"), kinds["until"].transform("max")
    ago = spans["last_read"] - went
    began = came.where(ago < _LATELY).groupby([spans["service"], spans["told_by"]]).transform("min")
    overlap = went - began
    is_former = (ago >= _LATELY) & ((ago >= _DAY) | (overlap <= _ROLLOUT)) & began.notna()
    return spans.loc[is_former, ["service", "replica", "since", "until"]]


def like_now(
    slots: npt.NDArray[np.int64],
    replicas: npt.NDArray[np.float64],
    spans: dict[int, list[tuple[int, int]]],
) -> npt.NDArray[np.bool_]:
    """Return the slots in which at most half of the replicas there were of a former kind."""
    former = np.zeros(len(slots))
    for spans_of_one in spans.values():
        former += np.any(
            [(slots >= first) & (slots < after) for first, after in spans_of_one], axis=0
        )
    return former <= replicas / 2
