"""Cluster that takes a job: the one asked for, else the one that is configured."""

from collections.abc import Callable
from datetime import datetime

from collectors.simulated.cluster import cluster_of
from dashboard.submission.targets.kubernetes_target import KubernetesTarget
from dashboard.submission.targets.simulated_target import SimulatedTarget
from dashboard.submission.targets.slurm_target import SlurmTarget
from dashboard.submission.targets.target import SubmissionTarget
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import Settings
from data.settings.submission import TARGETS


def target_name(settings: Settings, choice: str = "") -> str:
    """Return the name of the target. Errors: ChangeRefusedError if none or several could be."""
    if choice or settings.submit.target:
        return choice or settings.submit.target
    configured = [
        name
        for name, there in zip(
            TARGETS,
            (
                settings.kubernetes.enabled,
                bool(settings.slurm.mode),
                settings.simulated_fleet.enabled and bool(settings.simulated_fleet.state_file),
            ),
            strict=True,
        )
        if there
    ]
    if len(configured) != 1:
        what = f"{' and '.join(configured)} are" if configured else "no cluster that takes jobs is"
        raise ChangeRefusedError(
            f"{what} configured, so it is not clear where to submit",
            "Give --target kubernetes or --target slurm, or set submit.target.",
        )
    return configured[0]


def target_of(
    settings: Settings, name: str, *, clock: Callable[[], datetime] = utc_now
) -> SubmissionTarget:
    """Return the target of that name; the simulated cluster's time is `clock`'s."""
    catalogue = load_gpu_catalogue()
    if name == "simulated":
        return SimulatedTarget(cluster_of(settings.simulated_fleet), clock=clock)
    if name == "slurm":
        return SlurmTarget(settings.slurm, settings.submit, catalogue)
    return KubernetesTarget(settings.kubernetes, settings.submit, catalogue)
