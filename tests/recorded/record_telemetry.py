"""Writes the telemetry recordings anew: `python tests/recorded/record_telemetry.py`.

They are the simulated fleet (seed 7, one node, 2026-01-05 12:00 UTC) in the dialect of every
exporter, so that a change of a dialect or of the fleet shows as a diff.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from benchmarks._exporter_dialects import DIALECTS
from collectors.simulated.exposition import exposition, sample_lines
from collectors.simulated.fleet import SimulatedFleet

FOLDER = Path(__file__).parent
AT = datetime(2026, 1, 5, 12, tzinfo=UTC)
STEP_SECONDS = 300


def answers(fleet: SimulatedFleet, dialect: str) -> dict[str, object]:
    """What a Prometheus that scraped the fleet answers to range queries, by metric."""
    times = np.array([int(AT.timestamp()) - STEP_SECONDS * back for back in (2, 1, 0)])
    lines = sample_lines(fleet, fleet.at_times(times.astype(np.int64)), DIALECTS[dialect])
    found: dict[str, object] = {}
    for metric, rows in lines.items():
        series: dict[str, list[list[object]]] = {}
        for labels, value, time in rows:
            series.setdefault(labels, []).append([time, value])
        result = [
            {"metric": json_labels(labels) | {"__name__": metric}, "values": values}
            for labels, values in series.items()
        ]
        data = {"resultType": "matrix", "result": result}
        found[metric] = {"status": "success", "data": data}
    return found


def json_labels(text: str) -> dict[str, str]:
    """Labels of an exposition line as an object; the fleet's values hold no quotes."""
    return dict(part.split("=", 1) for part in text.replace('"', "").split(","))


def main() -> None:
    """Write every recording."""
    fleet = SimulatedFleet(seed=7, nodes=1)
    for dialect in DIALECTS:
        text = exposition(fleet, AT, DIALECTS[dialect])
        (FOLDER / "dcgm-text" / f"{dialect}.prom").write_text(text, encoding="utf-8")
        document = json.dumps(answers(fleet, dialect), indent=0, sort_keys=True) + "\n"
        (FOLDER / "prometheus" / f"{dialect}.json").write_text(document, encoding="utf-8")
    listed = list(answers(fleet, "dcgm").values())
    (FOLDER / "prometheus-json" / "range.json").write_text(json.dumps(listed) + "\n")
    rows = fleet.history(AT - timedelta(minutes=10), AT, STEP_SECONDS)
    target = FOLDER / "simulated_fleet" / "seed-7.csv"
    rows.to_csv(target, index=False, float_format="%.6f")


if __name__ == "__main__":
    main()
