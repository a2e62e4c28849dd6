"""Power of jobs without readings: from their utilization, by the fleet's own law.

Their source never reported it, or too little on as many boards as now. An estimate, named as one in
the forecast with the error that the power model had on boards it had not seen; `missing` still says
why none is known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.jobs import Job
from data.records.forecasts import DemandForecast, ForecastSkipped, QuantilePath, Quantity
from forecasting.power.model import PowerModel
from forecasting.power.records import PowerSamples
from forecasting.power.training import fit_power_models
from forecasting.series.demand_series import Values

HOLDS_MEMORY_RATIO = 0.05
"""A board with more of its memory in use is held, whoever holds it."""


def readings_by_model(samples: pd.DataFrame) -> dict[tuple[str, str], PowerSamples]:
    """Return the readings of whole boards by GPU model and utilization signal.

    `samples` has the columns of data.facts.columns.SAMPLES. MIG instances are left out: their
    board's power is not theirs. Readings of one job, or of one free board, belong together.
    """
    full_boards = samples[(samples["mig_instance"] == "") & (samples["utilization_signal"] != "")]
    readings = {}
    for (model, signal), rows in full_boards.groupby(["gpu_model", "utilization_signal"]):
        share = rows["memory_used_mib"] / rows["memory_total_mib"].where(
            rows["memory_total_mib"] > 0
        )
        in_use = (rows["job_id"] != "") | (share > HOLDS_MEMORY_RATIO)
        holder = rows["job_id"].where(rows["job_id"] != "", rows["gpu_uuid"])
        readings[(str(model), str(signal))] = PowerSamples(
            power_watts=rows["power_watts"].to_numpy(dtype="float64"),
            utilization=rows["utilization_ratio"].to_numpy(dtype="float64"),
            allocated=np.asarray(in_use, dtype=np.float64),
            cap_watts=rows["power_limit_watts"].to_numpy(dtype="float64"),
            group=pd.factorize(holder)[0].astype("int64"),
        )
    return readings


MODEL = "power-model"
Forecast = DemandForecast | ForecastSkipped
PowerModels = Mapping[tuple[str, str], PowerModel]
"""By GPU model and utilization signal."""


def power_models(readings: pd.DataFrame, catalogue: GpuCatalogue) -> PowerModels:
    """Return models learned from a fleet's readings (columns SAMPLES), else the catalogue's law."""
    samples = readings_by_model(readings)
    signals = {signal for _model, signal in samples} | set(readings["utilization_signal"]) - {""}
    return {
        (name, signal): model
        for signal in signals
        for name, model in fit_power_models(
            {model: sample for (model, of), sample in samples.items() if of == signal},
            catalogue,
            signal=signal,
        ).items()
    }


def with_estimated_power(
    forecasts: Sequence[Forecast],
    *,
    jobs: Sequence[Job],
    models: PowerModels,
    signals: Mapping[str, str],
) -> tuple[Forecast, ...]:
    """Return the forecasts, with a power path where power is not known but can be estimated.

    `signals` maps a job to its utilization signal. MIG slices and jobs that share their boards have
    no board to estimate.
    """
    by_id = {job.job_id: job for job in jobs}
    return tuple(
        _estimated(forecast, by_id[forecast.job_id], models, signals)
        if isinstance(forecast, DemandForecast)
        else forecast
        for forecast in forecasts
    )


def _estimated(
    forecast: DemandForecast, job: Job, models: PowerModels, signals: Mapping[str, str]
) -> DemandForecast:
    demand = forecast.path(Quantity.EFFECTIVE_GPUS)
    model = models.get((job.gpu_model, signals.get(job.job_id, "")))
    if forecast.path(Quantity.POWER) is not None or demand is None or model is None:
        return forecast
    if job.mig_profile:
        return forecast
    path = _path(demand, model, job.gpu_count)
    return replace(forecast, paths=(*forecast.paths, path))


def _path(demand: QuantilePath, model: PowerModel, boards: int) -> QuantilePath:
    """Return the boards' power: low at the low demand, central at the middle, high at the high."""

    def watts(path: Sequence[float], level: str) -> Values:
        range_watts = model.predict(np.asarray(path) / boards, allocated=1.0)
        return np.asarray(boards * getattr(range_watts, level))

    middle = watts(demand.q50, "central")
    low = np.minimum(watts(demand.q10, "low"), middle)
    high = np.maximum(watts(demand.q90, "high"), middle)
    return QuantilePath(
        quantity=Quantity.POWER,
        model=MODEL,
        q10=tuple(low.tolist()),
        q50=tuple(middle.tolist()),
        q90=tuple(high.tolist()),
        backtest=None,
        notes=(_note(model),),
    )


def _note(model: PowerModel) -> str:
    error = model.best_fit(knows_held=True).error
    if error is None:
        return f"estimated from {model.signal} by the catalogue alone; never measured here"
    return (
        f"estimated from {model.signal}: {error.mae_watts:.0f} W mean absolute error per board on "
        f"{error.samples} readings of boards and jobs left out"
    )
