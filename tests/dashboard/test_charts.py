"""The charts draw exactly what they are given, with units, and take no name for markup."""

import html
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from factories import NOW
from hypothesis import given
from hypothesis import strategies as st

from dashboard.charts.cost_days import COLOURS, cost_days
from dashboard.charts.fleet_image import fleet_image
from dashboard.charts.fleet_map import MEASURES, fleet_map
from dashboard.charts.forecast_accuracy import lead_accuracy
from dashboard.charts.forecast_band import fleet_timeline, forecast_band
from dashboard.charts.palette import FREE_COLOUR, IDLE, PROPOSED, USED, safe, with_opacity
from data.records.forecasts import (
    Backtest,
    DemandForecast,
    LeadAccuracy,
    QuantilePath,
    Quantity,
    lead_means,
)

SLOTS = tuple(NOW + timedelta(minutes=15 * step) for step in range(3))


def trace(figure: go.Figure, name: str) -> go.Scatter:
    """The trace of that name."""
    return next(entry for entry in figure.data if entry.name == name)


def make_fleet(*, unknown: float = 0.0) -> pd.DataFrame:
    """Two hours of ten boards."""
    return pd.DataFrame(
        {
            "slot_start": pd.date_range(NOW, periods=2, freq="1h").as_unit("us"),
            "used_gpus": [3.0, 4.0],
            "idle_allocated_gpus": [5.0 - unknown, 4.0 - unknown],
            "unknown_gpus": [unknown, unknown],
            "unattributed_gpus": [0.0, 0.0],
            "free_gpus": [2.0, 2.0],
        }
    )


def make_forecast(job_id: str, middle: float) -> DemandForecast:
    """A flat demand forecast of three slots, half a GPU either way."""
    path = QuantilePath(
        quantity=Quantity.EFFECTIVE_GPUS,
        model="seasonal-naive",
        q10=(middle - 0.5,) * 3,
        q50=(middle,) * 3,
        q90=(middle + 0.5,) * 3,
        backtest=None,
    )
    return DemandForecast(
        job_id=job_id,
        slot_starts=SLOTS,
        paths=(path,),
        missing=(),
        samples=10,
        history_slots=10,
        known_slots=10,
    )


def make_demand() -> tuple[tuple[datetime, ...], QuantilePath]:
    """The demand of one job as the store adds it up."""
    (path,) = make_forecast("a", 1).paths
    return SLOTS, path


def test_fleet_stacks_what_boards_do() -> None:
    """Used, idle and free are stacked in their colours and add up to the boards."""
    figure = fleet_timeline(make_fleet())
    assert [entry.name for entry in figure.data] == ["in use", "allocated but idle", "free"]
    assert [entry.line.color for entry in figure.data] == [USED, IDLE, FREE_COLOUR]
    assert {entry.stackgroup for entry in figure.data} == {"gpus"}
    assert [sum(values) for values in zip(*(entry.y for entry in figure.data), strict=True)] == [
        10,
        10,
    ]
    assert figure.layout.yaxis.title.text == "GPUs"


def test_unknown_utilization_is_shown_as_unknown() -> None:
    """GPUs whose utilization nobody reported are a band of their own, not idle."""
    assert list(
        trace(fleet_timeline(make_fleet(unknown=1.0)), "allocated, utilization unknown").y
    ) == [1, 1]


def test_fleet_shows_the_demand() -> None:
    """The dotted line is the median of the demand, the band its q10 and q90."""
    figure = fleet_timeline(make_fleet(), make_demand())
    assert list(trace(figure, "forecast q50").y) == [1.0, 1.0, 1.0]
    assert list(trace(figure, "forecast q10–q90").y) == [1.5] * 3 + [0.5] * 3


@pytest.mark.parametrize("with_demand", [False, True])
def test_fleet_times_are_utc(with_demand: bool) -> None:
    """The axis holds the UTC wall time; the header of the page names the zone."""
    figure = fleet_timeline(make_fleet(), make_demand() if with_demand else None)
    assert figure.layout.xaxis.title.text is None
    assert pd.Timestamp(figure.data[0].x[0]) == pd.Timestamp(NOW.replace(tzinfo=None))


def test_band_scales_history_and_forecast_alike() -> None:
    """Memory in MiB becomes GiB in line, band and dotted line; the limit is given in GiB."""
    history = pd.DataFrame(
        {
            "slot_start": pd.date_range(NOW, periods=2, freq="15min").as_unit("us"),
            "memory_used_mib": [1024.0, float("nan")],
        }
    )
    path = QuantilePath(
        quantity=Quantity.MEMORY,
        model="m",
        q10=(1024.0,) * 3,
        q50=(2048.0,) * 3,
        q90=(3072.0,) * 3,
        backtest=None,
    )
    figure = forecast_band(
        history,
        "memory_used_mib",
        y_title="GiB",
        forecast=make_forecast("a", 1),
        path=path,
        limit=80.0,
        scale=1 / 1024,
    )
    measured = trace(figure, "measured")
    assert measured.y[0] == 1.0
    assert measured.connectgaps is False
    assert pd.isna(measured.y[1])
    assert list(trace(figure, "forecast q50").y) == [2.0] * 3
    assert figure.layout.shapes[0].y0 == 80.0
    assert figure.layout.shapes[0].line.dash == "dash"


def test_plan_steps_on_top_of_the_forecast() -> None:
    """The plan is drawn as steps in the colour of what is proposed."""
    history = pd.DataFrame(
        {"slot_start": pd.Series([], dtype="datetime64[us, UTC]"), "effective_gpus": []}
    )
    figure = forecast_band(
        history,
        "effective_gpus",
        y_title="effective GPUs",
        forecast=make_forecast("a", 1),
        steps=[2, 1, 1],
    )
    plan = trace(figure, "plan")
    assert (list(plan.y), plan.line.shape, plan.line.color) == ([2, 1, 1], "hv", PROPOSED)


@given(st.text())
def test_labels_hold_no_markup(name: str) -> None:
    """Whatever a name holds, its label opens no tag and has a bounded length."""
    label = safe(name)
    assert "<" not in label
    assert ">" not in label
    assert '"' not in label
    assert len(html.unescape(label)) <= 80


def test_faded_keeps_the_colour() -> None:
    """Opacity is added to a colour, nothing else."""
    assert with_opacity("#0072B2", 0.2) == "rgba(0,114,178,0.2)"


def test_accuracy_by_lead_is_a_mean_over_series() -> None:
    """Losses relative to naive's, coverage in percent; a series whose naive is perfect is out."""
    figure = lead_accuracy(
        lead_means([
            *backtest_of(0.5, 1.0, 0.7).by_lead, *backtest_of(0.25, 1.0, 0.9).by_lead,
            *backtest_of(0.0, 0.0, 1.0).by_lead,
        ])
    )  # fmt: skip
    in_use, seasonal, coverage = figure.data
    assert list(in_use.x) == ["1 h", "24 h"]
    assert list(in_use.y) == [0.375, 0.375]
    assert list(seasonal.y) == [2.0, 2.0]
    assert list(coverage.y) == pytest.approx([100 * 2.6 / 3] * 2)


def test_leads_that_end_a_slot_later_are_one() -> None:
    """A horizon of 24 h and one of 24.25 h share a point; 25.5 h is another lead."""
    tests = [backtest_of(loss, 1.0, 0.8, last=last) for loss, last in
             ((0.2, 24.0), (0.4, 24.25), (0.9, 25.5))]  # fmt: skip
    leads = lead_means([accuracy for test in tests for accuracy in test.by_lead])
    in_use = lead_accuracy(leads).data[0]
    assert list(in_use.x) == ["1 h", "24 h", "25.5 h"]
    assert list(in_use.y) == pytest.approx([0.5, 0.3, 0.9])


def backtest_of(loss: float, naive: float, coverage: float, last: float = 24.0) -> Backtest:
    """A backtest at two leads."""
    leads = tuple(
        LeadAccuracy(
            until_hours=hours,
            loss=loss,
            naive_loss=naive,
            seasonal_naive_loss=2 * naive,
            coverage_ratio=coverage,
            origins=5,
        )
        for hours in (1.0, last)
    )
    return Backtest(losses=(), held_out_slots=9, coverage_ratio=coverage, by_lead=leads)


@given(sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6))
def test_a_node_of_any_size_is_on_the_map_whole(sizes: list[int]) -> None:
    """Real pods may all count as one node, whose boards in one row were too thin to see."""
    boards = pd.DataFrame(
        [
            {"node": f"n{node}", "cell": cell, "text": f"n{node}/{cell}",
             "gpu_uuid": f"GPU-{node}-{cell}", "work": 50.0, "allocated_ratio": 1.0}
            for node, size in enumerate(sizes)
            for cell in range(size)
        ]
    )  # fmt: skip
    figure = fleet_map(boards, MEASURES[0])
    marks = figure.data[-1]
    assert [name for (name,) in marks.customdata] == list(boards["gpu_uuid"])
    at = dict(zip(zip(marks.y, marks.x, strict=True), marks.text, strict=True))
    assert sorted(at.values()) == sorted(boards["text"])
    cells = {tuple(place) for place in np.argwhere(~np.isnan(figure.data[1].z)).tolist()}
    assert cells == set(at)  # a mark to click on for every coloured cell
    starts = figure.layout.yaxis.tickvals
    assert [at[row, 0] for row in starts] == [f"n{node}/0" for node in range(len(sizes))]
    assert max(column for _row, column in cells) < 16
    assert figure.layout.height >= 160


@given(sizes=st.lists(st.integers(1, 16), min_size=1, max_size=60), unknown=st.booleans())
def test_a_click_on_the_image_of_a_fleet_names_the_node(sizes: list[int], unknown: bool) -> None:
    """A mark for each node, in the middle of its column; its mean is that of its boards."""
    boards = pd.DataFrame(
        [
            {"node": f"n{node}", "cell": cell, "gpu_index": str(cell),
             "work": np.nan if unknown else 10.0 * cell, "allocated_ratio": 1.0}
            for node, size in enumerate(sizes)
            for cell in range(size)
        ]
    )  # fmt: skip
    image, marks = fleet_image(boards, MEASURES[0]).data
    assert [name for (name,) in marks.customdata] == [f"n{node}" for node in range(len(sizes))]
    for size, text, x, y in zip(sizes, marks.text, marks.x, marks.y, strict=True):
        column = np.asarray(image.z)[int(y - (max(sizes) - 1) / 2) :, x][: max(sizes)]
        if not unknown:
            assert np.count_nonzero(~np.isnan(column)) == size
        said = "not reported" if unknown else f"{5.0 * (size - 1):.3g} % on average"
        assert text.endswith(said)
        assert ("1 GPU<" in text) == (size == 1)


def test_a_hatched_bar_is_seen_on_white() -> None:
    """White hatching without a ground drew what nobody is known for as nothing."""
    charges = pd.DataFrame(
        {
            "start": pd.to_datetime([NOW] * len(COLOURS)),
            "state": list(COLOURS),
            "gpu_cost": 1.0,
            "electricity_cost": 0.0,
        }
    )
    for bar in cost_days(charges, unit="EUR", zone="UTC").data:
        assert bar.marker.color != "#FFFFFF"
        assert bar.marker.pattern.fillmode == "overlay"
