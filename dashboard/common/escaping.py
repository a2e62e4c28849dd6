"""Text that others wrote, made fit for where it is shown: one function per place.

Names, labels, reasons and comments are hostile. Everything starts with `shown`: one line of
characters that can be seen. The store keeps text as it came, and JSON carries it unchanged.
"""

import html
import re
import unicodedata

from dashboard.common.look_alikes import marked
from data.base.text import visible

_MAX_MARKS = 4
_WORD_JOINER = "\u2060"
_ISOLATE, _END_OF_ISOLATE = "\u2068", "\u2069"
_RIGHT = "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]+"
_RIGHT_TO_LEFT = re.compile(f"{_RIGHT}(?: {_RIGHT})*")
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>()#+\-!|~:$&]")
_ESCAPED_MARKDOWN = re.compile(rf"\\({_MARKDOWN.pattern})")
_LINK_STARTS = re.compile(r"https?:|ftp:|mailto:|xmpp:|www|@|:(?=[\w+/-]+:)", re.IGNORECASE)
_CHAT = re.compile(r"[*_~`@#\]!]|www|:(?=//)", re.IGNORECASE)
_FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_CELL_BREAKS = ("\t", "\r", "\n", "\0")
_CELL_ENDS = re.compile(r"([;\t\r\n])")


def shown(text: object, *, limit: int | None = None) -> str:
    """Return text as one line on which every character can be seen; beyond `limit` it is cut.

    Controls, line ends, directions, joiners and fillers become their number, and letters that pass
    for others have it behind them. Of the marks stacked on one character the first four stay.
    """
    full = str(text)
    cut = full if limit is None or len(full) <= limit else f"{full[:limit]}…"
    if cut.isprintable() and cut.isascii():
        return cut
    characters, marks = [], 0
    for character in cut:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= _MAX_MARKS:
            characters.append(character)
    return marked(visible("".join(characters)))


def isolated(text: object, *, limit: int | None = None) -> str:
    """Return shown text whose words from right to left move nothing beside them."""
    return _isolated(shown(text, limit=limit))


def _isolated(text: str) -> str:
    return _RIGHT_TO_LEFT.sub(f"{_ISOLATE}\\g<0>{_END_OF_ISOLATE}", text)


def markdown(text: object, *, limit: int | None = None) -> str:
    """Return text for Markdown, Streamlit's included, every character that it reads escaped.

    Addresses, icons and emoji are looked for in the text that is left after parsing, escaped or
    not. A word joiner, which nobody sees, keeps them apart.
    """
    apart = _LINK_STARTS.sub(rf"\g<0>{_WORD_JOINER}", isolated(text, limit=limit))
    return _MARKDOWN.sub(r"\\\g<0>", apart)


def without_escapes(text: str) -> str:
    """Return Markdown as a person reads it who sees the text itself, such as in a mail.

    Word joiners stay: programs of mail make links of addresses, too.
    """
    return _ESCAPED_MARKDOWN.sub(r"\1", text)


def unlinked(text: str) -> str:
    """Return text of one or more lines in which no program of mail finds an address."""
    return _LINK_STARTS.sub(rf"\g<0>{_WORD_JOINER}", text)


def plot_label(text: object, *, limit: int = 80) -> str:
    """Return text for a label of plotly, which reads a little HTML."""
    return html.escape(_isolated(shown(str(text)[:limit])[:limit]))


def chat(text: str) -> str:
    """Return text of several lines for a chat, Slack's or Mattermost's: no mention, link or markup.

    Slack reads `<...>` as mention or link, both read `*_~#` and backquotes as markup and `@` as a
    mention; `](` makes a link and `://` an address. A word joiner, which nobody sees, parts them.
    """
    lines = "\n".join(isolated(line) for line in text.replace("\r\n", "\n").split("\n"))
    return _CHAT.sub(rf"\g<0>{_WORD_JOINER}", html.escape(lines, quote=False))


def cell(value: object) -> object:
    """Return a value for a cell that no spreadsheet takes for a formula (ASVS 1.2.10).

    A text is prefixed when the first character that is seen would start a formula, half or full
    width, or when it starts with what ends a cell. So is each part behind a `;`, which ends a cell
    where commas are decimal marks, or a tab or line end.
    """
    if not isinstance(value, str):
        return value
    first, *others = _CELL_ENDS.split(value)
    risky = value.startswith(_CELL_BREAKS) or _starts_formula(first)
    parts = [f"'{first}" if risky else first]
    for end, part in zip(others[::2], others[1::2], strict=True):
        parts += [end, f"'{part}" if _starts_formula(part.replace('"', " ")) else part]
    return "".join(parts)


def _starts_formula(text: str) -> bool:
    first = next((entry for entry in text if entry.isprintable() and not entry.isspace()), "")
    return first in _FORMULA_STARTS
