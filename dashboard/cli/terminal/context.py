"""Context of every command: the settings in force, the store, progress on stderr."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tqdm import tqdm

from dashboard.cli.terminal.output import say
from dashboard.common.replay_clock import as_of_text
from data.base.errors import NoTextError, StoreBusyError
from data.catalogue.gpu_catalogue import state_gpu_models
from data.records.commands import Person
from data.settings.all_settings import Settings
from data.settings.load import DEFAULT_FILE, LoadedSettings, load_settings
from data.settings.store import is_postgres_url, require_store, store_path

if TYPE_CHECKING:
    from dashboard.cycle.context import Progress
    from dashboard.decisions.requests import WishOutcome
    from dashboard.decisions.service import DecisionService
    from data.store import Store

_UNSURE_NS = 2_000_000_000
_OVERRIDES = {
    "store": "store.url",
    "prometheus": "prometheus.url",
    "lookback": "prometheus.lookback_hours",
}


def settings_of(
    options: argparse.Namespace, *, extra: dict[str, str] | None = None
) -> LoadedSettings:
    """Return the settings in force: file, environment, then the command line.

    The catalogue of this process has the GPU models that they state. Errors: SettingsError.
    """
    overrides = {
        setting: str(value)
        for option, setting in _OVERRIDES.items()
        if (value := getattr(options, option, None)) is not None
    }
    path = Path(options.settings) if options.settings else None
    loaded = load_settings(path, environ=os.environ, overrides=overrides | (extra or {}))
    state_gpu_models(loaded.settings.catalogue.gpu_models)
    return loaded


def require_a_store(options: argparse.Namespace) -> None:
    """Refuse to look for what only a store holds where there is none. Errors: StoreError."""
    require_store(settings_of(options).settings.store.url)


class FreshSettings:
    """Gives the settings of the moment; their file is read again whenever it may have changed.

    A file that changed within the last seconds may change once more under the same time stamp, and
    is read at each call. Nothing but the file can change: the environment is this process's own.
    """

    def __init__(self, options: argparse.Namespace, load: Callable[[], Settings]) -> None:
        self._file = Path(options.settings or DEFAULT_FILE)
        self._load = load
        self._kept: tuple[tuple[int, ...], Settings] | None = None

    def __call__(self) -> Settings:
        """Return the settings. Errors: SettingsError."""
        mark, cached = self._mark(), self._kept
        if cached is not None and cached[0] == mark:
            return cached[1]
        settings = self._load()
        changed_at = max(mark[:2], default=0)
        self._kept = (mark, settings) if time.time_ns() - changed_at > _UNSURE_NS else None
        return settings

    def _mark(self) -> tuple[int, ...]:
        """Return a mark that changes with the file; () where there is none."""
        try:
            stat = self._file.stat()
        except OSError:
            return ()
        return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino, stat.st_dev


@contextmanager
def open_for_reading(loaded: LoadedSettings) -> "Iterator[Store]":
    """Open the store that must exist already, say when its present has passed, and close it."""
    with open_store_or_holder(loaded.settings.store.url) as store:
        if (recording := store.reader.recording()) is not None:
            say(f"{as_of_text(recording)}.", file=sys.stderr)
        yield store


def open_store_or_holder(url: str, *, create: bool = False) -> "Store":
    """Return the store: opened, or read through the process that holds it.

    Errors: StoreBusyError naming the process that holds it and answers no commands; StoreError
    where there is none, without `create`.
    """
    from data.store import open_store

    try:
        return open_store(url, create=create)
    except StoreBusyError:
        if is_postgres_url(url):  # its server has no connection left, or is starting
            raise
        from data.store.handles.remote_store import served_store

        served = served_store(store_path(url))
        if served is None:
            raise
        return served


def asks_a_server(options: argparse.Namespace) -> bool:
    """Return whether a command goes to a server in place of a store."""
    return vars(options).get("server") is not None


def person_of(options: argparse.Namespace) -> Person:
    """Return the person who gives the command."""
    return Person(name=options.by, via="cli")


def ask_holder(
    options: argparse.Namespace, store: "Store", method: str, address: str, wish: object = None
) -> "bytes | None":
    """Return the answer of the process that holds the store to a command of `options.by`.

    None where the store is open in this process. Errors: NoTextError, and those of the answer.
    """
    from data.store.handles.remote_store import BY_HEADER, ServedStore

    if not isinstance(store, ServedStore):
        return None
    try:
        by = {BY_HEADER: quote(options.by)}
    except UnicodeEncodeError as error:
        raise NoTextError(
            f"the name {options.by!a} is no Unicode", "Give it in the encoding of this terminal."
        ) from error
    return store.holder.ask(method, address, wish, headers=by)


def decision_service_of(options: argparse.Namespace, store: "Store") -> "DecisionService":
    """Return the decision service on an open store, under the settings of the moment."""
    from dashboard.decisions.service import DecisionService

    return DecisionService(store=store, settings=lambda: settings_of(options).settings)


def ask(options: argparse.Namespace, store: "Store | None", **more: object) -> "WishOutcome":
    """Ask for `options.decision` about the finding of `options.id`, of whoever holds the store.

    `more` are the other fields of a wish, `store` None where a server is asked. Errors: those of
    `carry_out`, and of a server's answer.
    """
    from dashboard.decisions.requests import Wish, WishOutcome, carry_out

    wish = Wish.model_validate({"decision": options.decision, **more})
    path = f"findings/{quote(options.id, safe='')}/decisions"
    body = wish.model_dump(mode="json", exclude_defaults=True)
    if store is None:
        return _asked_of_server(options, path, body)
    address = f"/api/v1/{path}"
    if (answer := ask_holder(options, store, "POST", address, body)) is not None:
        return WishOutcome.model_validate_json(answer)
    return carry_out(decision_service_of(options, store), options.id, wish, person_of(options))


def _asked_of_server(options: argparse.Namespace, path: str, body: object) -> "WishOutcome":
    """Return a server's answer to a request; print it where it is by another than `--by`."""
    from dashboard.cli.terminal.remote_server import server_of
    from dashboard.decisions.requests import WishOutcome

    server = server_of(options)
    outcome: WishOutcome = server.read(WishOutcome, server.ask("POST", path, body=body))
    if outcome.by != options.by:
        say(f"The token is of {outcome.by}: it is by them.", file=sys.stderr)
    return outcome


def decided(options: argparse.Namespace, **more: object) -> "WishOutcome":
    """Make `options.decision` about `options.id` by `options.by`. Errors: those of `ask`."""
    if asks_a_server(options):
        return ask(options, None, comment=options.comment, **more)
    with open_for_reading(settings_of(options)) as store:
        return ask(options, store, comment=options.comment, **more)


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
