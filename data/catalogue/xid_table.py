"""Meanings of common XID codes of NVIDIA's driver, and the next step for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from data.catalogue.shipped_rows import shipped_records

NO_ERROR = 0
"""Code of a board before its first error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidMeaning:
    """One code: whom it concerns (job, board, link, node or unknown), what happened, what to do.

    It is urgent when nothing that runs on the board now can be trusted to go on.
    """

    xid: int
    concerns: str
    what: str
    next_step: str
    urgent: bool = False


@cache
def _shipped() -> Mapping[int, XidMeaning]:
    rows = shipped_records(XidMeaning, "xid_errors.csv")
    return MappingProxyType({row.xid: row for row in rows})


def meaning_of(xid: int) -> XidMeaning:
    """Return the meaning of a code; one that is not in the table says where to look."""
    meaning = _shipped().get(xid)
    return meaning or XidMeaning(
        xid=xid,
        concerns="unknown",
        what="a code that this table does not hold",
        next_step="look it up in NVIDIA's Xid catalogue; the node's kernel log has the details",
    )
