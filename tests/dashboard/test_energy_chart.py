"""The picture of energy: stacked by who, in order of time, and plain about what is not known."""

from types import SimpleNamespace
from typing import Any

import plotly.graph_objects as go

from dashboard.charts.energy_stack import StackPart, energy_stack
from dashboard.charts.palette import FREE_COLOUR, UNATTRIBUTED_COLOUR
from dashboard.web.account.energy_parts import measured_of


def stacked(*parts: tuple[str, str, str, float | None], **measured: float | None) -> go.Figure:
    """The figure of (period, group, kind, value) parts; by default both days are whole."""
    days = measured or {"d1": 1.0, "d2": 1.0}
    return energy_stack(
        [
            StackPart(period=period, group=group, kind=kind, value=value)
            for period, group, kind, value in parts
        ],
        quantity="GPU energy",
        unit="kWh",
        period="day (UTC)",
        measured=list(days.items()),
    )


def bars(figure: go.Figure) -> dict[str, go.Bar]:
    """The layers by name, from the bottom up."""
    return {entry.name: entry for entry in figure.data if isinstance(entry, go.Bar)}


def test_the_largest_lies_at_the_bottom_and_what_is_nobodys_on_top() -> None:
    """Free time is grey, work for nobody known is hatched; both keep their meaning's colour."""
    figure = stacked(
        ("d1", "(not allocated)", "free", 9.0),
        ("d1", "small", "job", 1.0),
        ("d2", "large", "job", 5.0),
        ("d1", "(unattributed)", "unattributed", 2.0),
    )
    layers = bars(figure)
    assert list(layers) == ["large", "small", "(unattributed)", "(not allocated)"]
    assert layers["(not allocated)"].marker.color == FREE_COLOUR
    assert layers["(unattributed)"].marker.color == UNATTRIBUTED_COLOUR
    assert layers["(unattributed)"].marker.pattern.shape == "/"
    assert list(layers["large"].x) == ["d1", "d2"]
    assert list(layers["large"].y) == [None, 5.0]
    assert figure.layout.yaxis.title.text == "GPU energy (kWh)"
    assert figure.layout.barmode == "stack"


def test_many_groups_become_others() -> None:
    """Seven have a colour; the rest is one layer whose sum is theirs."""
    figure = stacked(*(("d1", f"g{size:02}", "job", float(size)) for size in range(1, 13)))
    layers = bars(figure)
    assert len(layers) == 8
    assert layers["5 others"].y[0] == 1 + 2 + 3 + 4 + 5


def test_a_bar_that_is_too_short_says_so() -> None:
    """Half a day was measured, another day nothing: no bar of zero without a word."""
    figure = stacked(("d1", "a", "job", 3.0), ("d2", "a", "job", None), d1=0.5, d2=0.0)
    assert [annotation.text for annotation in figure.layout.annotations] == [
        "50 % measured",
        "unknown",
    ]
    assert [share for _opens, share in bars(figure)["a"].customdata] == ["50.0 %", "unknown"]
    assert bars(figure)["a"].y[1] is None


def test_a_job_named_like_nobody_stays_a_job() -> None:
    """And no name is markup."""
    figure = stacked(
        ("d1", "(not allocated)", "job", 1.0),
        ("d1", "<b>x</b>", "job", 2.0),
        ("d1", "(not allocated)", "free", 4.0),
    )
    values = [(entry.name, entry.y[0]) for entry in figure.data if isinstance(entry, go.Bar)]
    assert values == [
        ("&lt;b&gt;x&lt;/b&gt;", 2.0),
        ("(not allocated)", 1.0),
        ("(not allocated)", 4.0),
    ]


def test_a_click_on_a_bar_names_its_group_and_on_several_none() -> None:
    """What nobody holds, and the others together, have no page."""
    figure = energy_stack(
        [
            StackPart(period="d1", group=name, kind=kind, value=value, opens=name * (kind == "job"))
            for name, kind, value in (
                *((f"g{size}", "job", float(size)) for size in range(1, 11)),
                ("(not allocated)", "free", 1.0),
            )
        ],
        quantity="GPU energy",
        unit="kWh",
        period="day (UTC)",
        measured=[("d1", 1.0)],
    )
    assert figure.layout.hovermode == "closest"  # else a click is one on all bars of the day
    assert {name: layer.customdata[0][0] for name, layer in bars(figure).items()} == {
        **{f"g{size}": f"g{size}" for size in range(4, 11)},
        "3 others": "",
        "(not allocated)": "",
    }


def test_a_month_begins_with_its_first_reading() -> None:
    """Days before it are no bars of unknown energy; a day without readings after it is one."""
    measured = (0.0, 0.0, 12.0, 0.0, 24.0)
    rows = [
        SimpleNamespace(start=day, board_hours=24.0, measured_hours=hours)
        for day, hours in enumerate(measured)
    ]
    statement: Any = SimpleNamespace(rows=rows, calendar=SimpleNamespace(name_of=str))
    assert list(measured_of(statement)) == [("2", 0.5), ("3", 0.0), ("4", 1.0)]
