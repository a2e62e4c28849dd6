"""Tickets by which the pages' buttons ask in the name of who signed in by OpenID Connect.

The API believes tokens and proxies, and Streamlit's cookie is neither. So a page gives each button
a ticket for one address of the API, which is signed by this process and ends with the sign-in.
"""

import base64
import binascii
import hashlib
import hmac
import json
import secrets

from data.errors import NotSignedInError
from data.records.commands import Person

TICKET_HEADER = "x-trimtab-press"
_KEY = secrets.token_bytes(32)
_MAX_TICKET = 16_384
_HINT = "Open the page again, and sign in."


def ticket_of(person: Person, method: str, path: str, *, until: float) -> str:
    """Return a ticket for a person, good until a time in seconds of the Unix epoch."""
    said = {"name": person.name, "groups": list(person.groups), "via": person.via, "until": until}
    text = base64.urlsafe_b64encode(json.dumps(said | {"for": f"{method} {path}"}).encode())
    return f"{text.decode()}.{_signed(text)}"


def holder_of(ticket: str, method: str, path: str, *, now: float) -> Person:
    """Return whose ticket it is. Errors: NotSignedInError."""
    text, _, signature = ticket.partition(".")
    genuine = len(ticket) <= _MAX_TICKET and ticket.isascii()
    if not genuine or not hmac.compare_digest(_signed(text.encode()), signature):
        raise NotSignedInError("the button was drawn by another server", _HINT)
    try:
        said = json.loads(base64.urlsafe_b64decode(text))
    except (binascii.Error, ValueError) as error:
        raise NotSignedInError("the button's ticket cannot be read", _HINT) from error
    if said["for"] != f"{method} {path}":
        raise NotSignedInError("the button's ticket is for something else", _HINT)
    if now >= said["until"]:
        raise NotSignedInError("the sign-in of the page has ended", _HINT)
    return Person(name=said["name"], groups=tuple(said["groups"]), via=said["via"])


def _signed(text: bytes) -> str:
    return hmac.new(_KEY, text, hashlib.sha256).hexdigest()
