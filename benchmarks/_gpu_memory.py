"""What scripts share that measure the GPU memory of training runs: readings, cleaning, rows."""

import argparse
import gc
import json
import os
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import pynvml

DEVICE = "cuda:0"
LIMIT_BYTES = int(78.6 * 2**30)
"""What torch may take, so that a larger board gives the rows of an 80 GB one."""
_CLEAN_BYTES = 64 * 2**20
"""What may be left of a case: buffers of libraries."""
_OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED")


class Named(Protocol):
    """A case with a name."""

    @property
    def name(self) -> str:
        """All that sets the case apart."""
        ...


Measured = TypeVar("Measured", bound=Named)


class Gpu:
    """The GPU of this process as NVML sees it, from before the first model on."""

    def __init__(self) -> None:
        torch = import_module("torch")
        torch.zeros(1, device=DEVICE)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.total_bytes = int(torch.cuda.get_device_properties(0).total_memory)
        self.driver: str | None = None
        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self.driver = str(pynvml.nvmlSystemGetDriverVersion())
        self.baseline_bytes = self.used_bytes()

    def used_bytes(self) -> int | None:
        """Return what NVML calls used, without what the driver keeps; None where it is silent."""
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)
        return None

    def readings(self) -> dict[str, int | None]:
        """Return what is taken now, and the peaks since the last cleaning."""
        cuda = import_module("torch").cuda
        return {
            "peak_allocated_bytes": int(cuda.max_memory_allocated()),
            "peak_reserved_bytes": int(cuda.max_memory_reserved()),
            "reserved_bytes": int(cuda.memory_reserved()),
            "nvml_used_bytes": self.used_bytes(),
        }


Train: TypeAlias = Callable[[Measured, Gpu, dict[str, Any]], None]
"""Trains a case, with what is found written into its row."""


def clean() -> int | None:
    """Return the bytes that are still allocated after all of a case was let go, None if unknown."""
    torch = import_module("torch")
    gc.collect()
    with suppress(RuntimeError):
        torch.cuda.synchronize()
        with suppress(AttributeError):
            # The buffers of cuBLAS are torch's tensors; without this the next case inherits them.
            torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - no public name
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return int(torch.cuda.memory_allocated())
    return None


def _failure(error: Exception) -> dict[str, Any]:
    """Return what a row says of a case that did not end."""
    text = f"{type(error).__name__}: {error}"
    oom = any(words in text for words in _OUT_OF_MEMORY)
    file, number, *_ = traceback.extract_tb(error.__traceback__)[-1]
    return {"oom": oom, "error": text[:1000], "raised_at": f"{Path(file).name}:{number}"}


def _header(gpu: Gpu) -> dict[str, Any]:
    """Return what the machine runs."""
    libraries = ("torch", "transformers", "peft", "accelerate")
    return {
        "gpu": import_module("torch").cuda.get_device_name(0),
        "driver": gpu.driver,
        **{name: str(import_module(name).__version__) for name in libraries},
        "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "total_bytes": gpu.total_bytes,
        "limit_bytes": LIMIT_BYTES,
        "baseline_nvml_bytes": gpu.baseline_bytes,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _line(row: dict[str, Any]) -> str:
    """Return a row as one printed line."""
    figures = [row[f"{name}_bytes"] for name in ("peak_allocated", "peak_reserved", "nvml_used")]
    peaks = " ".join("     ?" if size is None else f"{size / 2**30:6.2f}" for size in figures)
    end = "out of memory" if row["oom"] else row["error"][:200]
    return f"{row['name']:72} {peaks} GiB {row['wall_seconds']:5.1f} s {end}"


def measure(case: Measured, gpu: Gpu, row: dict[str, Any], train: Train[Measured]) -> None:
    """Train a case; one that fails leaves the peaks before it in its row, and the error's text."""
    row |= {
        "steps": 0,
        **dict.fromkeys(("parameters", "trainable_parameters", "seconds_per_step")),
        "baseline_nvml_bytes": gpu.baseline_bytes,
        "total_bytes": gpu.total_bytes,
        "oom": False,
        "error": "",
    }
    try:
        train(case, gpu, row)
    except Exception as error:  # noqa: BLE001 - one case must not cost the others
        row.update(gpu.readings())
        row.update(_failure(error))
        traceback.clear_frames(error.__traceback__)


def count_parameters(model: Any, row: dict[str, Any]) -> None:
    """Write the model's parameters into a row, and the dtype of those that are trained."""
    weights = list(model.parameters())
    row["parameters"] = sum(weight.numel() for weight in weights)
    trained = [weight for weight in weights if weight.requires_grad]
    row["trainable_parameters"] = sum(weight.numel() for weight in trained)
    row["trainable_dtype"] = str(trained[0].dtype).removeprefix("torch.") if trained else ""


def measure_and_write(
    about: str | None,
    cases: Iterable[Measured],
    described: Callable[[Measured], dict[str, Any]],
    train: Train[Measured],
) -> None:
    """Measure the cases and write them to a file after each of them."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=170.0, help="no case begins after them")
    parser.add_argument("--only", default="", help="only cases with this in their name")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.seconds
    # Nothing is fetched: a library that would ask the network fails at once instead of waiting.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    gpu = Gpu()
    header, done = _header(gpu), list[dict[str, Any]]()
    clean()
    for case in cases:
        if arguments.only not in case.name:
            continue
        begun = time.monotonic()
        if begun >= until:
            return
        row = described(case)
        limit = row.get("limit_bytes") or LIMIT_BYTES
        fraction = min(1.0, limit / gpu.total_bytes)
        import_module("torch").cuda.set_per_process_memory_fraction(fraction)
        measure(case, gpu, row, train)
        left = row["allocated_after_bytes"] = clean()
        row["wall_seconds"] = time.monotonic() - begun
        tidy = left is not None and left <= _CLEAN_BYTES
        row["note"] = "" if tidy else f"{left} bytes are still allocated after the case"
        done.append(row)
        print(_line(row), flush=True)
        text = json.dumps({"header": header, "rows": done}, indent=1)
        arguments.out.write_text(text + "\n", encoding="utf-8")
