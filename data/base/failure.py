"""The one way in which telling people fails."""

from data.base.errors import TrimtabError


class NotDeliveredError(TrimtabError):
    """A message did not arrive; it is tried again later."""
