"""Check that a message comes from its chat: signed, of these minutes, and not sent before.

Slack: HMAC-SHA256 over `v0:TIME:BODY` in hexadecimal
(docs.slack.dev/authentication/verifying-requests-from-slack). Teams: the same over the body
alone, key and signature in base64
(learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/add-outgoing-webhook).
"""

import base64
import hashlib
import hmac
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from data.base.errors import NotSignedInError
from data.settings.access import key_of

MAX_AGE = timedelta(minutes=5)
_MAX_SEEN = 10_000
_HINT = "Press the button again, or decide on the page of the finding."
_SETUP = "Compare the secret in the section chat with the one that the chat shows for its app."


def slack_signature(secret: str, at: str, body: bytes) -> str:
    """Return the signature that Slack gives a body at a time (s of the epoch, as text)."""
    signed = b":".join((b"v0", at.encode(), body))
    return f"v0={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def teams_signature(token: str, body: bytes) -> str:
    """Return the signature that Teams gives a body."""
    digest = hmac.new(key_of(token), body, hashlib.sha256).digest()
    return f"HMAC {base64.b64encode(digest).decode()}"


def require_same(expected: str, stated: Sequence[str]) -> str:
    """Return the one signature that was stated. Errors: NotSignedInError for any other."""
    if len(stated) != 1 or not hmac.compare_digest(expected.encode(), stated[0].encode("latin-1")):
        raise NotSignedInError("the request is not signed by the chat", _SETUP)
    return stated[0]


def require_fresh(at: datetime | None, now: datetime) -> None:
    """Refuse (NotSignedInError) what was sent more than five minutes ago, or will be."""
    if at is None:
        raise NotSignedInError("the request does not say when it was sent", _SETUP)
    if abs(now - at) > MAX_AGE:
        late = f"{abs(now - at) / timedelta(minutes=1):.0f} minutes"
        raise NotSignedInError(f"the request is of another time, by {late}", _HINT)


@dataclass(slots=True)
class SeenSignatures:
    """Signatures within twice the age that is taken; each is taken once."""

    _seen: OrderedDict[str, datetime] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, signature: str, now: datetime) -> None:
        """Note a signature. Errors: NotSignedInError when it was there before."""
        with self._lock:
            while self._seen and next(iter(self._seen.values())) < now - 2 * MAX_AGE:
                self._seen.popitem(last=False)
            if signature in self._seen:
                raise NotSignedInError("the request was sent before", _HINT)
            if len(self._seen) >= _MAX_SEEN:
                raise NotSignedInError(f"{_MAX_SEEN} requests came in ten minutes", _HINT)
            self._seen[signature] = now
