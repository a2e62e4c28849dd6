r"""Text from outside as every store can hold it.

JSON, and a browser, may send NUL and half characters (`\ud800`); no store takes both. What comes
from outside gets replacement characters for either (`storable`); the store itself refuses half
characters, by name, and replaces NUL before anything is hashed, so that all stores hold the same.
"""

import re

_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def storable(text: str) -> str:
    """Return the text with replacement characters for what no store takes."""
    if text.isascii():
        return without_nul(text)
    return without_nul(text.encode("utf-8", "replace").decode("utf-8"))


def without_nul(text: str) -> str:
    """Return the text with the replacement character for NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def json_without_nul(text: str) -> str:
    r"""Return a JSON document whose strings hold no NUL: it stands in it as `\u0000`."""
    if r"\u0000" not in text:
        return text
    return _ESCAPED_NUL.sub("\\1\N{REPLACEMENT CHARACTER}", text)
