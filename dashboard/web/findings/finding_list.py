"""The list of findings: what is chosen, the rows that stand still, and what is selected of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.decisions.decision_table import DECISIONS
from dashboard.decisions.finding_filter import FindingChoice, FindingOrder
from dashboard.decisions.findings import findings_now
from dashboard.web.access.identity import current_role, current_world, signed_in
from dashboard.web.findings.actions import BULK_WISHES
from dashboard.web.findings.daily_savings import saved_by_finding
from dashboard.web.findings.decision_dialog import decision_button
from dashboard.web.findings.finding_rows import (
    STATES,
    InboxRow,
    age_text,
    choice_of_state,
    chosen_rows,
    inbox_rows,
    steady,
)
from dashboard.web.frame.address_filters import ALL, choose
from dashboard.web.frame.alert_strip import urgent_now
from dashboard.web.frame.page import grid_height, money_note, opener_of_rows, table, three_digits
from dashboard.web.frame.scope import current_scope
from data.base.clock import floor_to_slot
from data.records.actions import Risk

_ORDER, _GRID, _MINUTE = "inbox-order", "inbox", 60
_SHOWN = 1000
_DECIDING_ROLES = ("owner", "approver", "admin")
_ROWS_HIGH = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Selection in the list: the rows that are ticked, and the one that was clicked."""

    ticked: tuple[InboxRow, ...]
    clicked: InboxRow | None


def every_row() -> tuple[InboxRow, ...]:
    """Return the rows of all findings that the person may see."""
    world = current_world()
    service, now = world.decision_service, world.clock()
    statuses = world.reader.remember(
        ("findings", floor_to_slot(now, _MINUTE)),
        lambda: findings_now(world.reader, now=now),
        decisions=True,
    )
    person = signed_in(service.settings().access)
    revisions = [status.revision for status in statuses if status.revision is not None]
    visible = service.visible(person, revisions) if person else ()
    numbers = {recommendation.finding for recommendation in visible}
    return inbox_rows(
        (status for status in statuses if status.finding.number in numbers),
        service.settings(),
        urgent=frozenset(fact.finding for fact in urgent_now() if fact.finding),
        saved=saved_by_finding(),
    )


def rows_in_scope(every: Sequence[InboxRow]) -> tuple[InboxRow, ...]:
    """Return the rows of the jobs that are looked at; of what is no job, those of the place."""
    return tuple(chosen_rows(every, FindingChoice(all=True, **_scope())))


def _scope() -> dict[str, Any]:
    """Return what the header narrows every page to, as filters of findings."""
    names = {"namespace": "team", "team": "account"}
    return {names.get(name, name): value for name, value in current_scope().chosen.items()}


def choose_rows(every: Sequence[InboxRow]) -> list[InboxRow]:
    """Ask for filters, search and order, and what to do with what is ticked; give the rows."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="inbox-choice"):
        rows = listed_rows(every, *_ask_choice(every))
        bulk_buttons(_ticked_before(rows))
    return rows


def _ask_choice(rows: Sequence[InboxRow]) -> tuple[FindingChoice, FindingOrder, bool]:
    """Ask for filters, search and order; all of them live in the address."""
    search = str(
        st.text_input(
            "Search",
            key="q",
            bind="query-params",
            width=165,
            placeholder="Search",
            label_visibility="collapsed",
        )
    )
    state = choose("State", STATES, "state", bare=165)
    kinds = {row.revision.action.spec.title: row.revision.action for row in rows}
    with st.popover("Filter and sort", icon=":material/filter_list:"):
        order = choose("Sort", list(FindingOrder), "sort")
        kind = choose("Kind of change", _names(kinds), "kind")
        owner = choose("Owner", _names(row.owner for row in rows), "owner")
        risk = choose("Risk", [ALL, "low", "medium", "high"], "risk")
        urgent = choose("Urgent alone", [ALL, "yes"], "urgent")
    choice = replace(
        choice_of_state(state),
        **_scope(),
        kind=kinds.get(kind),
        risk=None if risk == ALL else Risk(risk),
        owner="" if owner == ALL else owner,
        search=search.strip(),
    )
    return choice, FindingOrder(order), urgent != ALL


def _names(names: Iterable[str]) -> list[str]:
    return [ALL, *sorted({name for name in names if name})]


def listed_rows(
    rows: Sequence[InboxRow], choice: FindingChoice, order: FindingOrder, urgent: bool
) -> list[InboxRow]:
    """Return the rows of the list, in an order that stands still while the choice does."""
    matches, question = chosen_rows(rows, choice, order, urgent=urgent), (choice, order, urgent)
    before: tuple[object, list[int]] | None = st.session_state.get(_ORDER)
    # A grid that was not drawn in the last run has been left: who comes back finds it sorted anew.
    if before is None or before[0] != question or _GRID not in st.session_state:
        numbers = [row.number for row in matches]
        st.session_state.pop(_GRID, None)
    else:
        numbers = steady(matches, before[1], rows)
    st.session_state[_ORDER] = (question, numbers)
    by_number = {row.number: row for row in rows}
    return [by_number[number] for number in numbers][:_SHOWN]


def frame_of(rows: Sequence[InboxRow], now: datetime, currency: str) -> pd.DataFrame:
    """Return the rows as the table that people see; unknown stays empty."""
    return pd.DataFrame(
        {
            "finding": [row.reference for row in rows],
            "what": [
                f"{'⚠ ' if row.urgent else ''}{row.revision.action.spec.title}" for row in rows
            ],
            "GPUs": [_cell(row.gpus, places=2) for row in rows],
            f"{currency}/day": [
                _cell(None if row.worth is None else row.worth.central) for row in rows
            ],
            "target": [row.revision.target for row in rows],
            "state": [row.state for row in rows],
            "risk": [str(row.revision.risk) for row in rows],
            "since": [age_text(row.status.finding.opened_at, now) for row in rows],
            "kWh/day": [_cell(row.energy_a_day) for row in rows],
            "namespace": [row.revision.namespace for row in rows],
            "owner": [row.owner for row in rows],
        }
    )


def _cell(value: float | None, places: int = 12) -> float | None:
    return None if value is None else round(three_digits(value), places)


def findings_grid(rows: Sequence[InboxRow], currency: str) -> Selected:
    """Show the list; give what is selected of it."""
    frame = frame_of(rows, current_world().clock(), currency)
    number = st.column_config.NumberColumn
    config = {
        "finding": st.column_config.TextColumn(width=60, pinned=True),
        "what": st.column_config.TextColumn(width=195),
        "GPUs": number(width=60, help="GPUs that it would free, on average over a day"),
        f"{currency}/day": number(width=75, format="%.1f", help=f"Advice has none{money_note()}"),
        "target": st.column_config.TextColumn(width=200),
        "state": st.column_config.TextColumn(width=110),
        "risk": st.column_config.TextColumn(width=65),
        "since": st.column_config.TextColumn(width=60),
        "kWh/day": number(width=75),
    }
    drawn = st.dataframe(
        frame,
        hide_index=True,
        key=_GRID,
        height=grid_height(min(len(rows), _ROWS_HIGH)),
        column_config=config,
        placeholder="—",
        on_select="rerun",
        selection_mode=["multi-row", "single-cell"],
        alt="Findings, one a row. Click a row to open it, tick several to decide on them at once.",
    )
    selection = drawn.selection
    cells = [int(cell[0]) for cell in selection.cells if int(cell[0]) < len(rows)]
    return Selected(
        ticked=tuple(rows[place] for place in selection.rows if place < len(rows)),
        clicked=rows[cells[0]] if cells else None,
    )


def _ticked_before(rows: Sequence[InboxRow]) -> tuple[InboxRow, ...]:
    """Return the rows that are ticked in the list that is about to be drawn."""
    state = st.session_state.get(_GRID)
    places = state.selection.rows if state is not None else ()
    return tuple(rows[place] for place in places if place < len(rows))


def bulk_buttons(ticked: Sequence[InboxRow]) -> None:
    """Offer what can be done with all that is ticked; always there, so that nothing moves."""
    world = current_world()
    service = world.decision_service
    if current_role() not in _DECIDING_ROLES or world.reader.recording() is not None:
        return
    applies = service.settings().apply.enabled
    targets = tuple((row.reference, row.revision) for row in ticked)
    label = f"Decide on {len(ticked)} selected" if ticked else "Tick rows to decide on several"
    with st.popover(label, disabled=not targets):
        for row in map(DECISIONS.__getitem__, BULK_WISHES):
            if applies or not row.changes:
                label, key = f"{row.label} selected", f"bulk-{row.wish}"
                decision_button(row.wish, targets, key=key, label=label, wide=True)


def open_row(
    rows: Sequence[InboxRow], every: Sequence[InboxRow], selected: Selected
) -> InboxRow | None:
    """Return the finding that is open: clicked, else alone ticked, else of the address, else first.

    The address follows what a person opens.
    """
    alone = selected.ticked[0] if len(selected.ticked) == 1 else None
    picked = selected.clicked or alone
    if picked is not None:
        st.query_params["finding"] = picked.reference
        return picked
    query = st.query_params.get("finding", "")
    if query:
        return next((row for row in every if row.reference.casefold() == query.casefold()), None)
    return rows[0] if rows else None


def findings_table(rows: Sequence[InboxRow], name: str) -> None:
    """Show a few findings on another page; each number leads to the finding."""
    unit = next((cost.unit for row in rows if (cost := row.revision.savings.cost)), "money")
    links = {"finding": "findings?finding="}
    if all(row.revision.job_id for row in rows):
        links["target"] = "jobs?job="
    table(
        frame_of(rows, current_world().clock(), unit),
        name,
        links=links,
        exported=False,
        opens=opener_of_rows("findings", [{"finding": row.reference} for row in rows]),
    )
