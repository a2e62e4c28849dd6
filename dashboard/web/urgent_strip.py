"""The line above every page that says what cannot wait."""

import re

import pandas as pd
import streamlit as st

from dashboard.foreign_text import markdown
from dashboard.urgent import UrgentFact, urgent_facts
from dashboard.web.identity import current_role
from dashboard.web.page import table
from dashboard.web.session import current_world
from data.clock import floor_to_slot

_NAMED, _LENGTH = 3, 160
_MINUTE = 60


def _named(fact: UrgentFact) -> str:
    # What a code means stands before the colon or semicolon; Health has the rest.
    brief = re.split(r"[:;] ", fact.what, maxsplit=1)[0]
    text = markdown(f"{fact.about}: {brief}", limit=_LENGTH)
    if not fact.finding:
        return text
    return f"{text} ([{fact.finding}](recommendations?finding={fact.finding}))"


def urgent_now() -> tuple[UrgentFact, ...]:
    """Return what is urgent, made once a minute while nothing changes."""
    world = current_world()
    now = world.clock()
    return world.reader.remember(
        ("urgent", floor_to_slot(now, _MINUTE)),
        lambda: urgent_facts(world.reader, now=now),
        decisions=True,
    )


def urgent_strip() -> None:
    """Say what is urgent, to whoever may see the jobs of others."""
    facts = () if current_role() == "owner" else urgent_now()
    if not facts:
        return
    more = len(facts) - _NAMED
    lines = [*map(_named, facts[:_NAMED]), *([f"and {more} more"] if more > 0 else [])]
    points = "".join(f"\n- {line}" for line in lines)
    st.error(f"**Urgent** ([what to do](health)){points}")


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
        table(pd.DataFrame(rows), "urgent")
