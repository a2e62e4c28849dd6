"""Energy from power readings against the official kWh of published MLPerf Training runs.

`python -m benchmarks.energy --data DIR`, which holds mlperf_training_power/runs.csv and
node_power.parquet: wall power of every node, each on its own clock, every 2 s with gaps. Only runs
with an official total count. Energy is of the nodes' servers, from the first to the last reading
inside the run, as the submitters counted it, by the roll-up of a store that keeps each node's
readings as those of a board; the last columns say how much of the run's time that
is, what holding the nearest reading does for nodes whose readings begin late or end early (by more
than two sampling periods), and what it would add for all nodes. Peers: the left rectangle rule, and
the mean reading times the run's duration.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.base.units import JOULES_PER_KWH, SECONDS_PER_HOUR, SLOT_SECONDS
from data.facts.collected import Collected
from data.facts.columns import SAMPLES, check_frame
from data.facts.fleet import SourceReport, SourceState
from data.store import open_store

RESULTS = Path(__file__).parent / "results" / "energy.md"
GOAL_PERCENT = 0.5
_HEAD = (
    "| run | nodes | official (kWh) | Trimtab (kWh) | error | left rectangles | mean x duration "
    "| time seen | late nodes held | all held to the run's ends |"
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReadings:
    """Readings of one node inside its run, ascending: s since the run's start, W."""

    times_s: Floats
    power_w: Floats


def left_rectangles(node: NodeReadings) -> float:
    """Return the energy in J when every reading holds until the next."""
    return float((node.power_w[:-1] * np.diff(node.times_s)).sum())


def rolled_up(nodes: list[NodeReadings], started_at: pd.Timestamp) -> tuple[float, float]:
    """Return (energy in kWh, node-hours observed) of nodes by a store's roll-up."""
    frames = [
        pd.DataFrame(
            {
                "sampled_at": started_at + pd.to_timedelta(node.times_s, unit="s"),
                "gpu_uuid": f"GPU-{number}",
                "node": f"node-{number}",
                "gpu_index": "0",
                "gpu_model": "server",
                "power_watts": node.power_w,
            }
        )
        for number, node in enumerate(nodes)
    ]
    samples = check_frame(pd.concat(frames, ignore_index=True), SAMPLES)
    first, last = samples["sampled_at"].min(), samples["sampled_at"].max()
    with (
        tempfile.TemporaryDirectory() as folder,
        open_store(f"duckdb:///{folder}/t.duckdb") as kept,
    ):
        kept.keep(_collected(samples, first, last))
        start = first.floor(f"{SLOT_SECONDS} s").to_pydatetime()
        found = kept.reader.energy(start=start, end=last.to_pydatetime(), by="fleet")
    return float(found["energy_kwh"].sum()), float(found["observed_hours"].sum())


def _collected(samples: pd.DataFrame, first: pd.Timestamp, last: pd.Timestamp) -> Collected:
    report = SourceReport(
        source="recorded nodes",
        state=SourceState.RAN,
        reason="",
        samples=len(samples),
        dropped=(),
        completeness_ratio=None,
        warnings=(),
        window_start=first.to_pydatetime(),
        window_end=last.to_pydatetime(),
    )
    return Collected(batch_id="run", samples=samples, report=report)


def readings_of(run: pd.DataFrame, duration_s: float) -> list[NodeReadings]:
    """Return the nodes of a run; switches, readings outside the run and of 0 W or less left out."""
    inside = run[(run["t_s"] >= 0) & (run["t_s"] <= duration_s) & (run["power_w"] > 0)]
    servers = inside[inside["node"].astype(str).str.startswith("node_")]
    ordered = servers.sort_values("t_s").drop_duplicates(["node", "t_s"])
    return [
        NodeReadings(
            times_s=entry["t_s"].to_numpy(dtype=np.float64),
            power_w=entry["power_w"].to_numpy(dtype=np.float64),
        )
        for _, entry in ordered.groupby("node", observed=True)
        if len(entry) > 1
    ]


def held_to_the_ends(node: NodeReadings, duration_s: float, *, from_periods: float) -> NodeReadings:
    """Return the readings with the first and the last held to the start and stop of the run.

    Only where that is further away than so many sampling periods of the node.
    """
    least = from_periods * float(np.median(np.diff(node.times_s)))
    times, power = node.times_s, node.power_w
    if times[0] > least:
        times, power = np.append(0.0, times), np.append(power[0], power)
    if duration_s - times[-1] > least:
        times, power = np.append(times, duration_s), np.append(power, power[-1])
    return NodeReadings(times_s=times, power_w=power)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run: its official energy in kWh, ours and the peers' errors in percent."""

    name: str
    nodes: int
    official_kwh: float
    ours_kwh: float
    left_percent: float
    mean_percent: float
    late_percent: float
    ends_percent: float
    observed_ratio: float

    @property
    def ours_percent(self) -> float:
        """Our error in percent of the official energy."""
        return 100 * (self.ours_kwh / self.official_kwh - 1)


def outcome_of(
    run_id: str, official_kwh: float, run_ms: tuple[int, int], readings: pd.DataFrame
) -> Outcome:
    """Return the energies of one run that started and stopped at these Unix times, in ms."""
    duration_s = (run_ms[1] - run_ms[0]) / 1000
    nodes = readings_of(readings, duration_s)
    started_at = pd.Timestamp(run_ms[0], unit="ms", tz="UTC")

    def error(kwh: float) -> float:
        return 100 * (kwh / official_kwh - 1)

    def held(from_periods: float) -> float:
        lengthened = [
            held_to_the_ends(node, duration_s, from_periods=from_periods) for node in nodes
        ]
        return rolled_up(lengthened, started_at)[0]

    ours_kwh, observed_hours = rolled_up(nodes, started_at)
    means = sum(float(node.power_w.mean()) for node in nodes) * duration_s
    _, _, benchmark, run = run_id.split("/")
    return Outcome(
        name=f"{benchmark} {run.removeprefix('result_').split('-')[0]}_{run.rpartition('_')[2]}",
        nodes=len(nodes),
        official_kwh=official_kwh,
        ours_kwh=ours_kwh,
        left_percent=error(sum(map(left_rectangles, nodes)) / JOULES_PER_KWH),
        mean_percent=error(means / JOULES_PER_KWH),
        late_percent=error(held(2)),
        ends_percent=error(held(0)),
        observed_ratio=observed_hours * SECONDS_PER_HOUR / (duration_s * len(nodes)),
    )


def outcomes(folder: Path) -> list[Outcome]:
    """Return every run of the folder that has an official energy."""
    runs = pd.read_csv(folder / "runs.csv")
    official = runs[runs["official_total_kwh"].notna()]
    power = pd.read_parquet(
        folder / "node_power.parquet", filters=[("run_id", "in", official["run_id"].tolist())]
    )
    by_run = dict(iter(power.groupby(power["run_id"].astype(str))))
    return [
        outcome_of(
            run_id,
            float(kwh),
            (start, stop),
            by_run[run_id],
        )
        for run_id, kwh, start, stop in official[
            ["run_id", "official_total_kwh", "run_start_ms", "run_stop_ms"]
        ].itertuples(index=False)
    ]


def table(found: list[Outcome]) -> str:
    """Return the table in Markdown, with the totals of errors."""
    ours, late, ends, left, mean = (
        [getattr(outcome, f"{name}_percent") for outcome in found]
        for name in ("ours", "late", "ends", "left", "mean")
    )
    lines = [
        "Wall power of nodes, MLPerf Training (Sustainable Metal Cloud, v4.0), readings every 2 s.",
        "A store keeps the readings as those of boards, and its roll-up is what is compared.",
        "Errors in percent of the official energy.",
        "",
        _HEAD,
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {outcome.name} | {outcome.nodes} | {outcome.official_kwh:.2f} | {outcome.ours_kwh:.3f} "
        f"| {outcome.ours_percent:+.2f} % | {outcome.left_percent:+.2f} % "
        f"| {outcome.mean_percent:+.2f} % | {100 * outcome.observed_ratio:.1f} % "
        f"| {outcome.late_percent:+.2f} % | {outcome.ends_percent:+.2f} % |"
        for outcome in found
    ]
    for title, over in (("mean", np.mean), ("largest", np.max)):
        figures = [f"{over(np.abs(errors)):.2f} %" for errors in (ours, left, mean, late, ends)]
        figures.insert(3, "")
        lines.append(f"| {title} of the absolute | | | | {' | '.join(figures)} |")
    within, within_late = (
        sum(abs(value) <= GOAL_PERCENT for value in errors) for errors in (ours, late)
    )
    goal = f"Within {GOAL_PERCENT} %: {within} of {len(found)} runs"
    lines += ["", f"{goal}, with late nodes held {within_late}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table and write it to benchmarks/results/energy.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="not used: all runs take seconds")
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    options = parser.parse_args()
    text = table(outcomes(Path(options.data) / "mlperf_training_power"))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
