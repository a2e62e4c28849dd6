r"""Text from outside as every store can hold it.

JSON, and a browser, may send half characters (`\ud800`) and NUL; no store takes both. What cannot
be kept becomes a replacement character, the same in every store, before anything is hashed.
"""

import re

_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def storable(text: str) -> str:
    """Give the text with replacement characters for what no store takes."""
    if text.isascii() and "\0" not in text:
        return text
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")


def storable_json(text: str) -> str:
    r"""Give a JSON document whose strings can be kept: NUL stands in it as `\u0000`."""
    if r"\u0000" in text:
        text = _ESCAPED_NUL.sub("\\1\N{REPLACEMENT CHARACTER}", text)
    return storable(text)
