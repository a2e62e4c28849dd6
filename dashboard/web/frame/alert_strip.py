"""Alerts in the header of every page: what cannot wait."""

import re
from urllib.parse import quote

import pandas as pd
import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.resources.alerts import UrgentFact, urgent_facts
from dashboard.web.access.identity import current_role, current_world
from dashboard.web.frame.page import table
from data.base.clock import floor_to_slot
from data.base.counts import count_text

_NAMED, _LENGTH, _WHOLE = 3, 160, 600
_MINUTE = 60


def _text_of(fact: UrgentFact, *, whole: bool) -> str:
    # What a code means stands before the colon or semicolon; Admin has the rest, not for owners.
    what = f"{fact.what}. {fact.next_step}" if whole else re.split(r"[:;] ", fact.what)[0]
    text = markdown(f"{fact.about}: {what}", limit=_WHOLE if whole else _LENGTH)
    if fact.tenant:
        return f"{text} ([Account](account?tenant={quote(fact.tenant, safe='')}))"
    return text + (f" ([{fact.finding}](findings?finding={fact.finding}))" * bool(fact.finding))


def urgent_now() -> tuple[UrgentFact, ...]:
    """Return the urgent facts, made once a minute while nothing changes."""
    world = current_world()
    now = world.clock()
    return world.reader.remember(
        ("urgent", floor_to_slot(now, _MINUTE)),
        lambda: urgent_facts(world.reader, now=now, settings=world.settings.settings),
        decisions=True,
    )


def alert_pill() -> None:
    """Show how many alerts there are; a press opens them. An owner reads of their own jobs alone.

    The page below stays where it is.
    """
    facts, is_owner = urgent_now(), current_role() == "owner"
    if not facts:
        return
    with st.popover(count_text(len(facts), "alert"), icon=":material/warning:", width="content"):
        lines = [_text_of(fact, whole=is_owner) for fact in facts[:_NAMED]]
        if len(facts) > _NAMED:
            lines.append(f"and {len(facts) - _NAMED} more")
        ways = ["[what to do](admin)"]
        if any(fact.finding for fact in facts):
            ways.insert(0, "[in Findings](findings?urgent=yes)")
        further = "" if is_owner else f" — {' · '.join(ways)}"
        st.error(f"**Urgent** ({len(facts)}): {' · '.join(lines)}{further}")


def urgent_section() -> None:
    """List all that is urgent with what to do, on Admin."""
    rows = [
        {
            "finding": fact.finding or None,
            "what": fact.about,
            "why": fact.what,
            "next_step": fact.next_step,
            "since or expected": fact.at,
            "until": fact.until,
            "owner": fact.owner,
        }
        for fact in urgent_now()
    ]
    if rows:
        st.header("Urgent")
        table(pd.DataFrame(rows), "urgent", prose={"why": 300, "next_step": 520})
