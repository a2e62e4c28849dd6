"""Builds the world from the settings: the only place where sources, store and catalogue meet."""

import platform
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from collectors.base import Collector
from collectors.dcgm_metrics import PrometheusDcgmCollector
from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.nvml.metrics import NvmlCollector
from collectors.nvml.sampler import NvmlSampler
from collectors.prometheus_client import PrometheusClient
from collectors.simulated_cluster import cluster_of
from collectors.simulated_fleet import SimulatedFleet, SimulatedFleetCollector
from collectors.slurm.jobs import slurm_collector
from dashboard.cycle import Progress, World, silent
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings import Settings
from data.store import Store, open_store


def build_collectors(settings: Settings, *, serving: bool = False) -> tuple[Collector, ...]:
    """Return the configured sources; none when nothing is configured.

    `serving`: the process lives on, so that NVML can be read between two cycles (see `sampling`).
    """
    catalogue = load_gpu_catalogue()
    collectors: list[Collector] = []
    if settings.prometheus.url:
        collectors.append(
            PrometheusDcgmCollector(
                PrometheusClient(settings.prometheus), settings.prometheus, catalogue
            )
        )
    if settings.slurm.mode:
        collectors.append(slurm_collector(settings.slurm, catalogue))
    if settings.kubernetes.enabled:
        collectors.append(KubernetesCollector(KubernetesClient(settings.kubernetes), catalogue))
    if settings.nvml.enabled:
        one = settings.nvml
        host = one.node or platform.node()
        nvml = NvmlCollector(one, catalogue, host, proc_root=Path(one.proc_root))
        collectors.append(
            NvmlSampler(nvml, interval_seconds=one.interval_seconds) if serving else nvml
        )
    if settings.simulated_fleet.enabled:
        collectors.append(simulated_collector(settings))
    return tuple(collectors)


def simulated_collector(settings: Settings) -> SimulatedFleetCollector:
    """Return the simulated fleet as a source, which obeys what was changed where it can be."""
    fleet = settings.simulated_fleet
    return SimulatedFleetCollector(
        fleet=SimulatedFleet(seed=fleet.seed, nodes=fleet.nodes),
        step_seconds=settings.prometheus.step_seconds,
        changed=cluster_of(fleet).fleet if fleet.state_file else None,
    )


@contextmanager
def sampling(collectors: Sequence[Collector]) -> Iterator[None]:
    """Read NVML between the cycles for as long as the block runs."""
    with ExitStack() as stack:
        for collector in collectors:
            if isinstance(collector, NvmlSampler):
                stack.enter_context(collector)
        yield


def build_world(
    settings: Settings,
    *,
    store: Store | None = None,
    progress: Progress | None = None,
    serving: bool = False,
) -> World:
    """Return the world that a cycle touches; opens the store unless one is handed in."""
    carbon = load_carbon_table().get(settings.energy.region)
    world_store = open_store(settings.store.url) if store is None else store
    return World(
        settings=settings,
        store=world_store,
        collectors=build_collectors(settings, serving=serving),
        catalogue=load_gpu_catalogue(),
        carbon=carbon,
        progress=progress or silent,
    )
