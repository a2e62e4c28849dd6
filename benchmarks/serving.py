"""Recorded demand of services replayed under rules that order replicas, with cold starts.

`python -m benchmarks.serving --data DIR [--full] [--draws N]`. Every request waits in one queue for
a slot of a replica; a replica is there 2 to 8 minutes after its order. A minute is missed when more
requests of it wait longer than promised than the objective lets. Settings are chosen on the early
part of each trace, and judged on the later part. Requests of BurstGPT and ServeGen are drawn from
their rates: with a dozen missed minutes one draw decides little, so that N more of ServeGen's are
added up. Prompts and what is generated are told apart in [serving_tokens.md](serving_tokens.md).
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks._serving_kernel import IN_FLIGHT, RATE
from benchmarks._serving_rules import (
    LEVELS,
    NO_RULE,
    SLOT,
    ReactiveRule,
    ServedMinutes,
    floor_of,
    forecast_rates,
    last_value_floor,
    oracle_floor,
    reactive_grid,
    replayed,
)
from benchmarks._serving_traces import RequestTrace, burstgpt, images, servegen, shuffled

RESULTS = Path(__file__).parent / "results" / "serving.md"
WARM_UP, EARLY = 0.25, 0.625
"""Shares of a trace: history alone, then what settings are chosen on, up to EARLY."""
MAX_MISSED = 0.005
"""Share of the early minutes that a setting may miss to be taken."""
MARGINS = (1.0, 1.1, 1.2, 1.3, 1.4)
LAST_MARGINS = (1.0, 1.2, 1.4, 1.7, 2.0)
LEANER_HOURS = 0.9
MAX_MORE_HOURS, MAX_MISSED_RATIO, FEWER_HOURS = 1.05, 0.5, 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTrace:
    """The chosen settings of one trace, the best reactive rule first; `split` are its minutes."""

    trace: RequestTrace
    split: tuple[int, int, int]
    reactive: ServedMinutes
    rows: tuple[ServedMinutes, ...]
    forecast: ServedMinutes
    lean: ServedMinutes

    def early(self, served: ServedMinutes) -> tuple[int, float]:
        """Return minutes missed and GPU-hours of the part that settings are chosen on."""
        return served.part(self.split[0], self.split[1])

    def late(self, served: ServedMinutes) -> tuple[int, float]:
        """Return minutes missed and GPU-hours of the part that is judged."""
        return served.part(self.split[1], self.split[2])


def cheapest(found: Sequence[ServedMinutes], first: int, last: int) -> ServedMinutes:
    """Return the one of fewest GPU-hours that misses few minutes; if none does, misses fewest."""
    most = MAX_MISSED * (last - first)

    def order(served: ServedMinutes) -> tuple[float, float]:
        missed, hours = served.part(first, last)
        return max(0.0, missed - most), hours

    return min(found, key=order)


def leaner(
    found: Sequence[ServedMinutes], best: ServedMinutes, first: int, last: int
) -> list[ReactiveRule]:
    """Return the rule of fewest misses among those that hold a tenth less than the best, if any."""
    most = LEANER_HOURS * best.part(first, last)[1]
    fits = [served for served in found if served.part(first, last)[1] <= most]
    return [min(fits, key=lambda served: served.part(first, last)).rule] if fits else []


def affordable(
    by_level: Sequence[Sequence[ServedMinutes]], max_hours: float, part: tuple[int, int]
) -> ServedMinutes:
    """Return the setting of fewest misses among each level's largest affordable margin.

    A larger margin asks for no fewer replicas, so that a smaller one which misses as few or fewer
    minutes does so by chance. If none is affordable: that of fewest GPU-hours.
    """
    largest = [
        fits[-1]
        for found in by_level
        if (fits := [served for served in found if served.part(*part)[1] <= max_hours])
    ]

    def order(served: ServedMinutes) -> tuple[float, float]:
        missed, hours = served.part(*part)
        return (missed, -hours) if largest else (hours, missed)

    return min(largest or [served for found in by_level for served in found], key=order)


def judged(trace: RequestTrace) -> JudgedTrace:
    """Replay every setting of every rule, and choose."""
    minutes = int(trace.seconds // 60)
    split = (int(WARM_UP * minutes), int(EARLY * minutes), minutes)
    first, last = split[:2]
    reactive = [replayed(trace, rule.name, rule) for rule in reactive_grid()]
    kinds = [
        cheapest([served for served in reactive if served.rule.kind == kind], first, last)
        for kind in (IN_FLIGHT, RATE)
    ]
    best = cheapest(kinds, first, last)
    lasts = [
        replayed(trace, f"last value × {margin:g}", NO_RULE, last_value_floor(trace, margin))
        for margin in LAST_MARGINS
    ]
    oracles = [
        replayed(trace, "clairvoyant", NO_RULE, oracle_floor(trace, margin)) for margin in MARGINS
    ]
    rates = forecast_rates(trace, first * 60 // SLOT)
    floors = {
        (level, margin): floor_of(trace, rates[level] * margin, SLOT)
        for level in LEVELS
        for margin in MARGINS
        if rates[level].any()
    }

    def forecasts(
        rule: ReactiveRule, words: str, levels: Sequence[str] = LEVELS
    ) -> list[ServedMinutes]:
        return [
            replayed(trace, f"{words} {level} × {margin:g}, never below {rule.name}", rule, floor)
            for (level, margin), floor in floors.items()
            if level in levels
        ]

    missed, hours = best.part(first, last)
    forecast = affordable(
        [forecasts(best.rule, "Trimtab", (level,)) for level in LEVELS],
        MAX_MORE_HOURS * hours,
        (first, last),
    )
    under = [
        served
        for rule in leaner(reactive, best, first, last)
        for served in forecasts(rule, "Trimtab, lean:", ("q50", "q90"))
    ]
    as_good = [served for served in under if served.part(first, last)[0] <= missed]
    lean = min(
        as_good or [*under, forecast],
        key=lambda served: served.part(first, last)[:: -1 if as_good else 1],
    )
    chosen = (*kinds, cheapest(lasts, first, last), forecast, lean)
    return JudgedTrace(
        trace=trace,
        split=split,
        reactive=best,
        rows=(*chosen, cheapest(oracles, first, last)),
        forecast=forecast,
        lean=lean,
    )


def table(found: JudgedTrace) -> list[str]:
    """Return the lines of one trace."""
    trace, (start, middle, end) = found.trace, found.split
    lines = [
        "",
        f"## {trace.name}",
        "",
        (
            f"{len(trace.arrivals):,} requests over {end / 1440:.1f} days; chosen on days "
            f"{start / 1440:.1f} to {middle / 1440:.1f}, judged after. {trace.slots} at once on a "
            f"replica, {trace.service_seconds:.1f} s each, gaps' scv {trace.arrival_scv:.1f}; "
            f"{trace.objective.share:.0%} within {trace.objective.wait_seconds:g} s."
        ),
        "",
        "| rule | missed, early | GPU-hours, early | missed, judged | GPU-hours, judged |",
        "|---|---:|---:|---:|---:|",
    ]
    for served in found.rows:
        early, late = found.early(served), found.late(served)
        best = " (best reactive)" if served is found.reactive else ""
        lines.append(
            f"| {served.name}{best} | {early[0]} | {early[1]:,.0f} | {late[0]} | {late[1]:,.0f} |"
        )
    return lines


def verdict(found: JudgedTrace) -> str:
    """Return the line of the yardstick."""
    missed, hours = found.late(found.reactive)
    ours, lean = found.late(found.forecast), found.late(found.lean)
    half = ours[0] <= MAX_MISSED_RATIO * missed and ours[1] <= MAX_MORE_HOURS * hours
    same = lean[0] <= missed and lean[1] <= FEWER_HOURS * hours
    note = " (nothing to halve)" if missed == 0 else ""
    return (
        f"* {found.trace.name}: the best reactive rule missed {missed} minutes{note} at "
        f"{hours:,.0f} GPU-hours; Trimtab {ours[0]} at {ours[1] / hours - 1:+.1%}, "
        f"lean {lean[0]} at {lean[1] / hours - 1:+.1%}: {'met' if half or same else 'missed'}"
    )


def further_draws(data: Path, draws: int) -> Iterator[str]:
    """Yield a line of the yardstick for each model of ServeGen, over so many further draws.

    Settings are chosen anew on the early part of each draw.
    """
    by_model = zip(*(servegen(data, draw) for draw in range(1, draws + 1)), strict=True)
    for traces in by_model:
        judgements = [judged(trace) for trace in traces]
        (missed, hours), (ours, our_hours) = (
            np.sum(parts, axis=0)
            for parts in zip(
                *((found.late(found.reactive), found.late(found.forecast)) for found in judgements),
                strict=True,
            )
        )
        met = ours <= MAX_MISSED_RATIO * missed and our_hours <= MAX_MORE_HOURS * hours
        yield (
            f"* {traces[0].name}, {draws} further draws: the best reactive rules missed "
            f"{missed:.0f} minutes at {hours:,.0f} GPU-hours; Trimtab {ours:.0f} at "
            f"{our_hours / hours - 1:+.1%}: {'met' if met else 'missed'}"
        )


def main() -> None:
    """Print the tables and write them to benchmarks/results/serving.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    parser.add_argument(
        "--full", action="store_true", help="all models of ServeGen, and one shuffled"
    )
    parser.add_argument("--draws", type=int, default=0, help="further draws of ServeGen's requests")
    options = parser.parse_args()
    data = Path(options.data)
    if not (data / "serving").is_dir():
        print(f"No request traces in {data}/serving.")
        return
    language = servegen(data)
    traces = [burstgpt(data), language[0], images(data)]
    if options.full:
        traces += [*language[1:], shuffled(language[1])]
    lines = (__doc__ or "").splitlines()[2:]
    said = []
    for trace in traces:
        found = judged(trace)
        lines += table(found)
        said.append(verdict(found))
        print("\n".join([*table(found), said[-1]]), flush=True)
        _write([*lines, "", *said])
    for line in further_draws(data, options.draws):
        said.append(line)
        print(line, flush=True)
        _write([*lines, "", *said])


def _write(lines: Sequence[str]) -> None:
    RESULTS.write_text("\n".join(lines).strip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
