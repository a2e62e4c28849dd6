r"""Text from outside as every store can hold it.

JSON, and a browser, may send NUL and half characters (`\ud800`); no store takes both. What comes
from outside gets replacement characters for either (`storable`); the store itself refuses half
characters, by name, and replaces NUL before anything is hashed, so that all stores hold the same.
What people are shown has no character that cannot be seen (`visible`).
"""

import re

_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""Printable by Unicode, and yet nothing is drawn: fillers, joiners, variation selectors."""
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def visible(text: str) -> str:
    """Return text in which every character can be seen: others are shown as `⟨200B⟩`, their number.

    So two names that differ by what nobody sees are two on paper, too.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if character.isprintable() and not _BLANK.match(character) else code(character)
        for character in text
    )


def code(character: str) -> str:
    """Return the number of a character as it is shown."""
    return f"⟨{ord(character):04X}⟩"


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
