"""Builds the world from the settings: the only place where sources, store and catalogue meet."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from collectors.shared.collector import Collector, sources_in_use
from collectors.shared.multi_cluster import InCluster
from dashboard.accounting.cost.prices import price_list
from dashboard.cycle.context import Progress, World, silent
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import Settings
from data.settings.multi_cluster import settings_by_cluster
from data.store import Store, open_store


def build_collectors(settings: Settings) -> tuple[Collector, ...]:
    """Return the configured sources of every cluster; none when nothing is configured.

    Errors: SettingsError for the file of a further cluster.
    """
    catalogue = load_gpu_catalogue()
    collectors: list[Collector] = []
    for cluster, local in settings_by_cluster(settings).items():
        sources = [used.build(local, catalogue) for used in sources_in_use(local).values()]
        collectors += (
            [InCluster(inner=source, cluster=cluster) for source in sources] if cluster else sources
        )
    return tuple(collectors)


@contextmanager
def sampling(collectors: Sequence[Collector]) -> Iterator[None]:
    """Let the sources that read between two cycles do so for as long as the block runs."""
    with ExitStack() as stack:
        for collector in collectors:
            if isinstance(collector, AbstractContextManager):
                stack.enter_context(collector)
        yield


def build_world(
    settings: Settings, *, store: Store | None = None, progress: Progress | None = None
) -> World:
    """Return the world that a cycle touches; opens the store unless one is handed in.

    Errors: SettingsError for a region that is not known, of the fleet or of a price.
    """
    carbon, catalogue = load_carbon_table().get(settings.energy.region), load_gpu_catalogue()
    price_list(settings, catalogue)
    return World(
        settings=settings,
        store=open_store(settings.store.url) if store is None else store,
        collectors=build_collectors(settings),
        catalogue=catalogue,
        carbon=carbon,
        progress=progress or silent,
    )
