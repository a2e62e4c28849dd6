"""Every recording of a folder, read: dialect, devices, samples, and what was dropped and why.

`python -m benchmarks.dialects [--data DIR]`; real exporter output in DIR/dcgm_exposition.
"""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from collectors.readings.exposition_text import read_dcgm_text, read_prometheus_json
from data.base.errors import CollectorError
from data.catalogue.gpu_catalogue import load_gpu_catalogue

RESULTS = Path(__file__).parent / "results" / "dialects.md"
AT = datetime(2026, 1, 5, 12, tzinfo=UTC)


def row_of(path: Path) -> str:
    """Return the table's row of one recording."""
    catalogue = load_gpu_catalogue()
    try:
        collected = (
            read_prometheus_json(path, catalogue)
            if path.suffix == ".json"
            else read_dcgm_text(path, AT, catalogue)
        )
    except CollectorError as error:
        return f"| {path.name} | refused: {error} | | | |"
    samples = collected.samples
    known = [
        name
        for name in ("utilization_ratio", "memory_used_mib", "memory_total_mib", "power_watts",
                     "power_limit_watts", "energy_joules")
        if samples[name].notna().any()
    ]  # fmt: skip
    models = ", ".join(sorted(set(samples["gpu_model"])))
    dropped = ", ".join(f"{count} {reason}" for reason, count in collected.report.dropped)
    return f"| {path.name} | {models} | {len(samples)} | {', '.join(known)} | {dropped or '0'} |"


def main() -> None:
    """Print the table and write it to benchmarks/results/dialects.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--full", action="store_true", help="the same: all files are read")
    options = parser.parse_args()
    folder = Path(options.data) / "dcgm_exposition"
    files = [path for path in sorted(folder.glob("*")) if path.suffix not in (".csv", ".md")]
    lines = [
        f"{len(files)} recordings of real exporters.",
        "",
        "| recording | models | samples | known | dropped |",
        "|---|---|---:|---|---|",
        *map(row_of, files),
    ]
    text = "\n".join(lines) + "\n"
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
