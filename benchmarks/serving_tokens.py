"""Whether prefill and decode apart size a service better than requests: replayed by token lengths.

`python -m benchmarks.serving_tokens --data DIR`. The language models of ServeGen with their
mean lengths by ten minutes: a request takes seconds for its prompt and seconds for what it
generates, drawn around the lengths of its time, and prompts take a tenth or half of all seconds.
Three ways to forecast the work that comes, above the best reactive rule and with the levels and
margins of `benchmarks.serving`, chosen on the early part and judged after:

* requests: their rate, times the mean seconds of the last day;
* work: the seconds of service that arrive per second, as the product learns them of tokens;
* tokens apart: prompt and generated tokens per second, each times the seconds a token that a
  regression on the last day's slots of ten minutes gives.

Seconds of prompts and of decoding share a replica's slots: that prefill delays others is not
simulated.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from benchmarks._serving_kernel import IN_FLIGHT, RATE, Floats
from benchmarks._serving_rules import (
    AHEAD,
    LEVELS,
    SLOT,
    ReactiveRule,
    ServedMinutes,
    floor_of,
    reactive_grid,
    replayed,
)
from benchmarks._serving_traces import SERVICE_SECONDS, RequestTrace, servegen
from benchmarks.serving import EARLY, MARGINS, MAX_MORE_HOURS, WARM_UP, cheapest
from forecasting.groups.request_rates import rate_quantiles_of

RESULTS = Path(__file__).parent / "results" / "serving_tokens.md"
PREFILL_SHARES = (0.1, 0.5)
DAY = 86_400 // SLOT


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTrace:
    """A trace with what each request reads and writes, in tokens."""

    trace: RequestTrace
    prompt: Floats
    generated: Floats


def token_trace(trace: RequestTrace, data: Path, prefill_share: float, seed: int) -> TokenTrace:
    """Return the trace with seconds of service by lengths, SERVICE_SECONDS on average."""
    frame = pd.read_csv(data / "serving" / "servegen_10min_by_model.csv")
    rows = frame[frame["model"] == trace.name.removeprefix("ServeGen ")].sort_values("t_s")
    rng = np.random.default_rng(seed)
    drawn = []
    for name in ("mean_input_tokens", "mean_output_tokens"):
        known = rows[rows[name].notna() & (rows[name] > 0)]
        mean = np.interp(trace.arrivals, known["t_s"] + SLOT / 2, known[name])
        drawn.append(rng.exponential(mean))
    prompt, generated = drawn
    seconds = SERVICE_SECONDS * (
        prefill_share * prompt / prompt.mean() + (1 - prefill_share) * generated / generated.mean()
    )
    return TokenTrace(
        trace=replace(
            trace, services=seconds, service_scv=float(seconds.var() / seconds.mean() ** 2)
        ),
        prompt=prompt,
        generated=generated,
    )


def per_slot(trace: RequestTrace, values: Floats) -> Floats:
    """Return the sums of what came by slot, per second."""
    slots = int(trace.seconds // SLOT)
    number = (trace.arrivals // SLOT).astype(np.int64)
    inside = number < slots
    return np.bincount(number[inside], weights=values[inside], minlength=slots) / SLOT


def highest_ahead(series: Floats, first: int) -> dict[str, Floats]:
    """Return, by level and slot from `first`, the highest of the next AHEAD slots as forecast."""
    found = {level: np.zeros(len(series)) for level in LEVELS}
    for origin in range(first, len(series)):
        quantiles = rate_quantiles_of([(0, series[:origin])], AHEAD)[0]
        for level in LEVELS:
            values = getattr(quantiles, level)
            found[level][origin] = 0.0 if values is None else values.max()
    return found


def works(tokens: TokenTrace, first: int) -> dict[str, dict[str, Floats]]:
    """Return the work foreseen (busy seconds per second) by way, level and slot from `first`."""
    trace = tokens.trace
    rates = per_slot(trace, np.ones(len(trace.arrivals)))
    work = per_slot(trace, trace.services)
    prompt, generated = per_slot(trace, tokens.prompt), per_slot(trace, tokens.generated)
    mean, each = np.zeros(len(rates)), np.zeros((len(rates), 2))
    for origin in range(first, len(rates)):
        day = slice(origin - DAY, origin)
        mean[origin] = work[day].sum() / rates[day].sum()
        each[origin] = nnls(np.column_stack([prompt[day], generated[day]]), work[day])[0]
    by_rate, by_work = highest_ahead(rates, first), highest_ahead(work, first)
    by_prompt, by_generated = highest_ahead(prompt, first), highest_ahead(generated, first)
    return {
        "requests": {level: by_rate[level] * mean for level in LEVELS},
        "work": by_work,
        "tokens apart": {
            level: by_prompt[level] * each[:, 0] + by_generated[level] * each[:, 1]
            for level in LEVELS
        },
    }


def chosen(
    tokens: TokenTrace, rule: ReactiveRule, foreseen: dict[str, Floats], most: float, name: str
) -> ServedMinutes:
    """Return the setting that misses fewest early minutes at no more than `most` GPU-hours."""
    trace = tokens.trace
    minutes = int(trace.seconds // 60)
    first, last = int(WARM_UP * minutes), int(EARLY * minutes)
    served = [
        replayed(
            trace,
            f"{name}: {level} × {margin:g}",
            rule,
            floor_of(trace, work * margin / trace.service_seconds),
        )
        for level, work in foreseen.items()
        for margin in MARGINS
    ]
    affordable = [entry for entry in served if entry.part(first, last)[1] <= most]
    return min(
        affordable or served, key=lambda entry: entry.part(first, last)[:: 1 if affordable else -1]
    )


def table(tokens: TokenTrace, prefill_share: float) -> list[str]:
    """Return the lines of one trace."""
    trace = tokens.trace
    minutes = int(trace.seconds // 60)
    first, last = int(WARM_UP * minutes), int(EARLY * minutes)
    reactive = [replayed(trace, rule.name, rule) for rule in reactive_grid()]
    best = cheapest(
        [
            cheapest([served for served in reactive if served.rule.kind == kind], first, last)
            for kind in (IN_FLIGHT, RATE)
        ],
        first,
        last,
    )
    most = MAX_MORE_HOURS * best.part(first, last)[1]
    rows = [best]
    for name, foreseen in works(tokens, first * 60 // SLOT).items():
        rows.append(chosen(tokens, best.rule, foreseen, most, name))
    seconds = per_slot(trace, trace.services) / per_slot(trace, np.ones(len(trace.arrivals)))
    low, high = np.quantile(seconds[np.isfinite(seconds)], (0.05, 0.95))
    lines = [
        "",
        f"## {trace.name}, prompts {prefill_share:.0%} of the seconds",
        "",
        f"Mean seconds of a request by ten minutes: {low:.1f} to {high:.1f} (5 % to 95 %).",
        "",
        "| rule | missed, early | GPU-hours, early | missed, judged | GPU-hours, judged |",
        "|---|---:|---:|---:|---:|",
    ]
    for served in rows:
        early, late = served.part(first, last), served.part(last, minutes)
        lines.append(
            f"| {served.name} | {early[0]} | {early[1]:,.0f} | {late[0]} | {late[1]:,.0f} |"
        )
    return lines


def main() -> None:
    """Print the tables and write them to benchmarks/results/serving_tokens.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    data = Path(parser.parse_args().data)
    if not (data / "serving").is_dir():
        print(f"No request traces in {data}/serving.")
        return
    lines = (__doc__ or "").splitlines()[2:]
    for number, trace in enumerate(servegen(data)):
        for share in PREFILL_SHARES:
            found = table(token_trace(trace, data, share, seed=20 + number), share)
            print("\n".join(found), flush=True)
            lines += found
    RESULTS.write_text("\n".join(lines).strip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
