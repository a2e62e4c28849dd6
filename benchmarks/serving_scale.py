"""CPU time and memory of the replicas of many services, by the path that a cycle takes.

Services of a daily pattern with noise are kept in a store as cycles keep them, all services of a
slot together, and asked for as a cycle asks: a week of readings is read, requests are forecast for
six hours, and replicas ordered for each ten minutes. What is compiled at first does not count.
"""

import argparse
import multiprocessing
import os
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `trimtab` does, before numpy is loaded

import numpy as np
import pandas as pd

from benchmarks._complete_report import complete_report
from dashboard.serving import outlook as serving_outlook
from data.facts.collected import Collected
from data.facts.columns import SAMPLES, SERVING, check_frame, empty_frame
from data.settings.serving import ServingSettings
from data.store import Store, open_store

RESULTS = Path(__file__).parent / "results" / "serving_scale.md"
_WARM_UP = 100
_DAYS, _SLOTS = 7, 288
_NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
_PARTS = {
    "forecasts of requests": "rate_quantiles_of",
    "replicas for them": "replicas_for_rates",
    "what replicas carry": "learned_service",
}


def fill(store: Store, services: int) -> None:
    """Keep a week of readings of so many services, one replica each, a day after the other."""
    rng = np.random.default_rng(7)
    phases, levels = rng.uniform(0, 6, services), rng.uniform(0.5, 8, services)
    hours = np.arange(_SLOTS)[:, None] / 12
    names = [[f"{name}-{service}" for service in range(services)] for name in ("model", "address")]
    for day in range(_DAYS):
        start = _NOW - timedelta(days=_DAYS - day)
        waves = 1 + 0.6 * np.sin(2 * np.pi * hours / 24 + phases)
        rates = (levels * waves * rng.lognormal(0, 0.15, waves.shape)).reshape(-1)
        slots = pd.date_range(start, periods=_SLOTS, freq="5min").as_unit("us")
        values: dict[str, Any] = {
            "slot_start": slots.repeat(services),
            "label_id": [f"ml/service-{service}-0" for service in range(services)] * _SLOTS,
            "engine": "vllm",
            "model": names[0] * _SLOTS,
            "address": names[1] * _SLOTS,
            "running_requests": 4 * rates,
            "waiting_requests": 0.0,
            "finished_requests": 300 * rates,
            "request_seconds": 1_200 * rates,
            "request_count": 300 * rates,
        }
        store.keep(
            Collected(
                batch_id=f"services of day {day}",
                samples=empty_frame(SAMPLES),
                jobs=(),
                report=complete_report("benchmark", 0, start=start, end=start + timedelta(days=1)),
                serving=check_frame(pd.DataFrame(values), SERVING),
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
        found = serving_outlook.service_outlooks(store.reader, ServingSettings(), _NOW)
        whole = time.process_time() - began
    finally:
        for part, name in _PARTS.items():
            setattr(serving_outlook, name, plain[part])
    sized = sum(bool(outlook.required_replicas and outlook.rates_q95) for outlook in found)
    return sized, {"all": whole} | spent


def measured(services: int) -> tuple[int, dict[str, float], float]:
    """Return how many of so many services were sized, CPU seconds by part, and the peak in GiB.

    The peak is that of this process, which has read a store from its file and nothing else.
    """
    with TemporaryDirectory() as folder:
        for count in (_WARM_UP, services):
            url = f"duckdb:///{folder}/{count}.duckdb"
            filling = multiprocessing.get_context("spawn").Process(target=_fill, args=(url, count))
            filling.start()
            filling.join()
            with open_store(url) as store:
                sized, spent = timed(store)
    return sized, spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _fill(url: str, services: int) -> None:
    with open_store(url) as store:
        fill(store, services)


def main() -> None:
    """Print the times and write them to benchmarks/results/serving_scale.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=10_000)
    services = parser.parse_args().services
    sized, spent, peak_gib = measured(services)
    spent["readings, and the rest"] = spent["all"] - sum(spent[part] for part in _PARTS)
    lines = [
        *(__doc__ or "").splitlines(),
        "",
        f"{sized:,} of {services:,} services sized, each for 36 slots of ten minutes.",
        "",
        "| part | CPU s |",
        "|---|---:|",
        *(f"| {part} | {seconds:.1f} |" for part, seconds in spent.items()),
        "",
        f"Peak memory of the process: {peak_gib:.1f} GiB, with what DuckDB keeps of its file.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
