"""Sliders that solve a copy of the plan's problem; what they find is shown and not kept."""

import pandas as pd
import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.common.what_if_document import difference_rows
from dashboard.cycle.what_if import WHAT_IF_SETTINGS, WhatIf, read_basis, what_if
from dashboard.web.access.identity import current_world
from dashboard.web.frame.page import number, table
from data.base.counts import count_text
from data.base.errors import TrimtabError
from data.settings.all_settings import Settings

_SLIDERS = {
    "headroom": ("Headroom above the q90 of demand, share", 0.0, 1.0, 0.05),
    "shortfall-price": ("Price of a missing GPU-hour, in rents of one", 0.0, 100.0, 1.0),
    "carbon-price": ("Carbon price, {currency} per tonne", 0.0, 500.0, 5.0),
    "electricity-price": ("Electricity, {currency} per kWh", 0.0, 1.0, 0.01),
    "churn": ("Price of leaving the announced plan, share of a job's cost", 0.0, 0.5, 0.01),
}
_RESULT_KEY = "what-if-found"


@st.fragment
def what_if_panel(plan_id: str) -> None:
    """Show the sliders, and the difference that they make to the plan in force."""
    world = current_world()
    settings = world.settings.settings
    st.header("What if")
    st.caption(
        "A copy of the plan's problem is solved again under other settings, within seconds. It is "
        "not kept, replaces no plan and leads to no recommendation. To keep it, change the "
        "settings."
    )
    with st.form("what-if"):
        columns = st.columns(len(_SLIDERS))
        knobs = {
            name: _slider(column, name, settings)
            for column, name in zip(columns, _SLIDERS, strict=True)
        }
        pressed = st.form_submit_button("Solve a copy")
    turned = {name: value for name, value in knobs.items() if value != _of(settings, name)}
    if pressed:
        _into_address(turned)
    answer = st.session_state.get(_RESULT_KEY)
    is_asked = any(name in st.query_params for name in _SLIDERS)
    if pressed or (is_asked and (answer is None or answer[:2] != (plan_id, turned))):
        st.session_state[_RESULT_KEY] = (plan_id, turned, _solved(settings, turned))
    answer = st.session_state.get(_RESULT_KEY)
    if answer is not None and answer[0] == plan_id and answer[2] is not None:
        _show(answer[1], answer[2])


def _into_address(turned: dict[str, float]) -> None:
    """Keep what is turned in the address: whoever opens it sees the same comparison."""
    for name in _SLIDERS:
        if name in turned:
            st.query_params[name] = f"{turned[name]:g}"
        elif name in st.query_params:
            del st.query_params[name]


def _start_of(name: str, in_force: float, low: float, high: float) -> float:
    """Return the start of a slider: as the address says where it can be read, else as in force."""
    try:
        value = float(st.query_params.get(name, ""))
    except ValueError:
        return in_force
    return value if low <= value <= high else in_force


def _slider(column: "st.delta_generator.DeltaGenerator", name: str, settings: Settings) -> float:
    in_force = _of(settings, name)
    title, low, high, step = _SLIDERS[name]
    high = max(high, in_force)
    return float(
        column.slider(
            title.format(currency=settings.energy.currency),
            low,
            high,
            _start_of(name, in_force, low, high),
            step,
            key=f"what-if-{name}",
        )
    )


def _of(settings: Settings, name: str) -> float:
    """Return the value in force."""
    section, field = WHAT_IF_SETTINGS[name]
    return float(getattr(getattr(settings, section), field))


def _solved(settings: Settings, knobs: dict[str, float]) -> WhatIf | None:
    reader = current_world().reader
    with st.spinner("Reading what the plan was made from, and solving the copy …"):
        try:
            basis = reader.remember("what-if", lambda: read_basis(reader, settings))
            return what_if(basis, settings, knobs)
        except TrimtabError as error:
            st.error(markdown(str(error)))
            return None


def _show(knobs: dict[str, float], result: WhatIf) -> None:
    turned = ", ".join(f"{name} {value:g}" for name, value in knobs.items()) or "nothing turned"
    saved = result.current.money - result.changed.money
    st.markdown(
        markdown(
            f"With {turned}: {number(abs(saved), result.settings.energy.currency)} "
            f"{'less' if saved >= 0 else 'more'} than the plan in force at the same prices, "
            f"solved in {result.seconds:.2g} s to within {100 * result.gap_ratio:.2f} %."
        )
    )
    rows = difference_rows(result.current, result.changed, result.settings.energy.currency)
    table(pd.DataFrame(rows), "what-if")
    notes = [
        f"Energy of {count_text(result.changed.unknown_jobs, 'job')} is not known and left out."
        if result.changed.unknown_jobs
        else "",
        f"{count_text(result.left_out, 'job')} of the plan ended: left out."
        if result.left_out
        else "",
    ]
    st.caption(
        " ".join(
            [
                "Jobs alone, both plans at the same prices; energy of nodes is not in it.",
                *filter(None, notes),
            ]
        )
    )
