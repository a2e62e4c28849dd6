"""Jobs as practitioners launch them, estimated by the command that people use.

`python -m benchmarks.memory_cases` runs `trimtab estimate` on the files and command lines of
benchmarks/memory_cases and writes benchmarks/results/memory_cases.md: the estimate beside a figure
that somebody published, where there is one. No trait was chosen in view of these figures but vLLM's
sampled_bytes; those of ms-swift were in view of others of its repository. Where SGLang printed what
was free, its rule is checked apart from the board: share x free - our weights, beside its cache.
"""

import io
import json
import shlex
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from dashboard.cli import main as trimtab

FOLDER = Path(__file__).parent / "memory_cases"
RESULTS = Path(__file__).parent / "results" / "memory_cases.md"
_GIB = {"GiB": 1.0, "GB": 1e9 / 2**30}
_HEAD = (
    "| case | GPUs | estimate, GiB | at 95 % | tier | published, GiB | estimate over published "
    "| what was published, and what is open |"
)


def estimated(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row that `trimtab estimate` prints for a case. Raises SystemExit if it refuses."""
    out, said = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, chdir(FOLDER):
        line = ["--store", f"duckdb:///{folder}/none.duckdb", "estimate", "--format", "json"]
        with redirect_stdout(out), redirect_stderr(said):
            code = trimtab([*line, "--gpu", case["gpu"], *shlex.split(case["words"])])
    if code:
        raise SystemExit(f"{case['words']}: {said.getvalue()}")
    row: dict[str, Any] = json.loads(out.getvalue())["plans"][0]
    return row


def read_cases(of: str = "case") -> list[dict[str, Any]]:
    """Return the cases, or the logs, of cases.toml."""
    text = (FOLDER / "cases.toml").read_text(encoding="utf-8")
    cases: list[dict[str, Any]] = tomllib.loads(text)[of]
    return cases


def compared(case: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the published figure in GiB and how the estimate compares, as texts."""
    if "published" not in case:
        return "none found", ""
    figure = case["published"] * _GIB[case["unit"]]
    if case["of"] == "card":
        return f"card of {figure:.3g}", "within" if row["p50_gib"] <= figure else "above: a miss"
    own = row["cache_gib"] if case["of"] == "cache" else row["p50_gib"]
    kind = "cache " if case["of"] == "cache" else ""
    return f"{kind}{figure:.3g}", f"{kind}{own:g}: {own / figure:.2f}"


def lines() -> Iterator[str]:
    """Yield the lines of the table."""
    yield _HEAD
    yield "|---|---:|---:|---:|---|---:|---|---|"
    for case in read_cases():
        row = estimated(case)
        figure, ratio = compared(case, row)
        told = "; ".join(part for part in (case.get("source", ""), case.get("open", "")) if part)
        shown = (case["name"], row["gpus"], row["p50_gib"], row["p95_gib"], row["tier"])
        yield f"| {' | '.join(map(str, shown))} | {figure} | {ratio} | {told} |"
    yield ""
    yield (
        "No trait was chosen in view of these figures but vLLM's sampled_bytes, which lies between "
        "those of its 0.11 and 0.19; those of ms-swift were chosen in view of others of its "
        "repository. A card is no measurement: it says that the job ran on it."
    )


def log_lines() -> Iterator[str]:
    """Yield the table of what SGLang printed."""
    yield ""
    yield "| SGLang's log | share | free, GiB | weights: log | ours | cache: log | by its rule |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for log in read_cases("log"):
        weights = estimated(log)["weights_gib"]
        cache = log["share"] * log["free"] - weights
        told = (log["share"], log["free"], log["weights"], weights, log["cache"], f"{cache:.2f}")
        yield f"| {log['source']} | {' | '.join(map(str, told))} |"


def main() -> None:
    """Print the table and write it."""
    text = "\n".join((*lines(), *log_lines())) + "\n"
    print(text)
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
