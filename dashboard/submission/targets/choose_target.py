"""Cluster that takes a job: the one asked for, else the one that is configured."""

from dashboard.submission.targets.kubernetes_target import KubernetesTarget
from dashboard.submission.targets.slurm_target import SlurmTarget
from dashboard.submission.targets.target import SubmissionTarget
from data.base.errors import ChangeRefusedError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import Settings
from data.settings.submission import TARGETS


def target_name(settings: Settings, choice: str = "") -> str:
    """Return kubernetes or slurm. Errors: ChangeRefusedError if neither or both could be meant."""
    if choice or settings.submit.target:
        return choice or settings.submit.target
    configured = [
        name
        for name, there in zip(
            TARGETS, (settings.kubernetes.enabled, bool(settings.slurm.mode)), strict=True
        )
        if there
    ]
    if len(configured) != 1:
        what = "both Kubernetes and Slurm are" if configured else "neither Kubernetes nor Slurm is"
        raise ChangeRefusedError(
            f"{what} configured, so it is not clear where to submit",
            "Give --target kubernetes or --target slurm, or set submit.target.",
        )
    return configured[0]


def target_of(settings: Settings, name: str) -> SubmissionTarget:
    """Return the target of that name."""
    catalogue = load_gpu_catalogue()
    if name == "slurm":
        return SlurmTarget(settings.slurm, settings.submit, catalogue)
    return KubernetesTarget(settings.kubernetes, settings.submit, catalogue)
