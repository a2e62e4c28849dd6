"""The chart of phases shows every kind that was found, and no gap as zero."""

from datetime import timedelta

import numpy as np
import pytest
from factories import NOW

from dashboard.charts.job_lines import COLOUR_OF_PHASE, phase_segments
from dashboard.charts.palette import IDLE, faded
from forecasting.phases.detect import find_phases
from forecasting.phases.records import PhaseKind, Phases, Signal

WATTS = np.concatenate(
    [np.full(100, 600.0), np.full(5, 300.0), np.full(100, 600.0), np.full(60, np.nan)]
)
TIMES = [NOW + timedelta(seconds=2 * step) for step in range(len(WATTS))]


def found(values: np.ndarray = WATTS) -> Phases:
    """The phases of the series."""
    return find_phases(values, 2.0)


def test_every_kind_has_a_trace_of_its_own() -> None:
    """Dips and unknown time are blocks with a name in the legend; steady work is the line."""
    figure = phase_segments(TIMES, WATTS.tolist(), found())
    assert [entry.name for entry in figure.data] == [
        "evaluation-or-checkpoint",
        "unknown",
        "measured",
    ]
    dip = figure.data[0]
    assert [dip.x[0], dip.x[2]] == [
        TIMES[100].replace(tzinfo=None),
        TIMES[105].replace(tzinfo=None),
    ]


def test_a_gap_is_a_gap() -> None:
    """Unknown samples are not drawn and not joined."""
    line = phase_segments(TIMES, WATTS.tolist(), found()).data[-1]
    assert line.connectgaps is False
    assert np.isnan(np.array(line.y, dtype=float)[-60:]).all()
    assert 0.0 not in line.y


@pytest.mark.parametrize(
    ("signal", "title"),
    [
        (Signal.POWER, "power (W)"),
        (Signal.ACTIVITY, "effective GPUs"),
        (Signal.MEMORY, "memory (MiB)"),
    ],
)
def test_the_axis_carries_the_unit(signal: Signal, title: str) -> None:
    """The unit of the axis is that of the signal."""
    phases = find_phases(WATTS, 2.0, signal=signal)
    assert phase_segments(TIMES, WATTS.tolist(), phases).layout.yaxis.title.text == title


def test_idle_has_the_colour_of_idle() -> None:
    """Idle is drawn in the colour that means idle in every chart."""
    values = np.concatenate([np.full(300, 600.0), np.full(900, 60.0), np.full(300, 600.0)])
    times = [NOW + timedelta(seconds=2 * step) for step in range(len(values))]
    figure = phase_segments(times, values.tolist(), found(values))
    idle = next(entry for entry in figure.data if entry.name == "idle")
    assert idle.fillcolor == faded(IDLE, 0.3)


def test_every_kind_has_a_colour_or_none() -> None:
    """No kind is forgotten; only steady work has no block."""
    assert set(COLOUR_OF_PHASE) == set(PhaseKind)
    assert [kind for kind, colour in COLOUR_OF_PHASE.items() if colour is None] == ["steady"]


def test_no_two_kinds_look_alike() -> None:
    """Each kind has a colour of its own."""
    assert len(set(COLOUR_OF_PHASE.values())) == len(PhaseKind)


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_series_without_readings_is_drawn_too(length: int) -> None:
    """Nothing known is an empty line, not an error."""
    values = [None] * length
    phases = find_phases(np.full(length, np.nan), 2.0)
    assert phase_segments(TIMES[:length], values, phases).data[-1].name == "measured"
