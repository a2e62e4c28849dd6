"""All that a cycle touches. It is built at the start of a server, which loads the planner later."""

from collections.abc import Callable
from dataclasses import dataclass

from collectors.shared.collector import Collector
from dashboard.common.child_process import ChildProcess
from data.catalogue.carbon_table import GridCarbon
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.settings.all_settings import Settings
from data.store import Store

Progress = Callable[[str, int, int], None]


def silent(_stage: str, _done: int, _total: int) -> None:
    """Show no progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All that a cycle touches; `dashboard.cycle.wiring` builds it from the settings.

    Without `forgets` nothing is deleted, whatever its age: for a time that no clock tells. `child`
    forecasts and plans, None where this process does.
    """

    settings: Settings
    store: Store
    collectors: tuple[Collector, ...]
    catalogue: GpuCatalogue
    carbon: GridCarbon
    progress: Progress = silent
    forgets: bool = True
    child: ChildProcess | None = None
