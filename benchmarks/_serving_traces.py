"""Recorded demand as single requests: arrivals, seconds of service, and what a replica carries.

ServeGen and BurstGPT give rates; requests are drawn from them, scaled to a service of about eight
replicas. Both publish lengths for a part of the traffic or none, so one length of service is drawn
for all. The image requests of GenTD26 are as recorded, with their own durations.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._serving_kernel import Floats
from planner.serving.queueing import ServiceLoad, WaitObjective

MEAN_REPLICAS, SLOTS, SERVICE_SECONDS = 8, 4, 16.0
MAX_SCV = 4.0
"""Of gaps: the streams of many clients together vary less than each of them."""
BURSTGPT_TOKENS = 844.0
"""Per request, over the 61 days of burstgpt_daily.csv."""
MINUTE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """One service's requests (s from its start, ascending) and what it promises.

    Gaps and services are drawn or measured; `arrival_scv` and `service_scv` tell of them.
    """

    name: str
    arrivals: Floats
    services: Floats
    slots: int
    arrival_scv: float
    service_scv: float
    objective: WaitObjective

    @property
    def seconds(self) -> float:
        """The trace's length in whole minutes."""
        return float(self.arrivals[-1] // MINUTE * MINUTE)

    @property
    def service_seconds(self) -> float:
        """The mean of what a request takes."""
        return float(self.services.mean())

    @property
    def replica_rate(self) -> float:
        """Requests per second of one replica that is always full."""
        return self.slots / self.service_seconds

    def load(self, requests_per_second: float) -> ServiceLoad:
        """Return the load of a rate."""
        return ServiceLoad(
            requests_per_second=requests_per_second,
            service_seconds=self.service_seconds,
            slots_per_replica=self.slots,
            arrival_scv=self.arrival_scv,
            service_scv=self.service_scv,
        )


def drawn(name: str, rates: Floats, window_seconds: int, scv: float, seed: int) -> RequestTrace:
    """Return requests of rates by window, linear from middle to middle; unknown is bridged."""
    rng = np.random.default_rng(seed)
    known = np.flatnonzero(np.isfinite(rates))
    bridged = np.interp(np.arange(len(rates)), known, rates[known])
    wanted = MEAN_REPLICAS * SLOTS / SERVICE_SECONDS
    scaled = bridged * (wanted / bridged.mean())
    times = np.arange(0, len(rates) * window_seconds + 1, 10.0)
    middles = (np.arange(len(rates)) + 0.5) * window_seconds
    expected = np.concatenate([[0.0], np.cumsum(np.interp(times[:-1] + 5, middles, scaled) * 10)])
    gaps = rng.gamma(1 / scv, scv, int(expected[-1] * 1.1) + 1000)
    at = np.cumsum(gaps)
    arrivals = np.interp(at[at < expected[-1]], expected, times)
    return RequestTrace(
        name=name,
        arrivals=arrivals,
        services=rng.gamma(1.0, SERVICE_SECONDS, len(arrivals)),
        slots=SLOTS,
        arrival_scv=scv,
        service_scv=1.0,
        objective=WaitObjective(wait_seconds=2.0),
    )


def servegen(data: Path, draw: int = 0) -> list[RequestTrace]:
    """Return the three language models: eight days or more by ten minutes.

    Another `draw` has other requests of the same rates.
    """
    folder = data / "serving"
    frame = pd.read_csv(folder / "servegen_10min_by_model.csv")
    clients = pd.read_parquet(folder / "servegen_10min_by_client.parquet")
    found = []
    for number, (model, rows) in enumerate(frame[frame["category"] == "language"].groupby("model")):
        rates = np.full(int(rows["t_s"].max()) // 600 + 1, np.nan)
        rates[rows["t_s"].to_numpy() // 600] = rows["req_per_s"].to_numpy()
        own = clients[clients["model"] == model]
        cv = float(np.average(own["cv"], weights=own["req_per_s"]))
        rates[rates == 0] = np.nan  # the publisher's gaps
        found.append(
            drawn(f"ServeGen {model}", rates, 600, min(cv**2, MAX_SCV), seed=number + 100 * draw)
        )
    return found


def burstgpt(data: Path) -> RequestTrace:
    """Return BurstGPT's first week by the minute; a minute of 0 had no request."""
    frame = pd.read_csv(data / "serving" / "burstgpt_week1_tokens_per_minute.csv")
    rates = frame["tokens_per_s"].to_numpy() / BURSTGPT_TOKENS
    return drawn("BurstGPT, first week", rates, MINUTE, 1.0, seed=7)


def images(data: Path) -> RequestTrace:
    """Return the image requests of GenTD26, one at a time on a replica."""
    frame = pd.read_parquet(data / "serving" / "gentd26_image_requests.parquet")
    frame = frame[(frame["exec_s"] > 0) & frame["exec_s"].notna()].sort_values("time")
    since = (frame["time"] - frame["time"].min()).dt.total_seconds().to_numpy()
    services = frame["exec_s"].to_numpy(dtype=float)
    return RequestTrace(
        name="GenTD26 images (real requests)",
        arrivals=since,
        services=services,
        slots=1,
        arrival_scv=1.0,
        service_scv=float(services.var() / services.mean() ** 2),
        objective=WaitObjective(wait_seconds=30.0),
    )


def shuffled(trace: RequestTrace, seed: int = 3) -> RequestTrace:
    """Return a trace without pattern: its blocks of ten minutes in another order."""
    block = 600.0
    rng = np.random.default_rng(seed)
    order = rng.permutation(int(trace.seconds // block))
    starts = np.searchsorted(trace.arrivals, np.arange(len(order) + 1) * block)
    pieces = [
        trace.arrivals[starts[old] : starts[old + 1]] + (new - old) * block
        for new, old in enumerate(order)
    ]
    arrivals = np.concatenate(pieces)
    return replace(
        trace,
        name=f"{trace.name}, shuffled",
        arrivals=arrivals,
        services=rng.permutation(trace.services[: len(arrivals)]),
    )
