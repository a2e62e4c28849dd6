"""Every hostile text in each of the forms in which text is shown."""

import csv
import html
import io
import re
import unicodedata
from collections.abc import Callable

import pytest
from hostile.payloads import HUGE, PAYLOADS
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dashboard.common.csv_cells import csv_text
from dashboard.common.escaping import cell, chat, isolated, markdown, plot_label, shown
from data.base.errors import scrub

TEXTS = [payload.text for payload in PAYLOADS] + [HUGE]
JOINER = "\u2060"
FORMULA = set("=+-@\uff1d\uff0b\uff0d\uff20")


def test_the_corpus_is_large_and_every_text_is_another() -> None:
    """At least 200 texts of at least ten families, each once, none longer than sources allow."""
    assert len(PAYLOADS) >= 300
    assert len({payload.text for payload in PAYLOADS}) == len(PAYLOADS)
    assert len({payload.family for payload in PAYLOADS}) >= 10
    assert max(len(payload.text) for payload in PAYLOADS) <= 1024


def unseen(text: str) -> list[str]:
    """Characters that are drawn as nothing, or move or turn what is drawn."""
    kinds = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    return [entry for entry in text if unicodedata.category(entry) in kinds]


def test_what_is_shown_can_be_seen() -> None:
    """No control, direction, joiner or line end is left, and two lookalikes differ from one."""
    assert {text: found for text in TEXTS if (found := unseen(shown(text)))} == {}
    assert shown("ad\u200bmin") == "ad⟨200B⟩min"
    assert shown("\u3164") == "⟨3164⟩"
    assert shown("Grüße, 日本 🚀") == "Grüße, 日本 🚀"
    assert shown("x" * 30, limit=10) == "x" * 10 + "…"


ALIKE = ("vision", "v\u0456sion", "vision\u200b", "\u202evision", "vis\u2060ion", "visio\uff4e",
         "vision\u200c", "\u0475ision", "visi\u03bfn", "\U0001d42fision")  # fmt: skip


@pytest.mark.parametrize("way", [shown, isolated, markdown, plot_label, chat, scrub])
def test_names_that_look_alike_are_told_apart(way: Callable[[str], str]) -> None:
    """Invisible ones, and letters of other scripts: each has its number where it is read."""
    read = [way(name).replace(JOINER, "") for name in ALIKE]
    seen = {"".join(letter for letter in text if ord(letter) < 128) for text in read}
    assert way is scrub or len(seen) == len(ALIKE), read
    assert len(set(read)) == len(ALIKE)


def test_words_of_one_script_stay_as_they_are() -> None:
    """Marks are for what could deceive."""
    for text in (
        "сервис поиска",
        "Ωμέγα",
        "學習-gpu7",
        "größe_x",
        "naïve 日本語モデル",
        "αβγ-7",
        "ısı",
    ):
        assert shown(text) == text
    assert shown("ѕсоре") == "ѕ⟨0455⟩с⟨0441⟩о⟨043E⟩р⟨0440⟩е⟨0435⟩"


def test_words_from_the_right_move_nothing_beside_them() -> None:
    """An isolate ends with the words themselves, and no name opens or ends another."""
    said = markdown("TT\u20111 \u05d0\u05d1 \u05d2: 8 → 4 \u2069x")
    assert "\u2068\u05d0\u05d1 \u05d2\u2069\\: 8" in said
    assert "⟨2069⟩x" in said


def test_marks_do_not_pile_up() -> None:
    """Of a hundred marks on one letter four stay: the line above can still be read."""
    assert len(shown("Z" + "\u0335" * 100 + "a")) == 6
    assert shown("e\u0301") == "e\u0301"


@given(st.text())
def test_shown_twice_is_shown_once(text: str) -> None:
    """Whatever the text, showing it again changes nothing more, and it is one line."""
    once = shown(text)
    assert shown(once) == once
    assert len(once.splitlines()) <= 1


def kinds_in(text: str) -> set[str]:
    """Every kind of token that CommonMark with tables and strike-through finds in a text."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    return {entry.type for token in tokens for entry in (token, *(token.children or ()))}


def test_markdown_makes_nothing_but_a_paragraph() -> None:
    """No link, picture, emphasis, heading, table, code or HTML comes out of any text."""
    plain = {"paragraph_open", "paragraph_close", "inline", "text", "text_special"}
    found = {text: kinds_in(markdown(text)) - plain for text in TEXTS}
    assert {text: kinds for text, kinds in found.items() if kinds} == {}


def test_markdown_reads_as_what_was_written() -> None:
    """Unescaped and without joiners it is the shown text."""
    renderer = MarkdownIt("commonmark")
    for text in TEXTS:
        made = renderer.render(markdown(f"x{text}x"))
        read = html.unescape(made.removeprefix("<p>").removesuffix("</p>\n"))
        assert read.replace(JOINER, "") == isolated(f"x{text}x")


def test_labels_of_plots_hold_no_markup() -> None:
    """No angle bracket and no quote is left, and no label is longer than its plot."""
    labels = [plot_label(text) for text in TEXTS]
    assert [label for label in labels if set(label) & set("<>\"'")] == []
    assert max(len(html.unescape(label).strip("\u2068\u2069")) for label in labels) <= 81


def test_a_chat_mentions_and_links_nothing() -> None:
    """Nothing that Slack or Mattermost reads: `<…>`, `@name`, `](`, `://`, `*bold*`."""
    for text in TEXTS:
        said = chat(text)
        assert "<" not in said
        assert ">" not in said
        assert "](" not in said
        assert "://" not in said
        marked = [at for at, entry in enumerate(said) if entry in "@*_~`#!"]
        assert all(said[at + 1] == JOINER for at in marked), text


def test_a_chat_keeps_its_lines_and_words() -> None:
    """A message of several lines stays one; what people wrote can be read."""
    said = chat("approved by robin\nat 12:30, 5 > 3 & *quick*")
    assert said.replace(JOINER, "") == "approved by robin\nat 12:30, 5 &gt; 3 &amp; *quick*"


def starts_a_formula(text: str) -> bool:
    """As a spreadsheet decides: by the first character, blanks and unseen ones aside."""
    bare = text.lstrip().lstrip("\u200b\u200c\u200d\u2060\ufeff\0")
    return bare[:1] in FORMULA or text[:1] in ("\t", "\r", "\n", "\0")


def test_no_cell_is_a_formula() -> None:
    """Every text of the corpus is read back as it is, or behind an apostrophe when it is risky."""
    rows = [{"name": text, "spaced": f"  {text}"} for text in TEXTS]
    read = list(csv.reader(io.StringIO(csv_text(rows, ["name", "spaced"]), newline="")))
    assert len(read) == len(TEXTS) + 1
    for text, line in zip(TEXTS, read[1:], strict=True):
        assert not any(starts_a_formula(entry) for entry in line)
        assert line[0].replace("'", "") == text.replace("'", "")


@given(st.text("x=+-@;\t\r\n ,\"'\uff1d", max_size=12))
def test_no_cell_is_a_formula_where_commas_are_decimal_marks(text: str) -> None:
    """There a file is split at `;`, and what the quotes of commas hold together comes apart."""
    line = csv_text([{"name": f"x{text}"}], ["name"])
    cells = [part.strip(' \t\r\n"') for part in re.split(r"[;\t\r\n]", line)]
    assert [part for part in cells if part and part[0] in FORMULA] == []


def test_headers_of_columns_are_cells_too() -> None:
    """A column named after a currency of the settings is no formula either."""
    assert csv_text([], ["=1+1"]).strip() == "'=1+1"


def test_numbers_stay_numbers() -> None:
    """A negative number is no formula: only text is prefixed."""
    assert [cell(value) for value in (-5, -0.5, None, "-5", "5")] == [
        -5,
        -0.5,
        None,
        "'-5",
        "5",
    ]


@given(st.text(min_size=1))
def test_no_text_at_all_is_a_formula(text: str) -> None:
    """Whatever the text, its cell starts no formula."""
    assert not starts_a_formula(str(cell(text)))
