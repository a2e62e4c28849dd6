"""Power that nobody reported: estimated from utilization, and never passed off as measured."""

import numpy as np
import pandas as pd
from factories import H100, make_job, make_samples
from forecasting_cases import AS_OF, HOURLY, daily, history

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.forecasts import DemandForecast, ForecastSkipped, Quantity
from forecasting.forecast import forecast_demand
from forecasting.power.estimated import MODEL, power_models, with_estimated_power


def readings(boards: int = 6, minutes: int = 240) -> pd.DataFrame:
    """Boards whose power is 90 W and 5.5 W for every percent of utilization, a little noisy."""
    rng = np.random.default_rng(1)
    use = np.repeat(np.linspace(0.0, 1.0, boards), minutes)
    noise = rng.normal(0, 4, len(use))
    return make_samples(
        gpus=boards,
        minutes=minutes,
        utilization_ratio=np.clip(use + rng.normal(0, 0.02, len(use)), 0, 1),
        power_watts=90 + 550 * use + noise,
        job_id=[f"a/{entry}" for entry in np.repeat(np.arange(boards), minutes)],
    )


def test_a_missing_power_is_estimated_and_says_so() -> None:
    """Half used, two boards draw about 2 x 365 W; the path names law, error and readings."""
    jobs = [make_job("a/b", gpu_count=2), make_job("a/gone")]
    frame = history("a/b", np.full(200, 1.0) + (daily(9)[:200] - 50) / 1000)
    models = power_models(readings(), load_gpu_catalogue())
    found = with_estimated_power(
        forecast_demand(frame, jobs=jobs, as_of=AS_OF, settings=HOURLY),
        jobs=jobs,
        models=models,
        signals={"a/b": "sm_active"},
    )
    one, skipped = found
    assert isinstance(skipped, ForecastSkipped)
    assert isinstance(one, DemandForecast)
    path = one.path(Quantity.POWER)
    assert path is not None
    assert path.model == MODEL
    assert 600 < np.mean(path.q50) < 860
    assert np.mean(path.q10) < np.mean(path.q50) < np.mean(path.q90)
    assert "estimated from sm_active" in path.notes[0]
    assert "mean absolute error" in path.notes[0]
    assert one.missing == ((Quantity.POWER, "never reported by the source"),)


def test_what_was_measured_is_not_replaced_and_slices_have_no_board() -> None:
    """A reported power keeps its path; a MIG slice, a shared job and an unknown board get none."""
    measured = history("a/b", np.full(60, 1.0)).assign(power_watts=300.0)
    models = power_models(readings(), load_gpu_catalogue())
    cases = [
        (measured, make_job("a/b"), {"a/b": "sm_active"}, "mix"),
        (
            history("a/b", np.full(60, 0.5)),
            make_job("a/b", mig_profile="1g.10gb"),
            {"a/b": "sm_active"},
            None,
        ),
        (history("a/b", np.full(60, 0.5)), make_job("a/b"), {"a/b": "shared"}, None),
        (
            history("a/b", np.full(60, 0.5)),
            make_job("a/b", gpu_model="Z9"),
            {"a/b": "sm_active"},
            None,
        ),
    ]
    for frame, job, signals, expected in cases:
        (one,) = with_estimated_power(
            forecast_demand(frame, jobs=[job], as_of=AS_OF, settings=HOURLY),
            jobs=[job],
            models=models,
            signals=signals,
        )
        assert isinstance(one, DemandForecast)
        path = one.path(Quantity.POWER)
        assert (path.model if path else None) == expected


def test_without_readings_the_catalogue_speaks() -> None:
    """No board was ever measured: there is no signal, hence no model and no estimate."""
    assert power_models(readings().iloc[:0], load_gpu_catalogue()) == {}
    known = power_models(readings(boards=2), load_gpu_catalogue())
    assert (H100, "sm_active") in known
