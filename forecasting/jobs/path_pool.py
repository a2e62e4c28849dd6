"""Many series at once, by threads or processes, in order.

Threads serve the mix, whose kernel runs without the interpreter's lock. Processes serve Prophet,
which starts one of its own for every fit anyhow: new interpreters, not forks, since the parent may
hold threads and an open DuckDB file; replaced after some series; their temporary files go with the
pool. They come from loky because those of `multiprocessing` first run the parent's `__main__`
again, and inside the dashboard Streamlit puts the page a visitor looks at in its place.
"""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from loky import ProcessPoolExecutor
from loky.process_executor import BrokenProcessPool

from data.records.forecasts import QuantilePath
from data.settings.all_settings import PlanningSettings
from forecasting.distributed.ray_pool import by_ray
from forecasting.jobs.forecast_path import MIX, PathTask, forecast_path, mixed_paths

SERIES_SECONDS = 60.0
"""For one series of Prophet: the whole cycle waits for it."""
_MIN_FOR_PROCESSES = 8
_SERIES_PER_PROCESS = 200
_BATCH = 64
_CHUNK = 16
_POLL_SECONDS = 1.0
_MAX_REMOVALS = 1000
Progress = Callable[[int, int], None]


def paths_of(
    tasks: Sequence[PathTask],
    *,
    settings: PlanningSettings,
    ray_address: str = "",
    progress: Progress | None = None,
) -> list[QuantilePath]:
    """Return the path of each series, in order; on a Ray cluster when its address is given."""
    show = progress or (lambda _done, _total: None)
    show(0, len(tasks))
    workers = os.cpu_count() or 1
    results: list[QuantilePath] = []
    for path in _answers(tasks, settings, workers, ray_address):
        results.append(path)
        if len(results) % _CHUNK == 0 or len(results) == len(tasks):
            show(len(results), len(tasks))
    return results


def _answers(
    tasks: Sequence[PathTask], settings: PlanningSettings, workers: int, ray_address: str
) -> Iterator[QuantilePath]:
    if ray_address:
        return _by_ray(tasks, settings.model, ray_address)
    if settings.model == MIX:
        return _by_threads(tasks, workers)
    if workers == 1 or len(tasks) < _MIN_FOR_PROCESSES:
        return (forecast_path(task, settings.model) for task in tasks)
    return _by_processes(tasks, settings, workers)


def _by_threads(tasks: Sequence[PathTask], workers: int) -> Iterator[QuantilePath]:
    """Yield paths by the mix in batches of series: Prophet is faster for many at once.

    One worker needs no thread: Python waits without end for one that has no memory to start with.
    """
    if workers == 1:
        for batch in _batches(tasks):
            yield from mixed_paths(batch)
        return
    with ThreadPoolExecutor(workers) as pool:
        for paths in pool.map(mixed_paths, _batches(tasks)):
            yield from paths


def _by_ray(tasks: Sequence[PathTask], model: str, address: str) -> Iterator[QuantilePath]:
    function = mixed_paths if model == MIX else partial(_single_paths, model=model)
    for paths in by_ray(function, _batches(tasks), address=address):
        yield from paths


def _single_paths(tasks: Sequence[PathTask], *, model: str) -> list[QuantilePath]:
    return [forecast_path(task, model) for task in tasks]


def _batches(tasks: Sequence[PathTask]) -> list[Sequence[PathTask]]:
    return [tasks[start : start + _BATCH] for start in range(0, len(tasks), _BATCH)]


def _by_processes(
    tasks: Sequence[PathTask], settings: PlanningSettings, workers: int
) -> Iterator[QuantilePath]:
    """Yield each series' path from a pool of processes, a new pool after some hundreds."""
    share = _SERIES_PER_PROCESS * workers
    for start in range(0, len(tasks), share):
        yield from _by_one_pool(tasks[start : start + share], settings, workers)


def _by_one_pool(
    tasks: Sequence[PathTask], settings: PlanningSettings, workers: int
) -> Iterator[QuantilePath]:
    """Yield paths of one pool; by the mix, with a note, where a process is lost or too slow."""
    with tempfile.TemporaryDirectory(prefix="trimtab-forecast-") as folder:
        pool = ProcessPoolExecutor(
            workers, initializer=_begin_process, initargs=(folder, os.getpid())
        )
        try:
            waiting = [pool.submit(forecast_path, task, settings.model) for task in tasks]
            for task, answer in zip(tasks, waiting, strict=True):
                try:
                    yield answer.result(SERIES_SECONDS)
                except TimeoutError:
                    why = f"{settings.model} took longer than {SERIES_SECONDS:g} s"
                    yield _by_the_mix(task, why)
                except BrokenProcessPool:
                    yield _by_the_mix(task, f"a process of {settings.model} was killed")
        finally:
            pool.shutdown(kill_workers=True)


def _by_the_mix(task: PathTask, reason: str) -> QuantilePath:
    path = forecast_path(task, MIX)
    return replace(path, notes=(reason, *path.notes))


def _begin_process(folder: str, parent: int) -> None:
    """Let cmdstanpy, which never removes its files while a process lives, write to a folder.

    The process ends with its parent: one whose parent is killed is told by nobody, and would wait
    for work without end. PR_SET_PDEATHSIG would come when the thread ends that started it.
    """
    tempfile.tempdir = folder
    threading.Thread(target=_end_with, args=(parent, folder), daemon=True).start()


def _end_with(parent: int, folder: str) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    remove_used_folder(folder)
    os._exit(1)


def remove_used_folder(folder: str) -> None:
    """Remove a folder that others may still write to, in several rounds."""
    for _removal in range(_MAX_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not Path(folder).exists():
            return
