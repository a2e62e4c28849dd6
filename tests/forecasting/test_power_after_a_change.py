"""After a change of its boards a job's power is forecast from what it draws on those of now."""

from datetime import timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from factories import make_job, make_samples
from forecasting_cases import AS_OF

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.columns import HISTORY, check_frame
from data.facts.jobs import Job, SchedulerFacts
from data.records.feasible_changes import AUTOSCALERS
from data.records.forecasts import DemandForecast, Quantity
from data.settings.all_settings import PlanningSettings
from forecasting.forecast import forecast_demand
from forecasting.power.estimated import power_models, with_estimated_power

REST, SLOPE = 100.0, 400.0
"""Of a board at rest, and for a board's work, W."""


def drawn(boards: float, work: float) -> float:
    """What so many boards draw at so much work."""
    return REST * boards + SLOPE * min(work, boards)


def history(held: list[float], work: float, minutes: int) -> pd.DataFrame:
    """A job that held so many boards hour by hour up to now, at the same work."""
    boards = np.repeat(held, 60 // minutes)
    times = pd.date_range(
        end=AS_OF - timedelta(minutes=minutes), periods=len(boards), freq=f"{minutes}min"
    )
    frame = pd.DataFrame(
        {
            "job_id": "a/b",
            "slot_start": times.as_unit("us"),
            "effective_gpus": np.minimum(work, boards),
            "allocated_gpus": boards,
            "memory_used_mib": 1000.0,
            "power_watts": [drawn(count, work) for count in boards],
            "sample_count": minutes,
        }
    )
    return check_frame(frame, HISTORY)


def forecast_of(frame: pd.DataFrame, minutes: int, **job: Any) -> tuple[Job, DemandForecast]:
    """The forecast of the job."""
    made = make_job("a/b", **job)
    settings = PlanningSettings(slot_minutes=minutes, horizon_slots=12 * 60 // minutes)
    (found,) = forecast_demand(frame, jobs=[made], as_of=AS_OF, settings=settings)
    assert isinstance(found, DemandForecast)
    return made, found


@pytest.mark.parametrize("minutes", [15, 60])
@pytest.mark.parametrize("work", [1.0, 4.0])
@pytest.mark.parametrize(("before", "now"), [(4, 2), (2, 4), (8, 1)])
def test_what_was_drawn_on_another_number_of_boards_is_forgotten(
    before: int, now: int, work: float, minutes: int
) -> None:
    """A service at its work and a job that takes all it has alike, on fewer boards and on more."""
    frame = history([before] * 72 + [now] * 8, work, minutes)
    _job, found = forecast_of(frame, minutes, gpu_count=now)
    path = found.path(Quantity.POWER)
    assert path is not None
    assert path.q50 == pytest.approx([drawn(now, work)] * len(path.q50), rel=0.02)
    assert found.missing == ()


@pytest.mark.parametrize("minutes", [15, 60])
@pytest.mark.parametrize("since", [0, 1, 5])
def test_until_enough_is_known_it_is_estimated_and_says_so(since: int, minutes: int) -> None:
    """By the law of the fleet from its work on the boards of now; without a law it is unknown."""
    frame = history([4.0] * 72 + [2.0] * since, 1.0, minutes)
    job, found = forecast_of(frame, minutes, gpu_count=2)
    assert found.path(Quantity.POWER) is None
    ((quantity, why),) = found.missing
    assert quantity is Quantity.POWER
    assert why == f"only {since} h on 2 GPUs are known, 6 h are needed"
    signal = {"a/b": "sm_active"}
    models = power_models(make_samples(gpus=1, minutes=60), load_gpu_catalogue())
    (told,) = with_estimated_power([found], jobs=[job], models=models, signals=signal)
    assert isinstance(told, DemandForecast)
    assert told.missing == found.missing
    path = told.path(Quantity.POWER)
    assert path is not None
    assert 0 < max(path.q50) < 2 * 700
    assert "estimated from sm_active" in path.notes[0]


@pytest.mark.parametrize(
    ("held", "job"),
    [
        ([4.0] * 72, {"gpu_count": 8}),  # the others of its boards are read by nobody
        ([np.nan] * 72, {"gpu_count": 2}),
        ([4.0] * 6, {"gpu_count": 4}),
        *(
            ([8.0, 2.0] * 36, {"gpu_count": 2, "scheduler": SchedulerFacts(managed_by=(name,))})
            for name in AUTOSCALERS
        ),
    ],
)
def test_all_else_is_forecast_as_before(held: list[float], job: dict[str, Any]) -> None:
    """Unread boards are no change, and an autoscaler's numbers come again."""
    frame = history(held, 1.0, 60).assign(effective_gpus=1.0)
    frame["power_watts"] = frame["power_watts"].fillna(500.0)
    made = make_job("a/b", **job)
    settings = PlanningSettings(slot_minutes=60, horizon_slots=12)
    (found,) = forecast_demand(frame, jobs=[made], as_of=AS_OF, settings=settings)
    assert isinstance(found, DemandForecast)
    path = found.path(Quantity.POWER)
    assert path is not None
    seen = frame["power_watts"]
    assert min(path.q50) == pytest.approx(seen.min(), rel=0.1)
    assert max(path.q50) == pytest.approx(seen.max(), rel=0.1)
