"""What boards showed, kept once whatever the order in which it came."""

from datetime import datetime, timedelta
from itertools import permutations

import pandas as pd
import pytest
from factories import NOW, make_collected, make_samples

from data.settings.all_settings import RetentionSettings
from data.store import Store, open_store

_NAMES = ["gpu_uuid", "xid", "node", "gpu_index", "first_seen_at", "last_seen_at"]
OLD = NOW - timedelta(days=400)


def shown(xid: int, first: int, last: int, *, board: str = "GPU-0000", node: str = "n1") -> tuple:
    """A code that a board showed from `first` to `last`, minutes before NOW."""
    times = (NOW - timedelta(minutes=number) for number in (first, last))
    return (board, xid, node, "0", *times)


def keep(store: Store, *rows: tuple, name: str) -> None:
    """Keep rows as one batch."""
    frame = pd.DataFrame(rows, columns=_NAMES)
    for column in ("first_seen_at", "last_seen_at"):
        frame[column] = pd.to_datetime(frame[column], utc=True).dt.as_unit("us")
    store.keep(make_collected(make_samples(minutes=2), xids=frame, batch_id=name))


def known(store: Store, since: datetime = OLD) -> list[tuple]:
    """What is kept."""
    return [
        tuple(itertuple)
        for itertuple in store.reader.board_xids(since=since).itertuples(index=False)
    ]


PARTS = {
    "a": (shown(0, 60, 50), shown(31, 40, 30)),
    "b": (shown(31, 35, 20), shown(79, 10, 5)),
    "c": (shown(79, 6, 0, node="n2"), shown(13, 60, 0, board="GPU-0001")),
}
WHOLE = [
    shown(79, 10, 0, node="n2"),
    shown(31, 40, 20),
    shown(0, 60, 50),
    shown(13, 60, 0, board="GPU-0001"),
]


@pytest.fixture
def filled(store: Store) -> Store:
    """A store that was told everything in order."""
    for name, rows in PARTS.items():
        keep(store, *rows, name=name)
    return store


def test_a_board_has_one_row_per_code(filled: Store) -> None:
    """From its first to its last time, the latest code first, where it was last seen."""
    assert known(filled) == WHOLE


@pytest.mark.parametrize("order", list(permutations(PARTS)))
def test_order_and_repeats_do_not_show(tmp_path_factory, order: tuple[str, ...]) -> None:
    """Late, early, twice and in pieces: the same rows."""
    with open_store(f"duckdb:///{tmp_path_factory.mktemp('xids')}/t.duckdb") as store:
        for turn in (1, 2):
            for name in order:
                keep(store, *PARTS[name], name=f"{name}{turn}")
        assert known(store) == WHOLE


def test_only_what_was_shown_since_then_is_given(filled: Store) -> None:
    """A code that another has replaced long ago is left out."""
    assert known(filled, NOW - timedelta(minutes=15)) == [WHOLE[0], WHOLE[3]]


def test_a_board_of_which_nobody_reports_has_no_row(store: Store) -> None:
    """Unknown is not 'no error'."""
    store.keep(make_collected())
    assert known(store) == []


def test_retention_forgets_codes_that_are_no_longer_shown(filled: Store) -> None:
    """A code goes with the five-minute roll-ups of its last time."""
    retention = RetentionSettings(raw_days=1, five_minute_days=1, hourly_days=30)
    deleted = filled.forget(retention, NOW + timedelta(days=1, minutes=-15))
    assert deleted["board_xids"] == 0
    deleted = filled.forget(retention, NOW + timedelta(days=2))
    assert deleted["board_xids"] == 4
    assert known(filled) == []
