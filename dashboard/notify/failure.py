"""The one way in which telling people fails."""

from data.errors import TrimtabError


class NotDeliveredError(TrimtabError):
    """A message did not arrive; it is tried again later."""
