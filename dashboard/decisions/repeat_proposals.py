"""Proposals that outlive the plan that made them: every cycle proposes anew, under new ids."""

from datetime import datetime

from data.records.lifecycle import State
from data.records.recommendations import Recommendation
from data.store import Store, StoredRecommendation


def as_proposed_now(store: Store, id_or_digest: str, now: datetime) -> StoredRecommendation:
    """Return a recommendation, or the same change as the newest plan proposes it.

    Errors: StoreError.
    """
    stored = store.reader.recommendation(id_or_digest, now=now)
    if stored.state != State.SUPERSEDED:
        return stored
    newest = store.reader.proposed_again(stored, now=now)
    again = (
        newer for newer in newest if is_proposed_by(newer.recommendation, stored.recommendation)
    )
    return next(again, stored)


def is_proposed_by(newer: Recommendation, older: Recommendation) -> bool:
    """Return whether a newer recommendation proposes what was shown.

    It does if it changes the same from the same, and its saving lies within the range that was
    shown: figures of two cycles differ by noise. Advice changes nothing by itself: it is the same
    as long as it is given.
    """
    if not newer.is_like(older):
        return False
    before, after = older.savings.cost, newer.savings.cost
    if before is None or after is None:
        return newer.is_advice or before is after
    return newer.is_advice or before.low <= after.central <= before.high
