"""One command in the worker's hands: what it may read, and how it writes under its lease."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from dashboard.apply import applier_for, appliers_near
from dashboard.apply.contract.applier import GIT_FACT, Applier
from dashboard.apply.contract.shared_kill_switch import is_stopped
from dashboard.apply.contract.wording import change_words
from data.base.errors import ApplyError
from data.records.changes import Change, StepResult
from data.records.commands import Command, CommandKind, JournalRow, Lease, Work
from data.records.lifecycle import LifecycleEvent
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.store import Store
from data.store.engine.record_json import from_json

logger = logging.getLogger(__name__)
LEASE_DURATION = timedelta(minutes=3)
"""Life of a lease: longer than any command to a target may take (60 s), so that whoever takes over
from a dead worker finds nothing of it still on the way."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A command under a lease, with the settings as they are in this moment."""

    store: Store
    settings: Callable[[], Settings]
    appliers: Callable[[Settings], tuple[Applier, ...]]
    clock: Callable[[], datetime]
    lease: Lease
    command: Command
    recommendation: Recommendation
    _prepared: list[Change] = field(default_factory=list, init=False)

    @property
    def words(self) -> str:
        """The command as logs call it."""
        its_id = self.recommendation.recommendation_id
        what = change_words(self.recommendation, back=self.success() is LifecycleEvent.ROLLED_BACK)
        by = self.command.person.name
        return f"{self.command.kind} by {by}: {what} (recommendation {its_id})"

    def journal(self) -> tuple[JournalRow, ...]:
        """Return the journal of the command."""
        return self.store.reader.journal(command_id=self.command.command_id)

    def write(
        self,
        event: str,
        *,
        step: int = -1,
        detail: str = "",
        record: str = "",
        replaces: tuple[Command, ...] = (),
    ) -> None:
        """Append to the journal, and end what `replaces` names with it.

        Errors: LeaseLostError, StalePlanError.
        """
        self.store.commands.write(
            self.lease,
            event,
            at=self.clock(),
            lasting=LEASE_DURATION,
            digest=self.command.digest,
            actor=self.command.person.name,
            step=step,
            detail=detail,
            record=record,
            replaces=replaces,
        )
        logger.info("%s: %s", self.words, _line(event, step=step, detail=detail, record=record))
        for command in replaces:
            logger.info("%s replaces recommendation %s", self.words, command.digest[:12])

    def why_stopped(self) -> str:
        """Return the reason to send nothing now, '' for none: asked before everything sent."""
        settings = self.settings()
        if not settings.apply.enabled:
            return "applying is off (apply.enabled)"
        stop = is_stopped(Path(settings.apply.stop_file), self.store)
        if stop is not None:
            return stop.describe()
        return "" if self.maker() is not None else self._nobody()

    def maker(self) -> Applier | None:
        """Return the applier of the change; None while it is switched off.

        What was prepared stays with the way that prepared it, whatever the settings say since: no
        other reads its steps.
        """
        appliers = appliers_near(self.appliers(self.settings()), self.recommendation)
        through_git = self._is_through_git()
        if through_git:
            return next((applier for applier in appliers if applier.name == "git"), None)
        if through_git is not None:
            appliers = tuple(applier for applier in appliers if applier.name != "git")
        return applier_for(appliers, self.recommendation)

    def _is_through_git(self) -> bool | None:
        """Tell whether the Git applier prepared it, None when nothing is prepared yet."""
        if not self._prepared:  # what was prepared first stays so: it is read once
            rows = self.store.reader.journal(digest=self.command.digest, events=(Work.PREPARED,))
            self._prepared.extend(from_json(Change, row.record) for row in rows[:1])
        if not self._prepared:
            return None
        return any(name.startswith(GIT_FACT) for name, _value in self._prepared[0].target.state)

    def _nobody(self) -> str:
        through_git = self._is_through_git()
        if through_git is None:
            return f"no applier that is switched on makes a {self.recommendation.action} change"
        way = "with git (apply_git.enabled)" if through_git else "without git"
        return f"the change was made {way}, and that applier is off or no longer covers it"

    def applier(self) -> Applier:
        """Return the applier of the change. Errors: ApplyError when it is switched off."""
        maker = self.maker()
        if maker is None:
            raise ApplyError(
                self._nobody(),
                "Switch it on: apply.enabled and the `enabled` of the target's section.",
            )
        return maker

    def undone_journal(self) -> tuple[JournalRow, ...]:
        """Return the journal of the command that this rollback undoes."""
        undone = self.store.reader.command(self.command.subject.partition(":")[0])
        return self.store.reader.journal(command_id=undone.command_id)

    def is_followed(self) -> bool:
        """Return whether a later command was asked for: that one decides what happens."""
        last = self.store.reader.commands(self.command.digest)[-1]
        return last.command.command_id != self.command.command_id

    def end_earlier_commands(self) -> bool:
        """End the commands before this one; False while another worker holds one of them."""
        return all(self.store.commands.end(name, now=self.clock()) for name in self._earlier())

    def earlier_journals(self) -> list[tuple[JournalRow, ...]]:
        """Return the journal of each command before this one."""
        return [self.store.reader.journal(command_id=name) for name in self._earlier()]

    def _earlier(self) -> list[str]:
        history = self.store.reader.commands(self.command.digest)
        ids = [entry.command.command_id for entry in history]
        return ids[: ids.index(self.command.command_id)]

    def success(self) -> LifecycleEvent:
        """Return the event of a success: applied, rolled back, or a rollback rolled back."""
        if self.command.kind is CommandKind.APPLY:
            return LifecycleEvent.APPLIED
        forward = self._depth % 2 == 0
        return LifecycleEvent.APPLIED if forward else LifecycleEvent.ROLLED_BACK

    def refusal(self) -> LifecycleEvent:
        """Return the event of a refusal."""
        apply = self.command.kind is CommandKind.APPLY
        return LifecycleEvent.REFUSED if apply else LifecycleEvent.ROLLBACK_REFUSED

    @cached_property
    def _depth(self) -> int:
        depth, command = 0, self.command
        while command.kind is CommandKind.ROLLBACK:
            depth += 1
            command = self.store.reader.command(command.subject.partition(":")[0])
        return depth


def _line(event: str, *, step: int, detail: str, record: str) -> str:
    """Return a row of the journal as the log shows it."""
    text = str(event)
    if event == Work.SENDING:
        text = f"sending step {step + 1}"
    elif event == Work.ANSWERED:
        text = f"step {step + 1} was answered: {from_json(StepResult, record).outcome}"
    elif event == Work.LOOKED:
        text = f"looked after {step} steps: {record}"
    return f"{text}: {detail}" if detail else text
