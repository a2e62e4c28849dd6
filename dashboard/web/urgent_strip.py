"""The line above every page that says what cannot wait."""

import streamlit as st

from dashboard.foreign_text import markdown
from dashboard.urgent import UrgentFact, urgent_facts
from dashboard.web.identity import current_role
from dashboard.web.session import current_world
from data.clock import floor_to_slot

_NAMED, _LENGTH = 3, 160
_MINUTE = 60


def _named(fact: UrgentFact) -> str:
    text = markdown(f"{fact.about}: {fact.what}", limit=_LENGTH)
    if not fact.finding:
        return text
    return f"{text} ([{fact.finding}](recommendations?finding={fact.finding}))"


def urgent_strip() -> None:
    """Say what is urgent, to whoever may see the jobs of others."""
    if current_role() == "owner":
        return
    world = current_world()
    now = world.clock()
    facts = world.reader.remember(
        ("urgent", floor_to_slot(now, _MINUTE)),
        lambda: urgent_facts(world.reader, now=now),
        decisions=True,
    )
    if not facts:
        return
    more = len(facts) - _NAMED
    rest = f" And {more} more: see [Health](health)." if more > 0 else ""
    st.error(f"Urgent: {'; '.join(map(_named, facts[:_NAMED]))}.{rest}")
