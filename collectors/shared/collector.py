"""The interface that every collector implements."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Protocol, runtime_checkable

from collectors import COLLECTORS
from data.base.clock import require_utc
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.collected import Collected
from data.settings.all_settings import Settings

Finding = tuple[str, str, str]
"""The subject; `ok`, `warning` or `missing`; the observation, or the line to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time asked for, (start, end], UTC."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        require_utc("window start", self.start)
        require_utc("window end", self.end)
        if self.start > self.end:
            raise ValueError(f"window starts {self.start} after its end {self.end}")


class Collector(Protocol):
    """One source."""

    @property
    def name(self) -> str:
        """The source's name in reports."""
        ...

    def collect(self, window: Window) -> Collected:
        """Return the facts of the window. Errors: CollectorError."""
        ...


@runtime_checkable
class HistoryCollector(Collector, Protocol):
    """A source that kept readings before it was asked for the first time."""

    def reaches_back(self, window: Window) -> datetime | None:
        """Return the time in the window since when it has readings; None where it has none.

        Errors: CollectorError.
        """
        ...

    def collect_past(self, window: Window) -> Collected:
        """Return the facts of the window, a reading a slot. Errors: CollectorError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The maker of a live source, and its findings for `trimtab doctor` at a time (UTC).

    Every module of `COLLECTORS` has one as SOURCE. Errors of both: TrimtabError.
    """

    build: Callable[[Settings, GpuCatalogue], Collector]
    findings: Callable[[Settings, datetime], Iterable[Finding]] = lambda _settings, _now: ()


def sources_in_use(settings: Settings) -> dict[str, Source]:
    """Return the sources that the settings switch on, by section."""
    return {name: import_module(COLLECTORS[name]).SOURCE for name in settings.sources_in_use()}
