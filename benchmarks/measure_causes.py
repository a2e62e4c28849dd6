"""What a GPU shows while programs run on it of which the cause of slowness is known.

`python -m benchmarks.measure_causes --out DIR [--set NAME] [--seconds S]`, on a machine with a GPU,
PyTorch, torchvision and transformers. Each program runs for S seconds while another process reads
the GPU every second as the NVML source does. Written are `causes.json` (a row a reading, and how
fast each program was) and `nvml.scenario` (what the driver answered, for the stand-in of the
tests). Where `fixed_by` names another program, it does the same work without the cause: its speed
says what the cause costs. It has no `main`, so that `make bench`, which needs no
GPU, leaves it out.
"""

import argparse
import importlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from benchmarks import _gpu_programs, _gpu_programs_judging
from benchmarks._gpu_programs import Program
from collectors.nvml.sampler import NvmlCollector
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.settings.sources import NvmlSettings

Key = TypeVar("Key")
WARM_SECONDS = 4.0
_METRICS = range(1, 64)
NODE = "measured"
SETS = {"seen": _gpu_programs, "judging": _gpu_programs_judging}
WORK = {**_gpu_programs.WORK, **_gpu_programs_judging.WORK}
PIPES = {
    "occupancy": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "fp32_active": pynvml.NVML_GPM_METRIC_FP32_UTIL,
    "fp16_active": pynvml.NVML_GPM_METRIC_FP16_UTIL,
}
"""What the source does not read, to see whether it should."""
_SCENARIO_AT = 12
"""Readings before the driver is asked once for all it has: the first program runs by then."""


def measure(folder: Path, programs: Sequence[Program], seconds: float) -> Iterator[str]:
    """Run programs beside a reader, write what was seen; yield a line a program."""
    torch = importlib.import_module("torch")
    readings = folder / "readings.jsonl"
    reader = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", "benchmarks.measure_causes", "--read", str(readings)]
    )
    ran: list[dict[str, object]] = []
    try:
        for program in programs:
            row = _row(program) | _run(torch, program, seconds)
            ran.append(row)
            yield f"{row['name']}: {row.get('items_per_second')} {row.get('error', '')}"
    finally:
        reader.terminate()
        reader.wait()
        seen = [json.loads(line) for line in readings.read_text().splitlines()]
        for row in ran:
            row["readings"] = [it for it in seen if row["from"] <= it["at"] <= row["until"]]
        about = {
            "gpu": torch.cuda.get_device_name(),
            "torch": str(torch.__version__),
            "measured_on": datetime.now(UTC).date().isoformat(),
        }
        (folder / "causes.json").write_text(json.dumps(about | {"programs": ran}))


def _row(program: Program) -> dict[str, object]:
    return {"name": program.name, "cause": str(program.cause), "fixed_by": program.fixed_by}


def _run(torch: Any, program: Program, seconds: float) -> dict[str, Any]:
    """Return how fast a program was, and between which times it is to be looked at."""
    torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_tf32 = program.precision != "fp32"
    torch.backends.cudnn.allow_tf32 = program.precision != "fp32"
    begun = time.time()
    try:
        step = WORK[program.work](torch, program)
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        begun = time.time()
        items, since = 0, begun + WARM_SECONDS
        counted_from = 0.0
        while (now := time.time()) < begun + seconds:
            done = step()
            torch.cuda.synchronize()
            if now >= since:
                counted_from = counted_from or now
                items += done
    except (RuntimeError, ValueError, TypeError, AttributeError, ImportError) as error:
        return {"from": begun, "until": begun, "error": f"{type(error).__name__}: {error}"[:300]}
    ended = time.time()
    return {
        "from": begun + WARM_SECONDS,
        "until": ended - 1,
        "items_per_second": items / (ended - counted_from),
    }


def read_on(path: Path) -> None:
    """Read the GPUs every second as the NVML source does, and write a line a GPU, until ended.

    Once, while the first program runs, what the driver answers is written beside.
    """
    collector = NvmlCollector(NvmlSettings(enabled=True), GpuCatalogue(()), NODE)
    with collector.reading() as read, path.open("w") as sink:
        board = pynvml.nvmlDeviceGetHandleByIndex(0)
        before = _sample(board)
        for count in itertools.count():
            found = read(utc_now)
            if count == _SCENARIO_AT:
                path.with_name("nvml.scenario").write_text("\n".join(scenario()) + "\n")
            at, after = found.at.timestamp(), _sample(board)
            pipes = dict(_between(before, after, PIPES))
            pynvml.nvmlGpmSampleFree(before)
            before = after
            for row, active in zip(found.rows, found.activity, strict=False):
                told = {"at": at, **row, **active, **pipes, "missing": dict(found.missing)}
                sink.write(json.dumps(told) + "\n")
            sink.flush()
            time.sleep(1.0)


def scenario() -> Iterator[str]:
    """Yield what the driver answers of the first GPU, as the stand-in of the tests reads it.

    The board's UUID is replaced: it names a machine.
    """
    pynvml.nvmlInit()
    board = pynvml.nvmlDeviceGetHandleByIndex(0)
    asked: tuple[tuple[str, Callable[[], object]], ...] = (
        ("name", lambda: pynvml.nvmlDeviceGetName(board)),
        ("power_mw", lambda: pynvml.nvmlDeviceGetPowerUsage(board)),
        ("energy_mj", lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(board)),
        ("limit_mw", lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(board)),
        ("default_mw", lambda: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(board)),
        ("utilization", lambda: pynvml.nvmlDeviceGetUtilizationRates(board).gpu),
        ("clock_reasons", lambda: pynvml.nvmlDeviceGetCurrentClocksEventReasons(board)),
        ("memory_total", lambda: _memory(board).total),
        ("memory_reserved", lambda: _memory(board).reserved),
        ("memory_used", lambda: _memory(board).used),
    )
    yield f"system driver {pynvml.nvmlSystemGetDriverVersion()}"
    yield "gpu0 uuid GPU-88888888-2222-3333-4444-555555555501"
    for name, call in asked:
        try:
            yield f"gpu0 {name} {call()}"
        except pynvml.NVMLError as error:
            yield f"# {name}: {type(error).__name__}"
    field = pynvml.nvmlDeviceGetFieldValues(board, [pynvml.NVML_FI_DEV_POWER_AVERAGE])[0]
    yield f"# power average: status {field.nvmlReturn}, type {field.valueType}"
    if field.nvmlReturn == pynvml.NVML_SUCCESS:
        yield f"gpu0 average_mw {field.value.uiVal}"
    yield from _gpm(board)
    pynvml.nvmlShutdown()


def _memory(board: Any) -> Any:
    return pynvml.nvmlDeviceGetMemoryInfo(board, pynvml.nvmlMemory_v2)


def _gpm(board: Any) -> Iterator[str]:
    """Yield each metric of GPM below 64 over a second that the board has."""
    before = _sample(board)
    time.sleep(1.0)
    for metric, value in _between(before, _sample(board), {number: number for number in _METRICS}):
        if value is not None:
            yield f"gpu0 gpm {metric} {value}"


def _sample(board: Any) -> Any:
    sample = pynvml.nvmlGpmSampleAlloc()
    pynvml.nvmlGpmSampleGet(board, sample)
    return sample


def _between(
    before: Any, after: Any, metrics: Mapping[Key, int]
) -> Iterator[tuple[Key, float | None]]:
    """Yield each metric by its name, None where the board does not have it."""
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    asked.sample1, asked.sample2, asked.numMetrics = before, after, len(metrics)
    for place, metric in enumerate(metrics.values()):
        asked.metrics[place].metricId = metric
    pynvml.nvmlGpmMetricsGet(asked)
    for place, name in enumerate(metrics):
        told = asked.metrics[place]
        yield name, told.value if told.nvmlReturn == pynvml.NVML_SUCCESS else None


def measure_and_write(arguments: Sequence[str] | None = None) -> int:
    """Measure; print a line a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--set", choices=SETS, default="seen")
    parser.add_argument("--seconds", type=float, default=14.0)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.read:
        read_on(asked.read)
        return 0
    if asked.out is None:
        parser.error("--out DIR is needed")
    for line in measure(asked.out, SETS[asked.set].PROGRAMS, asked.seconds):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(measure_and_write())
