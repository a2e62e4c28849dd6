"""What every command starts with: the settings in force, the store, progress on stderr."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tqdm import tqdm

from dashboard.cli.output import say
from dashboard.recording import as_of_text
from data.clock import utc_now
from data.load_settings import LoadedSettings, load_settings
from data.store import Store, open_store

if TYPE_CHECKING:
    from dashboard.cycle import Progress

Outcome = TypeVar("Outcome")
_OVERRIDES = {
    "store": "store.url",
    "prometheus": "prometheus.url",
    "lookback": "prometheus.lookback_hours",
}


def settings_of(
    options: argparse.Namespace, *, extra: dict[str, str] | None = None
) -> LoadedSettings:
    """Return the settings in force: file, environment, then the command line."""
    overrides = {
        setting: str(value)
        for option, setting in _OVERRIDES.items()
        if (value := getattr(options, option, None)) is not None
    }
    path = Path(options.settings) if options.settings else None
    return load_settings(path, environ=os.environ, overrides=overrides | (extra or {}))


@contextmanager
def open_for_reading(loaded: LoadedSettings) -> Iterator[Store]:
    """Open the store that must exist already, say when its present has passed, and close it."""
    with open_store(loaded.settings.store.url, create=False) as store:
        if (recording := store.reader.recording()) is not None:
            say(f"{as_of_text(recording)}.", file=sys.stderr)
        yield store


def decided(options: argparse.Namespace, decide: Callable[..., Outcome], **more: object) -> Outcome:
    """Make a decision about `options.id` by `options.by` under the settings in force.

    Errors: those of `decide`, which takes what `dashboard.decisions.reject` takes, and `more`.
    """
    loaded = settings_of(options)
    with open_for_reading(loaded) as store:
        return decide(
            store,
            options.id,
            by=options.by,
            now=utc_now(),
            comment=options.comment,
            access=loaded.settings.access,
            **more,
        )


@contextmanager
def progress_on_stderr(options: argparse.Namespace) -> "Iterator[Progress]":
    """Yield a progress function with one bar per stage; silent with --quiet or without terminal."""
    bars: dict[str, tqdm[Any]] = {}

    def show(stage: str, done: int, total: int) -> None:
        if stage not in bars:
            bars[stage] = tqdm(
                total=total,
                desc=stage,
                file=sys.stderr,
                disable=True if options.quiet else None,
            )
        bar = bars[stage]
        bar.total = total
        bar.update(done - bar.n)

    try:
        yield show
    finally:
        for bar in bars.values():
            bar.close()
