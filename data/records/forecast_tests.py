"""How forecasts were tested, without what they foresee: what a page of all jobs needs."""

from dataclasses import dataclass

from data.records.forecasts import Backtest, Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastTest:
    """One path of one job's forecast: its model, its test, and what it rests on."""

    job_id: str
    borrowed_from: str
    quantity: Quantity
    model: str
    backtest: Backtest | None
    notes: tuple[str, ...]
    winsorised_slots: int
    censored_slots: int
