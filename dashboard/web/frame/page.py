"""Parts common to pages: errors without tracebacks, figures, tables with export, age of data."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import Semaphore
from typing import Any
from urllib.parse import quote, urlencode

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from dashboard.accounting.cost.prices import price_note
from dashboard.common.csv_cells import csv_text
from dashboard.common.escaping import isolated, markdown
from dashboard.common.figures import figure_text, range_texts, short_name
from dashboard.common.replay_clock import as_of_text
from dashboard.common.stale_readings import REMEDY, stale_reason
from dashboard.web.access.identity import current_world
from dashboard.web.frame.action_button import File, file_buttons
from dashboard.web.frame.headings import column_settings
from dashboard.web.frame.navigation import place_of
from dashboard.web.frame.scope import SCOPE_WORDS, current_scope
from data.base.errors import TrimtabError
from data.records.recommendations import Range

UNKNOWN = "—"
_FIGURE_PIXELS = 220
_PAGE_KEY = "page-asked"
PAGES_OF_RUN = "pages-of-run"
"""Key of the session under which the frame keeps its pages, by view."""
_PROSE_PIXELS = 66
"""Streamlit breaks the lines of a cell in rows of more than 4 rem alone."""
_LINK_PIXELS = {"jobs": 200}
"""Columns that are empty in many rows: a column is else as wide as its first rows need."""
_ROWS_HIGH = 16
_ARROW = ":material/arrow_forward:"
"""Without it the words of a link look like text."""
_ROW_PIXELS = 35
PAGES_AT_ONCE = 2
"""Pages share one core, with the thread that answers probes and the stop switch: a hundred drawn
at once delay it by many seconds, and each other as well."""
_TURN_SECONDS = 60.0
_PAGE_SLOTS = Semaphore(PAGES_AT_ONCE)


@contextmanager
def frame() -> Iterator[None]:
    """Draw a page in its turn; show an error that a person can act on as one line with its hint.

    Who waited a minute has no turn of its own: pages that hang keep nobody out.
    """
    has_turn = _PAGE_SLOTS.acquire(timeout=_TURN_SECONDS)
    try:
        yield
    except TrimtabError as error:
        st.error(markdown(str(error)))
    finally:
        if has_turn:
            _PAGE_SLOTS.release()


def number(value: float | None, unit: str) -> str:
    """Return a number with three significant digits and its unit, an em dash when unknown."""
    return UNKNOWN if value is None or value != value else f"{figure_text(value)} {unit}"


def measured(value: float | None, unit: str, reason: str) -> tuple[str, str]:
    """Return a figure and its small print: nothing when it is known, else why it is not."""
    text = number(value, unit)
    return text, reason if text == UNKNOWN else ""


def loss_banner() -> None:
    """Say on every page which acknowledged writes the store lost."""
    for loss in current_world().store.losses:
        st.error(markdown(f"{loss}. `trimtab store check --accept` ends this warning."))


def old_readings() -> str:
    """Return the reason why nothing is proposed of what was read last, '' for none."""
    world = current_world()
    return stale_reason(world.reader, as_of=world.reader.latest_sample_at(), now=world.clock())


def old_readings_banner() -> None:
    """Say on every page that nothing is proposed, where the newest reading is too old for it."""
    if reason := old_readings():
        st.warning(f"{markdown(reason[0].upper() + reason[1:])}. {REMEDY}")


def freshness() -> str:
    """Return the age of the newest sample and the completeness of the sources, in words."""
    reader = current_world().reader
    latest = reader.latest_sample_at()
    if latest is None:
        return "No samples yet."
    rated = [report for report in reader.source_reports() if report.completeness_ratio is not None]
    complete = (
        f"; sources {100 * min(report.completeness_ratio or 0 for report in rated):.0f} % complete"
        if rated
        else ""
    )
    if (recording := reader.recording()) is not None:
        return f"{as_of_text(recording)}{complete}."
    age = current_world().clock() - latest
    hours = age / timedelta(hours=1)
    text = f"{hours:.1f} h" if hours >= 1 else f"{age / timedelta(minutes=1):.0f} min"
    return f"As of {latest:%Y-%m-%d %H:%M} UTC, {text} ago{complete}."


def tense(live: str, recorded: str) -> str:
    """Return the words for a fleet of now, or those for a recording: all of it is past."""
    return live if current_world().reader.recording() is None else recorded


def past(live: str, over: str) -> str:
    """Return the words for a fleet of now, or those for a recording and for old readings."""
    return over if old_readings() else tense(live, over)


def finding(text: str) -> None:
    """Open the page with its answer, its one heading of the first rank."""
    st.markdown(f"# {markdown(text)}")


def figures(values: Mapping[str, Range | tuple[str, str] | str | None]) -> None:
    """Show at most five figures side by side; a pair is a value and its small print.

    A range shows its central value large and its bounds small.
    """
    row = st.container(horizontal=True)
    for label, value in values.items():
        main, note = _main_and_note(value)
        # Of one width, so that figures go to the next line where columns would cut them.
        with row.container(gap=None, width=_FIGURE_PIXELS):
            # The metric's own label is one line that is cut where the window is narrow.
            st.caption(label)
            st.metric(label, main, label_visibility="collapsed")
            st.caption(markdown(note) or "\u00a0")


def money_note() -> str:
    """Return the words for a range of money that holds that of planning prices, else ''."""
    return price_note(current_world().settings.settings)


def _main_and_note(value: Range | tuple[str, str] | str | None) -> tuple[str, str]:
    if value is None:
        return UNKNOWN, "power was never reported"
    if isinstance(value, Range):
        low, central, high = range_texts(value)
        return f"{central} {value.unit}", "" if low == high else f"{low}–{high} {value.unit}"
    return (value, "") if isinstance(value, str) else value


def chart(figure: go.Figure, key: str, *, opens: Callable[[str], None] | None = None) -> None:
    """Show a figure in the page's width.

    `opens` hears the name of a mark that was clicked: the first that its `customdata` lists.
    """
    settings = {"displaylogo": False}
    if opens is None:
        st.plotly_chart(figure, key=key, config=settings)
        return

    def hear() -> None:
        for point in st.session_state[key].selection.points:
            if isinstance(data := point.get("customdata"), list) and data[0]:
                opens(str(data[0]))

    st.plotly_chart(figure, key=key, config=settings, on_select=hear, selection_mode="points")
    _go_where_asked()


def table(
    rows: pd.DataFrame,
    name: str,
    *,
    every: Callable[[], pd.DataFrame] | None = None,
    headings: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
    exported: bool = True,
    prose: Mapping[str, int] | None = None,
    opens: Callable[[int], None] | None = None,
    most: int = _ROWS_HIGH,
) -> None:
    """Show a table, numbers to three significant digits, and export it exactly as CSV and JSON.

    `every` gives what is exported where `rows` are only one page of it. `headings` are those of
    this table alone, see `column_settings`. `links` name the page that each cell of a column leads
    to, such as `jobs?job=` for the column of jobs. `prose` gives the width in pixels of columns of
    sentences, which then have several lines. A column of empty texts is left out of what is shown.
    `opens` hears which row was clicked, elsewhere than on a link: that opens in a tab of its own.
    It is `most` rows high at most; the others are scrolled to.
    """
    visible = _readable(rows)
    settings = column_settings(visible, other=headings)
    for column, width in (prose or {}).items():
        settings[column] = st.column_config.Column(settings[column]["label"], width=width)
    linked = set()
    for column, page in (links or {}).items():
        # A cell that names several leads to none of them.
        if column in visible.columns and not rows[column].astype(str).str.contains("\n").any():
            linked.add(column)
            visible[column] = [link_to(page, entry) for entry in rows[column]]
            settings[column] = st.column_config.LinkColumn(
                settings[column]["label"],
                display_text=r"(?:[?&][a-z]+=|#)([^&#]*)$",
                width=_LINK_PIXELS.get(column),
            )
    key = f"{name}-rows"

    def hear() -> None:
        for place, column in st.session_state[key].selection.cells:
            if opens and column not in linked and int(place) < len(rows):
                opens(int(place))

    st.dataframe(
        visible,
        hide_index=True,
        placeholder=UNKNOWN,
        column_config=settings,
        row_height=_PROSE_PIXELS if prose else None,
        height="auto" if prose or visible.empty else grid_height(min(len(visible), most)),
        key=key if opens else None,
        on_select=hear if opens else "ignore",
        selection_mode="single-cell",
    )
    if exported:
        export(name, every or (lambda: rows))
    if opens:
        _go_where_asked()


def _readable(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows as people read them, without columns of empty texts."""
    visible = rows[[name for name in rows.columns if not (len(rows) and rows[name].eq("").all())]]
    visible = visible.copy()
    for column in visible.columns[visible.dtypes == "float64"]:
        visible[column] = rows[column].map(three_digits)
    for column in visible.columns[[kind in ("object", "str") for kind in visible.dtypes]]:
        visible[column] = visible[column].map(_cell)
    return visible


def _cell(value: object) -> object:
    """Return a value of a table, text as it can be seen; texts of several lines keep them."""
    return "\n".join(map(isolated, value.split("\n"))) if isinstance(value, str) else value


def _go_where_asked() -> None:
    """Leave for the page that a click asked for: a callback cannot."""
    if (target := st.session_state.pop(_PAGE_KEY, None)) is not None:
        page, words = _page_at(*target)
        st.switch_page(page, query_params=words)


def _page_at(view: str, words: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Return the page that has a tab, and the words of its address with those that open it."""
    row, place = place_of(view)
    page = st.session_state.get(PAGES_OF_RUN, {}).get(row.view, row.file(row.tabs[0]))
    return page, place | dict(words)


def grid_height(rows: int) -> int:
    """Return the height in pixels of a table of so many rows of one line, with its head."""
    return _ROW_PIXELS * (rows + 1) + 3


def opener_of_rows(view: str, links: Sequence[Mapping[str, str]]) -> Callable[[int], None]:
    """Return a function that opens a page for a clicked row; `links` are its queries, by row."""
    return lambda place: _ask_for(view, links[place])


def opener_by_name(view: str, word: str) -> Callable[[str], None]:
    """Return a function that opens a page about a name; `word` is its key in the address."""
    return lambda name: _ask_for(view, {word: name})


def _ask_for(view: str, words: Mapping[str, str]) -> None:
    """Ask for a page in the callback of a click; its address keeps the header's choices.

    A choice of the header is bound to its control: only the control's value can be set.
    """
    for name in SCOPE_WORDS & words.keys():
        st.session_state[name] = words[name]
    other = {name: value for name, value in words.items() if name not in SCOPE_WORDS}
    st.session_state[_PAGE_KEY] = (view, other)


def link_to(page: str, name: object) -> str | None:
    """Return the address of a page about a name within the scope of now, None for no name."""
    if not isinstance(name, str) or not name:
        return None
    path, _mark, query = page.partition("?")
    scope = urlencode(current_scope().address(), quote_via=quote)
    # What a table shows of a link is its end.
    end = f"#{quote(read, safe='')}" if (read := isolated(name)) != name else ""
    return f"{path}?{scope}{'&' if scope else ''}{query}{quote(name, safe='')}{end}"


def show_link(view: str, label: str, *, icon: str | None = _ARROW, **query: str) -> None:
    """Show a link to another page that keeps the scope; `query` is what else its address says.

    `label` is untrusted text; a long one is cut, as Streamlit does not wrap it on a narrow screen.
    Streamlit itself keeps the parameters of what is drawn on every page: the range. Those of the
    filters, behind their button, it forgets.
    """
    page, words = _page_at(view, current_scope().chosen | query)
    st.page_link(page, label=markdown(short_name(label)), query_params=words, icon=icon)


def drawer(label: str, name: str, show: Callable[[], None]) -> None:
    """Offer what is computed only while it is open; the address says under `name` that it is."""
    box = st.expander(label, key=name, on_change="rerun", bind="query-params")
    if box.open:
        with box:
            show()


def export(name: str, rows_of: Callable[[], pd.DataFrame]) -> None:
    """Offer rows as CSV and JSON."""
    file_buttons(
        File(
            label="CSV",
            make=lambda: csv_text((rows := rows_of()).to_dict("records"), list(rows.columns)),
            name=f"{name}.csv",
            kind="text/csv",
            key=f"{name}-c",
        ),
        File(
            label="JSON",
            make=lambda: json_text(rows_of()),
            name=f"{name}.json",
            kind="application/json",
            key=f"{name}-j",
        ),
    )


def json_text(rows: pd.DataFrame) -> str:
    """Return rows as a JSON list of objects; unknown is null."""
    document = json.loads(rows.to_json(orient="records", date_format="iso"))
    return json.dumps(document, ensure_ascii=False)


def three_digits(value: float) -> float:
    """Return a number of a table to three significant digits, whole from a thousand on."""
    return float(f"{value:.0f}") if abs(value) >= 1000 else float(f"{value:.3g}")


def empty_state() -> bool:
    """Show what to do next when there is nothing to show; tell whether that is so."""
    if current_world().reader.latest_sample_at() is not None:
        return False
    finding("Nothing has been collected yet.")
    st.info(
        "Run `trimtab cycle --prometheus URL`, or "
        "`trimtab import FILE --map MAP.toml`, then reload this page."
    )
    return True
