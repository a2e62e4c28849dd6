"""Letters that look like others, after Unicode Technical Standard 39."""

import re
import unicodedata
from functools import cache

from data.base.text import code

_LEFT_TO_RIGHT = "\u200e"
_WORD = re.compile(r"[^\W_]+")
_MARKED = re.compile(r"(.)(⟨[0-9A-F]{4,6}⟩)\2*")
_LAST_OF_EUROPE = 0x24F
"""Of Latin letters those of languages; what follows are phonetic signs and small capitals."""


@cache
def prototypes() -> dict[int, str]:
    """Return the prototype of each of Unicode's look-alikes, the one with most twins, by number."""
    from confusable_homoglyphs.confusables import confusables_data  # 1 MB: on demand

    twins = {
        letter.strip(_LEFT_TO_RIGHT): [twin["c"].strip(_LEFT_TO_RIGHT) for twin in others]
        for letter, others in confusables_data.items()
    }
    return {
        ord(letter): max((letter, *others), key=lambda twin: len(twins.get(twin, ())))
        for letter, others in twins.items()
        if len(letter) == 1
    }


def marked(text: str) -> str:
    """Return text with its number behind each letter that passes for one of ASCII in its word.

    That is a word of several scripts, or one that has no letter but such. Other words of any
    script stay as they are. A text that is marked already stays as it is.
    """
    plain = _MARKED.sub(lambda match: match[1] if code(match[1]) == match[2] else match[0], text)
    return _WORD.sub(lambda match: _word(match[0]), plain)


def _word(word: str) -> str:
    if word.isascii():
        return word
    twins = {letter for letter in word if _passes_for_ascii(letter)}
    others = {letter for letter in word if letter not in twins and not letter.isdigit()}
    if not twins or (others and not any(letter.isascii() for letter in others)):
        return word
    return "".join(f"{letter}{code(letter)}" if letter in twins else letter for letter in word)


@cache
def _passes_for_ascii(letter: str) -> bool:
    if letter.isascii():
        return False
    european = unicodedata.name(letter, "").startswith("LATIN ") and ord(letter) <= _LAST_OF_EUROPE
    stands_for = prototypes().get(ord(letter), unicodedata.normalize("NFKC", letter))
    return not european and stands_for.isascii()
