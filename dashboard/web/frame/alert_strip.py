"""The line above every page that says what cannot wait."""

import re
from urllib.parse import quote

import pandas as pd
import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.resources.alerts import UrgentFact, urgent_facts
from dashboard.web.access.identity import current_role, current_world
from dashboard.web.frame.page import table
from data.base.clock import floor_to_slot
from data.facts.fleet import SourceState

_NAMED, _LENGTH, _WHOLE = 3, 160, 600
_MINUTE = 60


def _name_of(fact: UrgentFact) -> str:
    # What a code means stands before the colon or semicolon; Health has the rest.
    brief = re.split(r"[:;] ", fact.what, maxsplit=1)[0]
    text = markdown(f"{fact.about}: {brief}", limit=_LENGTH)
    if fact.tenant:
        return f"{text} ([Costs](costs?tenant={quote(fact.tenant, safe='')}))"
    return text + _way_to(fact)


def _text_of(fact: UrgentFact) -> str:
    # To an owner, who has no page Health.
    text = markdown(f"{fact.about}: {fact.what}. {fact.next_step}", limit=_WHOLE)
    return text + _way_to(fact)


def _way_to(fact: UrgentFact) -> str:
    return f" ([{fact.finding}](findings?finding={fact.finding}))" if fact.finding else ""


def urgent_now() -> tuple[UrgentFact, ...]:
    """Return the urgent facts, made once a minute while nothing changes."""
    world = current_world()
    now = world.clock()
    return world.reader.remember(
        ("urgent", floor_to_slot(now, _MINUTE)),
        lambda: urgent_facts(world.reader, now=now, settings=world.settings.settings),
        decisions=True,
    )


def urgent_strip() -> None:
    """Show the alerts in one line: to an owner of their own jobs alone, with what to do."""
    facts, is_owner = urgent_now(), current_role() == "owner"
    lines = [*map(_text_of if is_owner else _name_of, facts[:_NAMED])]
    if len(facts) > _NAMED:
        lines.append(f"and {len(facts) - _NAMED} more")
    if facts:
        ways = ["[what to do](health)"]
        if not all(fact.tenant for fact in facts):
            ways.insert(0, "[in Findings](findings?urgent=yes)")
        further = "" if is_owner else f" — {' · '.join(ways)}"
        st.error(f"**Urgent** ({len(facts)}): {' · '.join(lines)}{further}")
    if not is_owner:
        _failed_sources()


def _failed_sources() -> None:
    """Show the sources that failed in the last collection."""
    failed = [
        report.source
        for report in current_world().reader.source_reports()
        if report.state is SourceState.FAILED
    ]
    if failed:
        text = markdown(f"{', '.join(failed[:_NAMED])}: the last collection failed.")
        st.warning(f"{text} [Health](health)")


def urgent_section() -> None:
    """List all that is urgent with what to do, on the page Health."""
    rows = [
        {
            "finding": fact.finding or None,
            "what": fact.about,
            "why": fact.what,
            "next_step": fact.next_step,
            "since or expected": fact.at,
        }
        for fact in urgent_now()
    ]
    if rows:
        st.subheader("Urgent")
        table(pd.DataFrame(rows), "urgent", prose={"why": 300, "next_step": 520})
