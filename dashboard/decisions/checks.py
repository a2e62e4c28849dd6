"""Checks common to every decision: the person's right, the finding, its state, and the log."""

import logging
from dataclasses import replace
from datetime import datetime
from typing import NotRequired, TypedDict, Unpack

from dashboard.common.replay_clock import require_live
from dashboard.common.rights import owns, require_right, role_of
from dashboard.decisions.decision_table import DECISIONS, WishKind
from dashboard.decisions.repeat_proposals import as_proposed_now
from data.base.errors import ChangeRefusedError, StalePlanError
from data.records.commands import Person
from data.settings.access import AccessSettings
from data.store import Store, StoredRecommendation
from data.store.handles.reader import unknown_recommendation

logger = logging.getLogger(__name__)
LOCAL = AccessSettings()


class DecisionContext(TypedDict):
    """The person, time and access settings of a decision; the settings are `LOCAL` by default."""

    by: str | Person
    now: datetime
    access: NotRequired[AccessSettings]


def require_person(by: str | Person) -> Person:
    """Return the person who decides, a typed name tidied. Errors: ChangeRefusedError for none."""
    person = Person(name=by) if isinstance(by, str) else by
    # A signed-in name is who it is, to the character; what was typed is tidied.
    signed_in = person.via in ("proxy", "oidc", "token")
    name = person.name if signed_in else " ".join(person.name.split())
    if not name.strip():
        raise ChangeRefusedError(
            "a decision needs the name of who makes it",
            "Give --by NAME; in a request the header X-Trimtab-By.",
        )
    return replace(person, name=name)


def log_decision(
    what: str, stored: StoredRecommendation, person: Person, comment: str = ""
) -> None:
    """Log who decided what."""
    recommendation = stored.recommendation
    logger.info(
        "%s by %s: %s of %s (%s, recommendation %s)%s",
        what,
        person.name,
        recommendation.action,
        recommendation.target,
        stored.reference,
        recommendation.recommendation_id,
        f": {comment}" if comment else "",
    )


def allowed(
    store: Store, id_or_digest: str, wish: WishKind, **who: Unpack[DecisionContext]
) -> tuple[StoredRecommendation, Person]:
    """Return the recommendation and the person, who has the right to this decision about it.

    Errors: StoreError, ChangeRefusedError.
    """
    stored = as_proposed_now(store, id_or_digest, who["now"])
    person, access = require_person(who["by"]), who.get("access", LOCAL)
    recommendation = stored.recommendation
    job = store.reader.job(recommendation.job_id)
    if role_of(person, access) == "owner" and not owns(person, access, recommendation, job):
        # What belongs to others is answered like what does not exist.
        raise unknown_recommendation(id_or_digest)
    require_right(person, access, recommendation, job, approving=DECISIONS[wish].approves)
    require_live(store.reader)
    return stored, person


def allowed_now(
    store: Store, id_or_digest: str, wish: WishKind, **who: Unpack[DecisionContext]
) -> tuple[StoredRecommendation, Person]:
    """Return what `allowed` does, of a recommendation in a state for it. Errors: StalePlanError."""
    stored, person = allowed(store, id_or_digest, wish, **who)
    row = DECISIONS[wish]
    if stored.state not in row.states | row.again:
        raise StalePlanError(
            f"recommendation {stored.recommendation.recommendation_id} is {stored.state}",
            row.refusal,
        )
    return stored, person
