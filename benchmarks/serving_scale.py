"""CPU time of the replicas of many services, by the path that a cycle takes.

Services of a daily pattern with noise are kept in a store, and asked for as a cycle asks: a week of
readings is read, requests are forecast for six hours, and replicas ordered for each ten minutes.
Services are independent of each other: a part of them is measured, the rest is in proportion.
"""

import argparse
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._complete_report import complete_report
from dashboard import serving_outlook
from data.collected import Collected
from data.columns import SAMPLES, SERVING, check_frame, empty_frame
from data.serving_settings import ServingSettings
from data.store import Store, open_store

RESULTS = Path(__file__).parent / "results" / "serving_scale.md"
SERVICES = 10_000
_SLOTS = 7 * 288
_NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
_PARTS = {"forecasts of requests": "rate_quantiles", "replicas for them": "replicas_for_rates"}


def fill(store: Store, services: int) -> None:
    """Keep a week of readings of so many services, one replica each."""
    rng = np.random.default_rng(7)
    start = _NOW - timedelta(days=7)
    slots = pd.date_range(start, periods=_SLOTS, freq="5min").as_unit("us")
    hours = np.arange(_SLOTS) / 12
    frames = []
    for service in range(services):
        wave = 1 + 0.6 * np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 6))
        rates = rng.uniform(0.5, 8) * wave * rng.lognormal(0, 0.15, _SLOTS)
        values: dict[str, Any] = {
            "slot_start": slots,
            "label_id": f"ml/service-{service}-0",
            "engine": "vllm",
            "model": f"model-{service}",
            "address": f"address-{service}",
            "running_requests": 4 * rates,
            "waiting_requests": 0.0,
            "finished_requests": 300 * rates,
            "request_seconds": 1_200 * rates,
            "request_count": 300 * rates,
        }
        frames.append(pd.DataFrame(values))
    store.keep(
        Collected(
            batch_id="services",
            samples=empty_frame(SAMPLES),
            jobs=(),
            report=complete_report("benchmark", 0, start=start, end=_NOW),
            serving=check_frame(pd.concat(frames, ignore_index=True), SERVING),
        )
    )


def timed(store: Store) -> tuple[int, dict[str, float]]:
    """Return how many services were sized, and the CPU seconds of all and of its parts."""
    spent = dict.fromkeys(_PARTS, 0.0)

    def counted(part: str, what: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return what(*arguments, **named)
            finally:
                spent[part] += time.process_time() - began

        return call

    plain = {part: getattr(serving_outlook, name) for part, name in _PARTS.items()}
    for part, name in _PARTS.items():
        setattr(serving_outlook, name, counted(part, plain[part]))
    try:
        began = time.process_time()
        found = serving_outlook.foreseen_serving(store.reader, ServingSettings(), _NOW)
        whole = time.process_time() - began
    finally:
        for part, name in _PARTS.items():
            setattr(serving_outlook, name, plain[part])
    sized = sum(bool(outlook.required_replicas and outlook.rates_q95) for outlook in found)
    return sized, {"all": whole} | spent


def main() -> None:
    """Print the times and write them to benchmarks/results/serving_scale.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=400, help="services that are measured")
    services = parser.parse_args().services
    with TemporaryDirectory() as folder, open_store(f"duckdb:///{folder}/store.duckdb") as store:
        fill(store, services)
        timed(store)  # what is compiled at first is no matter of the number
        sized, spent = timed(store)
    each = {part: SERVICES * seconds / services for part, seconds in spent.items()}
    each["readings, and what replicas carry"] = each["all"] - sum(each[part] for part in _PARTS)
    lines = [
        *(__doc__ or "").splitlines(),
        "",
        f"{sized} of {services} services sized, each for 36 slots of ten minutes.",
        "",
        f"| part | CPU s for {SERVICES:,} services |",
        "|---|---:|",
        *(f"| {part} | {seconds:.1f} |" for part, seconds in each.items()),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
