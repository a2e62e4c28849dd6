"""Enters what has become urgent in the audit, from which the outbox tells people."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from dashboard.resources.alerts import UrgentFact, urgent_facts
from data.base.clock import utc_now
from data.base.errors import scrub
from data.settings.all_settings import Settings
from data.settings.fields import entries
from data.store import Store
from data.store.handles.cached_reader import CachedReader
from data.store.record.report_log import URGENT

_EACH, _NAMED, _LENGTH = 3, 3, 140
_RECIPIENT = "(urgent)"
"""Whom the table of what was told names: everybody whom notify.* names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgentRounds:
    """Looks what is urgent, under the settings of the moment."""

    store: Store
    reader: CachedReader
    settings: Callable[[], Settings]
    clock: Callable[[], datetime] = utc_now

    def tell_new(self) -> bool:
        """Enter what was not told lately; tell whether there was any. Errors: StoreError.

        What stays urgent is told again after a day, a budget that is exceeded after its month.

        Up to three facts have an entry each; more have one together, so that a rack that fails is
        one message.
        """
        settings, now = self.settings(), self.clock()
        notify = settings.notify
        if URGENT not in entries(notify.events) or not (notify.mail_to or notify.webhook_url):
            return False
        facts = urgent_facts(self.reader, now=now, settings=settings)
        keys_by_window = {
            length: self.store.report_log.told_since(_RECIPIENT, now - length)
            for length in {fact.told_for for fact in facts}
        }
        new = [fact for fact in facts if fact.key not in keys_by_window[fact.told_for]]
        for group in [new] if len(new) > _EACH else [[fact] for fact in new]:
            self._enter(group, now)
        return bool(new)

    def _enter(self, facts: Sequence[UrgentFact], now: datetime) -> None:
        if not facts:
            return
        detail = facts[0].text
        if len(facts) > 1:
            names = "; ".join(
                scrub(f"{fact.about}: {fact.what}", limit=_LENGTH) for fact in facts[:_NAMED]
            )
            more = f"; and {len(facts) - _NAMED} more" if len(facts) > _NAMED else ""
            detail = f"{len(facts)} things at once: {names}{more}"
        self.store.report_log.tell(
            _RECIPIENT,
            [fact.key for fact in facts],
            digest=facts[0].digest if len(facts) == 1 else "",
            detail=detail,
            now=now,
        )
