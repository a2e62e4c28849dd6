"""Once a week: what is open, with an address of each finding, to whoever notify.* names.

The whole goes to notify.mail_to and the chat, that of a namespace to its own of notify.teams.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from dashboard.accounting.savings.shown_money import as_shown
from dashboard.common.figures import range_text
from dashboard.decisions.finding_filter import FindingChoice, FindingOrder, chosen_findings
from dashboard.decisions.findings import OPEN, FindingStatus, findings_now
from dashboard.notify.messages import NO_LINK
from dashboard.reports.week.dispatch import send_at
from dashboard.reports.week.week import last_whole_week
from data.base.clock import utc_now
from data.base.errors import scrub
from data.settings.all_settings import Settings
from data.settings.fields import entries
from data.settings.reports import named_addresses
from data.store import Store
from data.store.handles.cached_reader import CachedReader
from data.store.record.report_log import DIGEST

_TOLD = "(digest)"
"""Whom the table of what was told names: everybody whom notify.* names."""
_OF = " of namespace "
_NAMED, _LENGTH = 10, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRounds:
    """Looks whether the digest of the week is due, under the settings of the moment."""

    store: Store
    reader: CachedReader
    settings: Callable[[], Settings]
    clock: Callable[[], datetime] = utc_now

    def tell_due(self) -> bool:
        """Enter the digests in the audit when their hour has come; tell whether there was one.

        They are due when the weekly report is. The outbox makes the messages. Errors: StoreError.
        """
        settings, now = self.settings(), self.clock()
        notify = settings.notify
        general = [""] if notify.mail_to or notify.webhook_url else []
        teams = [*general, *named_addresses(notify.teams)]
        if DIGEST not in entries(notify.events) or not teams:
            return False
        week = last_whole_week(now, settings.report)
        due_at = send_at(week, settings.report)
        if now < due_at:
            return False
        log = self.store.report_log
        teams = [team for team in teams if not log.told_since(_team_key(team), week.end)]
        findings = findings_now(self.reader, now=now) if teams else ()
        due = {team: part for team in teams if (part := open_findings(findings, team))}
        for team, part in due.items():
            whose = f"{_OF}{team}" if team else ""
            detail = f"{week.name}: {len(part)} open findings{whose}"
            log.tell(_team_key(team), [week.name], event=DIGEST, digest="", detail=detail, now=now)
        return bool(due)


def _team_key(team: str) -> str:
    """Return the name of a team in the table of what was told, '' for everybody."""
    return f"{_TOLD} {team}" if team else _TOLD


def team_of(detail: str) -> str:
    """Return the team of a digest's entry, '' for that of all."""
    return detail.partition(_OF)[2]


def open_findings(statuses: Iterable[FindingStatus], team: str = "") -> list[FindingStatus]:
    """Return the open ones of a namespace, of all for '', the urgent first, then by saving."""
    choice = FindingChoice(states=frozenset({OPEN}), team=team)
    return sorted(chosen_findings(statuses, choice), key=FindingOrder.URGENT.key)


def digest_text(
    statuses: Iterable[FindingStatus], settings: Settings, *, team: str = ""
) -> tuple[str, str]:
    """Return subject and body of the digest of open findings, addresses on lines of their own."""
    every, public_url = list(statuses), settings.access.public_url
    whose = f"{_OF}{scrub(team, limit=_LENGTH)}" if team else ""
    subject = f"Trimtab: {len(every)} open findings{whose}"
    lines = [subject]
    for status in every[:_NAMED]:
        finding, revision = status.finding, status.revision
        line = f"{finding.reference} {finding.action} of {finding.target}"
        if revision is not None:
            recommendation = as_shown(revision.recommendation, settings)
            saves = (
                f", saves {range_text(recommendation.savings.cost)}"
                if recommendation.savings.cost
                else ""
            )
            line += f": {recommendation.summary}{saves}, risk {recommendation.risk}"
        lines.append(scrub(line, limit=_LENGTH))
        if public_url:
            lines.append(f"{public_url.rstrip('/')}/findings?finding={finding.reference}")
    if len(every) > _NAMED:
        lines.append(f"and {len(every) - _NAMED} more")
    if public_url:
        lines.append(f"{public_url.rstrip('/')}/findings")
    else:
        lines += ["trimtab findings list", NO_LINK]
    return subject, "\n".join(lines)
