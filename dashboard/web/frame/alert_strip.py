"""Alerts in the header of every page: what cannot wait."""

import re
from urllib.parse import quote, unquote

import pandas as pd
import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.resources.alerts import UrgentFact, acknowledgements, urgent_facts
from dashboard.web.access.identity import current_role, current_world, known_name, remember_name
from dashboard.web.frame.action_button import Post, PressOutcome, action_button, name_field
from dashboard.web.frame.page import table
from data.base.clock import floor_to_slot
from data.base.counts import count_text

_NAMED, _LENGTH, _WHOLE = 3, 160, 600
_MINUTE = 60


def _text_of(fact: UrgentFact, *, whole: bool) -> str:
    # What a code means stands before the colon or semicolon; Admin has the rest, not for owners.
    what = f"{fact.what}. {fact.next_step}" if whole else re.split(r"[:;] ", fact.what)[0]
    text = markdown(f"{fact.about}: {what}", limit=_WHOLE if whole else _LENGTH)
    if fact.acknowledged_by:
        text += f" (acknowledged by {markdown(fact.acknowledged_by)})"
    if not whole:
        text += f" ([open](admin?alert={quote(fact.alert, safe='')}))"
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
        record=True,
    )


def alert_pill() -> None:
    """Show how many alerts there are; a press opens them. An owner reads of their own jobs alone.

    The page below stays where it is.
    """
    facts, is_owner = urgent_now(), current_role() == "owner"
    if not facts:
        return
    new = [fact for fact in facts if not fact.acknowledged_by]
    label = count_text(len(new), "alert") if new else f"{count_text(len(facts), 'alert')} taken on"
    with st.popover(label, icon=":material/warning:", width="content"):
        lines = [_text_of(fact, whole=is_owner) for fact in (new or facts)[:_NAMED]]
        if (more := len(facts) - len(lines)) > 0:
            lines.append(f"and {more} more")
        ways = ["[what to do](admin)"]
        if any(fact.finding for fact in facts):
            ways.insert(0, "[in Findings](findings?urgent=yes)")
        further = "" if is_owner else f" — {' · '.join(ways)}"
        st.error(f"**Urgent** ({len(facts)}): {' · '.join(lines)}{further}")


def _took_on(fact: UrgentFact) -> str:
    by, at = fact.acknowledged_by, fact.acknowledged_at
    return f"{by} at {at:%Y-%m-%d %H:%M} UTC" if by and at else ""


def _alert_card(alert: str, fact: UrgentFact | None) -> None:
    """Show the alert of the address: what to do and who takes it on, or that it is over."""
    with st.container(border=True, key="alert"):
        if fact is None:
            st.markdown(f"**{markdown(unquote(alert))}**: this alert is over, or never was.")
            if entry := acknowledgements(current_world().reader).get(alert):
                text = entry.detail.partition(" ")[2]
                st.write(
                    markdown(f"{entry.actor} took it on, {entry.at:%Y-%m-%d %H:%M} UTC: {text}")
                )
            return
        st.markdown(
            f"**{markdown(fact.about)}**: {markdown(fact.what)}. {markdown(fact.next_step)}"
        )
        if person := _took_on(fact):
            st.write(markdown(f"Acknowledged by {person}."))
            return
        action_button(
            "Acknowledge",
            key=f"acknowledge-{alert}",
            then=_tell,
            posts=[Post(name=alert, path="api/v1/urgent", body={"alert": alert})],
            fields=name_field(),
            by=known_name(),
            primary=True,
        )


def _tell(answers: PressOutcome) -> None:
    if answers.done:
        remember_name(answers.by)
    for refusal in answers.refused:
        st.toast(markdown(refusal))


def urgent_section() -> None:
    """List all that is urgent with what to do, on Admin; above it the alert of the address."""
    facts, alert = {fact.alert: fact for fact in urgent_now()}, st.query_params.get("alert", "")
    if facts or alert:
        st.header("Alerts")
    if alert:
        _alert_card(alert, facts.get(alert))
    rows = [
        {
            "what": fact.about,
            "why": fact.what,
            "alert": fact.alert,
            "finding": fact.finding or None,
            "next_step": fact.next_step.removeprefix("What to do: "),
            "since or expected": fact.at,
            "until": fact.until,
            "owner": fact.owner,
            "acknowledged by": _took_on(fact),
        }
        for fact in facts.values()
    ]
    if rows:
        prose, links = {"why": 300, "next_step": 520}, {"alert": "admin?alert="}
        table(pd.DataFrame(rows), "urgent", prose=prose, links=links)
