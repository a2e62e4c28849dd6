"""The statement of cost on real pods: sums against the boards and the invoice, FOCUS, month ends.

`python -m benchmarks.statement --data DIR`, which holds
alibaba_genai_pods/pod_gpu_timeseries.parquet (pods of one GPU each, 24 h), focus/focus_columns_*
(published column lists), and the demand of real clusters: philly/hourly_gpu_demand_by_vc.parquet
(the window of the level was chosen on it) and helios_venus/venus_10min.parquet (not looked at for
that). The pods' power is unknown, and their GPU has no published model: both are stated here.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._bills import DAYS, FLEETS, HISTORY, bill_lines
from benchmarks._complete_report import complete_report
from dashboard.accounting.cost.focus import COLUMNS, focus_rows
from dashboard.accounting.cost.groups import BOARD_GROUPS, GROUPS
from dashboard.accounting.cost.statement import make_cost_statement
from dashboard.accounting.energy.periods import PeriodLength
from data.facts.collected import Collected
from data.facts.columns import SAMPLES, check_frame
from data.facts.jobs import Job, Platform, WorkloadKind
from data.settings.all_settings import Settings
from data.settings.statements import GpuPrice, Invoice, StatementSettings
from data.store import open_store
from forecasting.series.day_sums import HISTORY_DAYS, days_ahead

RESULTS = Path(__file__).parent / "results" / "statement.md"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = "A10-24GB"
PRICE, INVOICED = 1.2, 4000.0
MAX_GAP_SECONDS = 300.0
TENANTS = 4
_SETTINGS = Settings(
    statement=StatementSettings(
        prices=(GpuPrice(gpu_model=MODEL, per_gpu_hour=PRICE),),
        invoices=(
            Invoice(name="pods", amount=INVOICED, start=BEGIN, end=BEGIN + timedelta(days=2)),
        ),
    )
)


def pod_samples(folder: Path) -> pd.DataFrame:
    """Return the pods' readings as samples; a board's watts are its idle power and its work."""
    raw = pd.read_parquet(folder / "pod_gpu_timeseries.parquet")
    used = raw["gpu_util_pct"].astype("float64") / 100
    frame = pd.DataFrame(
        {
            "sampled_at": pd.Timestamp(BEGIN) + pd.to_timedelta(raw["t_est_real_s"], unit="s"),
            "gpu_uuid": "GPU-" + raw["pod"],
            "node": "genai",
            "gpu_model": MODEL,
            "job_id": _job_ids(raw["pod"]),
            "utilization_ratio": used,
            "utilization_signal": "gpu_util",
            "memory_used_mib": raw["gpu_mem_used_bytes"] / 2**20,
            "memory_total_mib": 23_028.0,
            "power_watts": 20 + 130 * used,
        }
    )
    frame["sampled_at"] = frame["sampled_at"].astype("datetime64[us, UTC]")
    return check_frame(frame, SAMPLES)


def _job_ids(pods: "pd.Series[str]") -> list[str]:
    return [f"team-{int(pod[:4], 16) % TENANTS}/{pod}" for pod in pods]


def _collected(samples: pd.DataFrame) -> Collected:
    end = samples["sampled_at"].max().to_pydatetime()
    jobs = tuple(
        Job(
            job_id=job,
            name=job,
            namespace=job.partition("/")[0],
            owner="",
            platform=Platform.KUBERNETES,
            kind=WorkloadKind.INFERENCE,
            gpu_model=MODEL,
            gpu_count=1,
            mig_profile="",
            gpu_memory_mib=None,
            first_seen_at=BEGIN,
            last_seen_at=end,
            source="pods",
        )
        for job in sorted(samples["job_id"].unique())
    )
    report = complete_report("pods", len(samples), start=BEGIN, end=end)
    return Collected(batch_id="pods", samples=samples, jobs=jobs, report=report)


def seen_hours(samples: pd.DataFrame) -> "pd.Series[float]":
    """Return the hours between readings of a board that are at most five minutes apart."""
    found = {}
    for board, moments in samples.groupby("gpu_uuid")["sampled_at"]:
        gaps = moments.drop_duplicates().sort_values().diff().dt.total_seconds()
        found[str(board)] = float(gaps[gaps <= MAX_GAP_SECONDS].sum() / 3600)
    return pd.Series(found)


def pods_lines(folder: Path) -> Iterator[str]:
    """Yield what the statement of the pods adds up to."""
    samples = pod_samples(folder / "alibaba_genai_pods")
    end = BEGIN + timedelta(days=2)
    with tempfile.TemporaryDirectory() as place, open_store(f"duckdb:///{place}/t.duckdb") as store:
        store.keep(_collected(samples))
        boards = make_cost_statement(store.reader, _SETTINGS, start=BEGIN, end=end, by=("board",))
        made = make_cost_statement(
            store.reader, _SETTINGS, start=BEGIN, end=end, every=PeriodLength.HOUR
        )
    seen = seen_hours(samples)
    told = pd.Series({row.names[0]: row.board_hours for row in boards.rows})
    off = (told.reindex(seen.index).fillna(0.0) - seen).abs() / seen.where(seen > 0)
    yield f"| boards: largest difference to the time between readings | {100 * off.max():.4f} % |"
    cross = [name for name in GROUPS if name not in BOARD_GROUPS]
    spread = max(
        abs(sum(row.cost or 0.0 for row in made.rows_by(*by)) - (made.total.cost or 0.0))
        for count in range(len(cross) + 1)
        for by in combinations(cross, count)
    )
    yield f"| all {2 ** len(cross)} groupings by hour: largest difference in cost | {spread:.1e} |"
    total = made.total
    yield (
        f"| board-hours: used, idle, activity unknown | {total.used_hours:.1f}, "
        f"{total.idle_hours:.1f}, {total.unclear_hours:.1f} of {total.board_hours:.1f} |"
    )
    (one,) = made.invoices
    yield (
        f"| invoice {one.invoice.amount:,.2f}: charged + residual | {one.charged:,.2f} + "
        f"{one.residual:,.2f} |"
    )
    yield from focus_lines(focus_rows(made, _SETTINGS), made.total.cost or 0.0, folder / "focus")


def focus_lines(rows: list[dict[str, object]], cost: float, folder: Path) -> Iterator[str]:
    """Yield how the FOCUS rows stand to the statement and to the published column lists."""
    billed = sum(float(str(row["BilledCost"])) for row in rows if row["SkuId"] is not None)
    off = f"{billed - cost:+.1e}"
    yield f"| FOCUS rows; BilledCost of usage beside the statement | {len(rows)}; {off} |"
    newest = max(folder.glob("focus_columns_working_draft_*.csv"))
    listed = pd.read_csv(newest).set_index("column_id")
    own = {column.name: column for column in COLUMNS if not column.name.startswith("x_")}
    mandatory = set(listed.index[listed["feature_level"] == "Mandatory"])
    wrong = sorted(
        name
        for name, column in own.items()
        if name not in listed.index
        or listed.loc[name, "data_type"] != column.kind.value
        or bool(listed.loc[name, "allows_nulls"]) != column.nulls
    )
    yield (
        f"| FOCUS columns against {newest.name}: mandatory missing; unlike in name, type or nulls "
        f"| {len(mandatory - set(own))} of {len(mandatory)}; {len(wrong)} of {len(own)} |"
    )
    broken = [row for row in rows for column in COLUMNS if not _holds(row[column.name], column)]
    yield f"| FOCUS values null or not JSON where that is not allowed | {len(broken)} |"


def _holds(value: object, column: object) -> bool:
    kind, nulls = str(getattr(column, "kind", "")), bool(getattr(column, "nulls", False))
    if value is None:
        return nulls
    return kind != "JSON" or isinstance(json.loads(str(value)), dict)


def demand(folder: Path) -> Iterator[tuple[str, "pd.Series[float]"]]:
    """Yield the GPU-hours a day of each real series."""
    hours = pd.read_parquet(folder / "philly" / "hourly_gpu_demand_by_vc.parquet")
    hours = hours[(hours["hour"] >= "2017-10-02") & (hours["hour"] < "2017-12-11")]
    for _cluster, entry in hours.groupby("cluster"):
        yield "philly", entry.set_index("hour")["gpu_demand"].resample("1D").sum()
    venus = pd.read_parquet(folder / "helios_venus" / "venus_10min.parquet").set_index("time")
    running = venus["running_gpu_est"] - venus["running_gpu_est"].min()
    yield "helios, running", running.resample("1D").sum()[:-1] / 6
    yield "helios, started", venus["start_gpu_num"].resample("1D").sum()[:-1].astype("float64")


def month_end_lines(folder: Path) -> Iterator[str]:
    """Yield per set how often the sum of the days that are left lay in the 80 % interval."""
    found: dict[str, list[tuple[float, bool, float]]] = {}
    for name, days in demand(folder):
        values = days.to_numpy(dtype=np.float64)
        for origin in range(14, len(values) - 2):
            left = min(30 - origin % 30, len(values) - origin)
            weekday = int(days.index[origin].weekday())
            past = values[max(0, origin - HISTORY_DAYS) : origin]
            made = days_ahead(past, days_left=float(left), weekday=weekday)
            actual = float(values[origin : origin + left].sum())
            if made is not None and actual > 0:
                low, central, high = made.sums
                inside = low <= actual <= high
                found.setdefault(name, []).append((left, inside, abs(central / actual - 1)))
    for name, outcomes in found.items():
        frame = pd.DataFrame(outcomes, columns=["left", "inside", "error"])
        parts = [
            f"{100 * part['inside'].mean():.0f} %"
            for low, high in ((0, 7), (7, 14), (14, 31))
            if len(part := frame[(frame["left"] > low) & (frame["left"] <= high)])
        ]
        yield (
            f"| {name} | {len(frame)} | {100 * frame['inside'].mean():.0f} % | {' | '.join(parts)} "
            f"| {100 * frame['error'].median():.0f} % |"
        )


def short_history_lines(folder: Path) -> Iterator[str]:
    """Yield by days of history how often the sum of 3, 7, 14 and 30 days lay in the interval."""
    sets = [(name.split(",")[0], days.to_numpy(float)) for name, days in demand(folder)]
    for history in (7, 10, 14, 21, 28, 42, 56):
        cells = []
        for ahead in (3, 7, 14, 30):
            held: dict[str, list[bool]] = {"philly": [], "helios": []}
            for name, values in sets:
                for origin in range(history, len(values) - ahead):
                    past = values[origin - history : origin]
                    made = days_ahead(past, days_left=float(ahead), weekday=0)
                    actual = float(values[origin : origin + ahead].sum())
                    if made is not None and actual > 0:
                        held[name].append(made.sums[0] <= actual <= made.sums[2])
            shares = [f"{100 * np.mean(hits):.0f} %" if hits else "–" for hits in held.values()]
            cells.append(" / ".join(shares))
        yield f"| {history} | {' | '.join(cells)} |"


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--full", action="store_true", help="the same: it is whole")
    folder = parser.parse_args().data
    if not (folder / "alibaba_genai_pods" / "pod_gpu_timeseries.parquet").is_file():
        raise SystemExit(
            f"{folder} holds no alibaba_genai_pods: give --data the folder of the sets"
        )
    text = "\n".join(
        [
            "Real pods of one GPU each (Alibaba GenAI, 24 h); price, power, invoice are made up.",
            "",
            "| of the pods | |",
            "|---|---|",
            *pods_lines(folder),
            "",
            "Ends of months of real demand (GPU-hours a day), forecast from the days before: how",
            "often the sum of the days that were left lay in the 80 % interval, by days left. The",
            "window of the level was chosen on Philly; Helios was not looked at for it.",
            "",
            "| set | origins | inside | up to 7 days | up to 14 | up to 30 | median error |",
            "|---|---:|---:|---:|---:|---:|---:|",
            *month_end_lines(folder),
            "",
            "The same by days of history, Philly / Helios, for the days ahead. How much wider the",
            "interval is for more days ahead than are known was chosen on Philly.",
            "",
            "| days known | 3 ahead | 7 ahead | 14 ahead | 30 ahead |",
            "|---:|---:|---:|---:|---:|",
            *short_history_lines(folder),
            "",
            f"Bills of closed months: {FLEETS} drawn fleets of {DAYS} days, jobs and boards of",
            f"Helios at a stated price and power, power of servers; {HISTORY} days of history and",
            "more. Running months are forecast whole, known days included. The goal is 75 to 85 %",
            "inside, and an error of a fleet of at most 5 %. The factors of the interval were",
            "chosen on other draws and on these servers, with Helios in sight.",
            "",
            "| bill | month | in | bills | inside | mean error |",
            "|---|---|---|---:|---:|---:|",
            *bill_lines(folder),
            "",
        ]
    )
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
