"""Ways of an approved recommendation to a cluster. Every target is one line in APPLIERS.

A target that is not switched on is reached by the change file that a person runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from dashboard.apply.contract.applier import Applier
from dashboard.apply.contract.multi_cluster import cluster_of, in_cluster
from data.base.clock import utc_now
from data.records.recommendations import Recommendation
from data.settings.all_settings import Settings
from data.settings.multi_cluster import settings_by_cluster

Clock = Callable[[], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplierSource:
    """`enabled` is the target's own switch; `make` builds the applier, importing what it needs."""

    enabled: Callable[[Settings], bool]
    make: Callable[[Settings, Clock], Applier]


def _kubernetes(settings: Settings, _clock: Clock) -> Applier:
    from dashboard.apply.kubernetes.change.applier import KubernetesApplier

    return KubernetesApplier(settings.apply_kubernetes)


def _git(settings: Settings, _clock: Clock) -> Applier:
    from dashboard.apply.git.applier import GitApplier

    return GitApplier(
        settings.apply_git,
        cluster=settings.apply_kubernetes,
        public_url=settings.access.public_url,
    )


def _slurm(settings: Settings, clock: Clock) -> Applier:
    from dashboard.apply.slurm.change.applier import SlurmApplier

    return SlurmApplier(settings.apply_slurm, source=settings.slurm, clock=clock)


def _power_cap(settings: Settings, clock: Clock) -> Applier:
    from dashboard.apply.power.applier import PowerCapApplier

    return PowerCapApplier(settings.apply_power, clock=clock)


def _simulated(settings: Settings, clock: Clock) -> Applier:
    from collectors.simulated.cluster import cluster_of
    from dashboard.apply.simulated.applier import SimulatedApplier

    return SimulatedApplier(cluster_of(settings.simulated_fleet), clock=clock)


APPLIERS: dict[str, ApplierSource] = {
    # Before kubernetes: a workload that apply_git.paths names is changed where it is kept.
    "git": ApplierSource(enabled=lambda settings: settings.apply_git.enabled, make=_git),
    "kubernetes": ApplierSource(
        enabled=lambda settings: settings.apply_kubernetes.enabled, make=_kubernetes
    ),
    "slurm": ApplierSource(enabled=lambda settings: settings.apply_slurm.enabled, make=_slurm),
    "power-cap": ApplierSource(
        enabled=lambda settings: settings.apply_power.enabled, make=_power_cap
    ),
    "simulated": ApplierSource(
        enabled=lambda settings: bool(settings.simulated_fleet.state_file), make=_simulated
    ),
}
"""Applier name to where it comes from."""


def build_appliers(settings: Settings, *, clock: Clock = utc_now) -> tuple[Applier, ...]:
    """Return the appliers of the targets that both switches allow; `clock` tells them the time.

    Of every cluster: each has targets and switches of its own. Errors: SettingsError.
    """
    if not settings.apply.enabled:
        return ()
    return tuple(
        in_cluster(source.make(local, clock), cluster)
        for cluster, local in settings_by_cluster(settings).items()
        for source in APPLIERS.values()
        if source.enabled(local)
    )


def applier_for(appliers: tuple[Applier, ...], recommendation: Recommendation) -> Applier | None:
    """Return the applier that makes changes of this kind there, None when there is none."""
    candidates = appliers_near(appliers, recommendation)
    return next((applier for applier in candidates if applier.covers(recommendation)), None)


def appliers_near(
    appliers: tuple[Applier, ...], recommendation: Recommendation
) -> tuple[Applier, ...]:
    """Return the appliers of the cluster in which a recommendation changes something."""
    return tuple(applier for applier in appliers if cluster_of(applier) == recommendation.cluster)
