"""Once a week: what is open, with an address of each finding, to whoever notify.* names."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from dashboard.figure_text import range_text
from dashboard.findings import OPEN, FindingStatus, findings_now
from dashboard.reports.dispatch import send_at
from dashboard.reports.week import last_whole_week
from data.access_settings import entries
from data.clock import utc_now
from data.errors import scrub
from data.settings import Settings
from data.store import Store
from data.store.cached_reader import CachedReader
from data.store.report_log import DIGEST

_TOLD = "(digest)"
"""Whom the table of what was told names: everybody whom notify.* names."""
_NAMED, _LENGTH = 10, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRounds:
    """Looks whether the digest of the week is due, under the settings of the moment."""

    store: Store
    reader: CachedReader
    settings: Callable[[], Settings]
    clock: Callable[[], datetime] = utc_now

    def tell_due(self) -> bool:
        """Enter the digest in the audit when its hour has come; tell whether. Errors: StoreError.

        It is due when the weekly report is. The outbox makes the messages.
        """
        settings, now = self.settings(), self.clock()
        notify = settings.notify
        if DIGEST not in entries(notify.events) or not (notify.mail_to or notify.webhook_url):
            return False
        week = last_whole_week(now, settings.report)
        due_at = send_at(week, settings.report)
        if now < due_at or self.store.report_log.told_since(_TOLD, week.end):
            return False
        found = open_findings(findings_now(self.reader, now=now))
        if not found:
            return False
        self.store.report_log.tell(
            _TOLD,
            [week.name],
            event=DIGEST,
            digest="",
            detail=f"{week.name}: {len(found)} open findings",
            now=now,
        )
        return True


def open_findings(found: Iterable[FindingStatus]) -> list[FindingStatus]:
    """Return the open ones, the urgent first and then the largest saving."""

    def order(status: FindingStatus) -> tuple[float, ...]:
        said = status.revision
        if said is None:
            return (float("inf"),)
        cost = said.recommendation.savings.cost
        return (*said.recommendation.urgency, -cost.central if cost else 0.0)

    return sorted((one for one in found if one.state == OPEN), key=order)


def digest_text(found: Iterable[FindingStatus], public_url: str) -> tuple[str, str]:
    """Return subject and body of the digest of open findings, addresses on lines of their own."""
    every = list(found)
    subject = f"Trimtab: {len(every)} open findings"
    lines = [subject]
    for status in every[:_NAMED]:
        finding, revision = status.finding, status.revision
        said = f"{finding.reference} {finding.action} of {finding.target}"
        if revision is not None:
            one = revision.recommendation
            saves = f", saves {range_text(one.savings.cost)}" if one.savings.cost else ""
            said += f": {one.summary}{saves}, risk {one.risk}"
        lines.append(scrub(said, limit=_LENGTH))
        if public_url:
            lines.append(f"{public_url.rstrip('/')}/recommendations?finding={finding.reference}")
    if len(every) > _NAMED:
        lines.append(f"and {len(every) - _NAMED} more")
    lines.append(
        f"{public_url.rstrip('/')}/recommendations" if public_url else "trimtab findings list"
    )
    return subject, "\n".join(lines)
