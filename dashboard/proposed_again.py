"""Proposals that outlive the plan that made them: every cycle proposes anew, under new ids."""

from datetime import datetime

from data.records.decisions import ADVICE
from data.records.lifecycle import State
from data.store import Store, StoredRecommendation


def as_proposed_now(store: Store, id_or_digest: str, now: datetime) -> StoredRecommendation:
    """Return a recommendation, or the same change as the newest plan proposes it.

    It is the same proposal if it changes the same from the same, and its saving lies within the
    range that was shown: figures of two cycles differ by noise. Advice changes nothing by itself:
    it is the same as long as it is given. Errors: StoreError.
    """
    stored = store.reader.recommendation(id_or_digest, now=now)
    if stored.state != State.SUPERSEDED:
        return stored
    shown = stored.recommendation.savings.cost
    for newer in store.reader.proposed_again(stored, now=now):
        saving = newer.recommendation.savings.cost
        if (
            newer.recommendation.action in ADVICE
            or shown is saving is None
            or (
                shown is not None
                and saving is not None
                and shown.low <= saving.central <= shown.high
            )
        ):
            return newer
    return stored
