"""The service that takes decisions, from page and command line alike.

Everything is asked under the settings of the moment, and nothing here touches a cluster except to
look: apply and rollback are commands that the worker carries out.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from threading import Thread

from dashboard.apply import applier_for, build_appliers
from dashboard.apply.contract.applier import Applier
from dashboard.apply.contract.kill_switch import Stopped, resume, stop, version_of
from dashboard.apply.contract.shared_kill_switch import (
    RESUME,
    STOP,
    SWITCH_NOTES,
    ask,
    is_stopped,
    note_stop,
)
from dashboard.apply.worker.prepare import change_of
from dashboard.common.rights import decision_refusal, may_see, require_admin, role_of
from dashboard.decisions import approvals, findings
from dashboard.decisions.checks import DecisionContext, allowed
from dashboard.decisions.decision_table import WishKind
from dashboard.decisions.repeat_proposals import as_proposed_now
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError, NotAllowedError, StalePlanError, TrimtabError
from data.records.changes import Change, Rehearsal
from data.records.commands import Person
from data.records.findings import DismissalReason, FindingEvent
from data.records.lifecycle import State
from data.records.recommendations import Approval, Decision, Recommendation
from data.settings.all_settings import Settings
from data.store import Store, StoredRecommendation
from data.store.record.commands import CommandRequest
from data.store.record.tokens import ApiToken

logger = logging.getLogger(__name__)

MAX_TOKEN = timedelta(days=366)
_NOTE_SECONDS = 0.5
"""So long a stop waits for its place in the record before it is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The change as it would be made now, and what the target says to it."""

    change: Change
    rehearsal: Rehearsal


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionService:
    """Decisions, commands and the kill switch. Every method raises TrimtabError to refuse."""

    store: Store
    settings: Callable[[], Settings]
    appliers: Callable[[Settings], tuple[Applier, ...]] = build_appliers
    clock: Callable[[], datetime] = utc_now

    def decide(
        self,
        digest: str,
        decision: Decision,
        person: Person,
        comment: str = "",
        change_digest: str = "",
        reason: DismissalReason | None = None,
    ) -> str:
        """Approve, reject for a reason, or keep; give the digest that it was about."""
        who = self._deciding(person)
        if decision is Decision.APPROVED:
            return approvals.approve(
                self.store, digest, comment=comment, change_digest=change_digest, **who
            ).digest
        if decision is Decision.REJECTED:
            return approvals.reject(
                self.store, digest, comment=comment, reason=reason, **who
            ).digest
        return approvals.keep(self.store, digest, comment=comment, **who).digest

    def _deciding(self, person: Person) -> DecisionContext:
        return {"by": person, "now": self.clock(), "access": self.settings().access}

    def stored(self, digest: str) -> StoredRecommendation:
        """Return a recommendation as it stands now. Errors: NotKnownError."""
        return self.store.reader.recommendation(digest, now=self.clock())

    def snooze(
        self, digest: str, until: datetime, person: Person, comment: str = ""
    ) -> FindingEvent:
        """Keep the finding of a recommendation from being proposed before a time."""
        who = self._deciding(person)
        return findings.snooze(self.store, digest, until=until, comment=comment, **who)

    def reopen(self, digest: str, person: Person, comment: str = "") -> FindingEvent:
        """Let what was snoozed, rejected or undone be proposed again."""
        return findings.reopen(self.store, digest, comment=comment, **self._deciding(person))

    def apply(
        self, digest: str, person: Person, approval: Approval | None = None
    ) -> CommandRequest:
        """Ask for an approved change to be made; `approval` is one of the same transaction."""
        appliers, who = self.appliers(self.settings()), self._deciding(person)
        return approvals.ask_to_apply(
            self.store, digest, appliers=appliers, approval=approval, **who
        )

    def approve_and_apply(
        self, digest: str, person: Person, comment: str = "", change_digest: str = ""
    ) -> CommandRequest:
        """Approve what is still only proposed, and ask for it: the second of two clicks too."""
        stored = as_proposed_now(self.store, digest, self.clock())
        if stored.state == State.PROPOSED:
            who = self._deciding(person)
            allowed(self.store, digest, WishKind.APPROVE_AND_APPLY, **who)
            if not self.can_apply(stored.recommendation):
                raise ChangeRefusedError(
                    "no applier that is switched on makes this change",
                    "Approve it and write the change file.",
                )
            try:
                with self.store.together():
                    approval = approvals.approve(
                        self.store, digest, comment=comment, change_digest=change_digest, **who
                    )
                    return self.apply(approval.digest, person, approval)
            except StalePlanError:
                # Another click, of this tab or another, may have decided since the look above.
                if self.stored(digest).state == State.PROPOSED:
                    raise
        return self.apply(digest, person)

    def roll_back(self, digest: str, person: Person, *, again: bool = False) -> CommandRequest:
        """Ask for the change to be undone, with `again` for its rollback to be undone."""
        who = self._deciding(person)
        return approvals.ask_to_roll_back(self.store, digest, again=again, **who)

    def write_change(self, digest: str, person: Person) -> Path:
        """Write the change file of an approved recommendation; give its path."""
        folder, who = Path(self.settings().apply.directory), self._deciding(person)
        return approvals.write_approved(self.store, digest, folder=folder, **who)

    def change_text(self, digest: str) -> str:
        """Return the text of the change file, from the store alone."""
        stored = self.stored(digest)
        return approvals.preview(self.store.reader, stored.recommendation).text

    def preview(self, digest: str, person: Person) -> Preview:
        """Look at the target and give the change as it would be made, to who may decide about it.

        It asks the cluster, and rehearses there, by the account that makes changes. Errors:
        ApplyError.
        """
        stored = self.stored(digest)
        recommendation = stored.recommendation
        refusal = self.why_not(person, recommendation, approving=stored.state == State.PROPOSED)
        if refusal:
            raise ChangeRefusedError(refusal, "Who may decide looks at the target.")
        applier = applier_for(self.appliers(self.settings()), recommendation)
        if applier is None:
            raise ChangeRefusedError(
                "no applier that is switched on makes this change",
                "The change file shows what a person would do.",
            )
        change = change_of(applier, recommendation, self.store.reader)
        return Preview(change=change, rehearsal=applier.rehearse(change))

    def will_apply(self, reference: str) -> bool:
        """Return whether an apply was asked for, or a worker would carry it out."""
        stored = self.stored(reference)
        commands = self.store.reader.commands(stored.recommendation.digest)
        return bool(commands) or self.can_apply(stored.recommendation)

    def can_apply(self, recommendation: Recommendation) -> bool:
        """Return whether a worker would carry the change out, stopped or not."""
        return applier_for(self.appliers(self.settings()), recommendation) is not None

    def why_not(
        self, person: Person, recommendation: Recommendation, *, approving: bool = False
    ) -> str:
        """Return the reason that the person may not decide about it, '' for none."""
        job = self.store.reader.job(recommendation.job_id)
        access = self.settings().access
        return decision_refusal(person, access, recommendation, job, approving=approving)

    def visible(
        self, person: Person, revisions: Sequence[StoredRecommendation]
    ) -> tuple[StoredRecommendation, ...]:
        """Return those of the recommendations that the person may see."""
        access = self.settings().access
        is_owner = role_of(person, access) == "owner"
        ids = {revision.recommendation.job_id for revision in revisions if is_owner}
        jobs = self.store.reader.jobs_of(ids) if ids else {}
        return tuple(
            revision
            for revision in revisions
            for proposal in (revision.recommendation,)
            if may_see(person, access, proposal, jobs.get(proposal.job_id))
        )

    def make_token(
        self, *, holder: str, role: str, lasts: timedelta, person: Person
    ) -> tuple[ApiToken, str]:
        """Make a token of the API, as an admin; give it with its text, which is not kept.

        Errors: NotAllowedError, ChangeRefusedError.
        """
        self._require_token_admin(person)
        if not timedelta(0) < lasts <= MAX_TOKEN:
            raise ChangeRefusedError(
                f"a token cannot last {lasts / timedelta(days=1):g} days",
                f"Give more than 0 and at most {MAX_TOKEN.days} days.",
            )
        if not holder or holder != holder.strip() or not holder.isprintable():
            raise ChangeRefusedError(
                f"{holder[:100]!a} is no name", "Name who acts by it, as the sign-in would."
            )
        now = self.clock()
        return self.store.tokens.make(
            holder=holder,
            role=role,
            expires_at=now + lasts,
            by=person,
            now=now,
            mode=self.settings().access.mode,
        )

    def revoke_token(self, token_id: str, person: Person) -> ApiToken:
        """Let nobody in by a token any more. Errors: NotAllowedError, NotKnownError."""
        self._require_token_admin(person)
        return self.store.tokens.revoke(token_id, by=person, now=self.clock())

    def tokens(self, person: Person) -> tuple[ApiToken, ...]:
        """Return every token, the newest first, to an admin. Errors: NotAllowedError."""
        self._require_token_admin(person)
        return self.store.reader.tokens()

    def _require_token_admin(self, person: Person) -> None:
        require_admin(person, self.settings().access, what="make, list and revoke tokens")
        if person.via == "token":
            raise NotAllowedError(
                "no token makes, lists or revokes tokens", "An admin does it: `trimtab token make`."
            )
        if not person.name.strip():
            raise NotAllowedError(
                "this needs the name of the admin who does it",
                "Give --by NAME; in a request the header X-Trimtab-By.",
            )

    def stopped(self) -> Stopped | None:
        """Tell whether applying is stopped, by whom and why."""
        return is_stopped(Path(self.settings().apply.stop_file), self.store)

    def stop(self, person: Person, reason: str = "") -> Stopped:
        """Stop all applying at once: whoever is let in may."""
        path = Path(self.settings().apply.stop_file)
        at = self.clock()
        state = stop(path, by=person.actor, reason=reason, at=at)

        def note() -> None:
            try:
                # Noted here: a stop may be over before the worker looks, which then finds it noted.
                with SWITCH_NOTES:
                    ask(self.store, STOP, by=person.actor, at=at, reason=reason)
                    note_stop(self.store, state, at=at, actor=person.actor)
            except TrimtabError as error:  # no applier works without the store either
                logger.warning("applying is stopped, and the record does not say so yet: %s", error)

        # The file is in force. A cycle may hold the store's one writer for many seconds; on a
        # server the wish itself is in the record, whose writers cycles do not hold.
        noting = Thread(target=note, name="trimtab-stop-note")
        noting.start()
        noting.join(None if self.store.is_shared else _NOTE_SECONDS)
        return state

    def resume(self, person: Person) -> bool:
        """Let applying go on, as an admin; tell whether it was stopped."""
        settings = self.settings()
        require_admin(person, settings.access)
        path = Path(settings.apply.stop_file)
        state_before = self.stopped()
        with SWITCH_NOTES:
            with self.store.together():
                version, state = version_of(path), self.stopped()
                if state is None:
                    return False
                if state != state_before:
                    raise ChangeRefusedError(
                        f"{state.describe()}, after you asked to resume",
                        "Read why, and resume again.",
                    )
                # Noted first, a stop by a file too: the worker may not have looked since.
                note_stop(self.store, state, at=self.clock())
                self.store.append_audit(
                    at=self.clock(), actor=person.actor, event="resumed", digest="", detail=""
                )
                ask(self.store, RESUME, by=person.actor, at=self.clock())
            resume(path, version)
        return True
