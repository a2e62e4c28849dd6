"""Proposals that outlive the plan that made them: every cycle proposes anew, under new ids."""

from datetime import datetime

from data.records.lifecycle import State
from data.store import Store, StoredRecommendation


def as_proposed_now(store: Store, id_or_digest: str, now: datetime) -> StoredRecommendation:
    """Return a recommendation, or the same change as the newest plan proposes it.

    It is the same proposal if it changes the same from the same, and its saving lies within the
    range that was shown: figures of two cycles differ by noise. Errors: StoreError.
    """
    stored = store.reader.recommendation(id_or_digest, now=now)
    if stored.state != State.SUPERSEDED:
        return stored
    shown = stored.recommendation.savings.cost
    for newer in store.reader.proposed_again(stored.recommendation, now=now):
        saving = newer.recommendation.savings.cost
        if shown is saving is None or (
            shown is not None and saving is not None and shown.low <= saving.central <= shown.high
        ):
            return newer
    return stored
