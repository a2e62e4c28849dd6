"""Every recording of an inference engine's metrics: which signals it gives.

`python -m benchmarks.serving_signals [--data DIR]`; recordings in DIR/serving_metrics.
"""

import argparse
from pathlib import Path

from collectors.readings.dcgm_readings import DroppedReadings
from collectors.readings.exposition_text import parse_exposition, recording_text
from collectors.readings.serving_metric_names import ServingSignal, slot_functions
from collectors.readings.serving_signals import service_samples
from data.base.clock import utc_now

RESULTS = Path(__file__).parent / "results" / "serving_signals.md"


def rows_of(path: Path) -> list[str]:
    """Return the table's rows of one recording, a replica each."""
    dropped = DroppedReadings()
    text = recording_text(path)
    series = parse_exposition(text, utc_now(), dropped, metrics=slot_functions())
    samples = service_samples(series, dropped)
    lost = ", ".join(f"{count} {reason}" for reason, count in dropped.as_pairs()) or "0"
    rows = []
    for sample in samples:
        known = [str(signal) for signal in ServingSignal if getattr(sample, signal) is not None]
        rows.append(
            f"| {path.name} | {sample.engine} | {sample.model or '–'} | {len(known)} of "
            f"{len(ServingSignal)}: {', '.join(known)} | {lost} |"
        )
    return rows


def main() -> None:
    """Print the table and write it to benchmarks/results/serving_signals.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--full", action="store_true", help="the same: all files are read")
    options = parser.parse_args()
    files = sorted((Path(options.data) / "serving_metrics").glob("*.prom"))
    lines = [
        f"{len(files)} recordings; all are excerpts of documents, so a signal that lacks here may",
        "stand in the whole exposition.",
        "",
        "| recording | engine | model | known | dropped |",
        "|---|---|---|---|---|",
        *(row for path in files for row in rows_of(path)),
    ]
    text = "\n".join(lines) + "\n"
    if files:
        RESULTS.write_text(text, encoding="utf-8")
    print(text if files else f"No recordings in {options.data}/serving_metrics.")


if __name__ == "__main__":
    main()
