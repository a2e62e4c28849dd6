"""Evidence of a recommendation: the plot of its samples, every figure and factor."""

from dashboard.charts.forecast_band import forecast_band
from dashboard.common.figures import samples_text
from dashboard.web.access.identity import current_world
from dashboard.web.frame.page import UNKNOWN, chart
from data.base.units import MIB_PER_GIB
from data.records.actions import FOR_MEMORY
from data.records.forecasts import DemandForecast, Quantity
from data.records.recommendations import Recommendation


def show_demand(recommendation: Recommendation, key: str) -> None:
    """Show the demand or memory that led to it against what is held and what is forecast."""
    world = current_world()
    history = world.reader.job_history(
        recommendation.job_id,
        start=recommendation.evidence.window_start,
        end=recommendation.evidence.window_end,
        slot_seconds=world.settings.settings.planning.slot_minutes * 60,
    )
    column = "memory_used_mib" if recommendation.action in FOR_MEMORY else "effective_gpus"
    if history[column].isna().all():
        return
    stored = world.reader.forecast(recommendation.job_id, plan_id=recommendation.plan_id)
    forecast = stored if isinstance(stored, DemandForecast) else None
    if recommendation.action in FOR_MEMORY:
        job = world.reader.job(recommendation.job_id)
        limit = None if job is None or job.gpu_memory_mib is None else job.gpu_memory_mib
        figure = forecast_band(
            history,
            column,
            y_title="GiB per GPU",
            forecast=forecast,
            path=forecast.path(Quantity.MEMORY) if forecast else None,
            limit=None if limit is None else limit / MIB_PER_GIB,
            scale=1 / MIB_PER_GIB,
        )
    else:
        figure = forecast_band(
            history,
            column,
            y_title="effective GPUs",
            forecast=forecast,
            path=forecast.path(Quantity.EFFECTIVE_GPUS) if forecast else None,
            steps=[recommendation.proposed.gpu_count] * len(forecast.slot_starts)
            if forecast
            else None,
            limit=float(recommendation.now.gpu_count),
        )
    chart(figure, f"{key}-demand")


def evidence_rows(recommendation: Recommendation) -> dict[str, str]:
    """Return every figure and factor that it rests on."""
    evidence = recommendation.evidence
    utilization, memory = evidence.utilization_p95_ratio, evidence.memory_max_mib
    power = evidence.power_mean_watts
    return {
        "signal": evidence.signal or UNKNOWN,
        "samples": samples_text(evidence),
        "utilization p95": UNKNOWN if utilization is None else f"{100 * utilization:.1f} %",
        "largest memory": UNKNOWN if memory is None else f"{memory / 1024:.1f} GiB per GPU",
        "power, mean": UNKNOWN if power is None else f"{power:,.0f} W",
        "forecast": f"{evidence.forecast_model}, backtest loss "
        f"{_loss(evidence.backtest_error)} against {_loss(evidence.backtest_baseline)} of "
        "seasonal-naive",
        "may be changed": evidence.elasticity or UNKNOWN,
        "doubts": "; ".join(evidence.flags) or "none",
        "plan": f"certified gap {100 * evidence.plan_gap_ratio:.2f} %",
        "assumed": "; ".join(f"{name} = {value}" for name, value in evidence.assumed) or "nothing",
        "fallbacks": "; ".join(evidence.fallbacks) or "none",
        **dict(evidence.factors),
    }


def _loss(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g} GPU"
