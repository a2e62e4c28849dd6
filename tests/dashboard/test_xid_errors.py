"""XID errors as pages show them."""

from datetime import timedelta

import pandas as pd
import pytest
from factories import NOW

from dashboard.web.fleet.xid_errors import notable_errors, xid_texts
from data.catalogue.xid_table import meaning_of
from data.facts.columns import XIDS, check_frame, empty_frame

COMMON = (13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120)


def shown(*rows: tuple[str, int, float, float]) -> pd.DataFrame:
    """Codes of boards from so many to so many hours before NOW, as the store gives them."""
    frame = pd.DataFrame(
        [
            {
                "gpu_uuid": board,
                "xid": xid,
                "node": "n1",
                "gpu_index": board[-1],
                "first_seen_at": NOW - timedelta(hours=first),
                "last_seen_at": NOW - timedelta(hours=last),
            }
            for board, xid, first, last in rows
        ]
    )
    return check_frame(frame, XIDS)


EVENTS = shown(("GPU-0", 79, 2, 0), ("GPU-0", 0, 90, 2), ("GPU-1", 0, 90, 0), ("GPU-2", 13, 80, 0))


@pytest.mark.parametrize("xid", COMMON)
def test_the_common_codes_are_explained(xid: int) -> None:
    """What it is, whom it concerns, what to do next."""
    one = meaning_of(xid)
    assert one.concerns in ("job", "board", "link", "node")
    assert one.what
    assert one.next_step


def test_another_code_is_not_made_up() -> None:
    """It is shown as not known here, with where to look."""
    one = meaning_of(4711)
    assert (one.xid, one.concerns) == (4711, "unknown")
    assert "catalogue" in one.next_step


def test_a_board_shows_its_code_none_or_unknown() -> None:
    """The latest code counts; a board of which nobody reports stays unknown."""
    boards = pd.DataFrame({"gpu_uuid": ["GPU-1", "GPU-0", "GPU-9"]})
    assert xid_texts(boards, EVENTS).tolist() == ["none", "79", None]


def test_an_old_fault_of_a_job_is_nobodys_trouble() -> None:
    """A board still shows it; what concerns the board itself stays, however old."""
    day = NOW - timedelta(days=1)
    assert notable_errors(EVENTS, since=day)["xid"].tolist() == [79]
    old = shown(("GPU-0", 48, 500, 0), ("GPU-1", 31, 5, 0), ("GPU-2", 31, 50, 0))
    assert notable_errors(old, since=day)["gpu_uuid"].tolist() == ["GPU-1", "GPU-0"]
    assert notable_errors(empty_frame(XIDS), since=day).empty
