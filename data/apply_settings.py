"""Settings of approving and applying: two switches, limits, and who may do what."""

from dataclasses import dataclass

from data.setting_fields import documented, require


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySettings:
    """How approved recommendations reach the cluster. Read-only unless two switches are on.

    The first switch is `apply.enabled`, the second the `enabled` of the target's own section.
    """

    directory: str = documented(".trimtab/changes", "folder that receives change files")
    enabled: bool = documented(False, "first switch: let the apply worker change clusters")
    stop_file: str = documented(
        ".trimtab/STOP", "kill switch: while this file exists nothing is applied"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesApplySettings:
    """Changing Kubernetes objects, with an account apart from the reading one."""

    enabled: bool = documented(False, "second switch: apply changes to Kubernetes")
    kubeconfig: str = documented("", "kubeconfig of the applying account; empty: in-cluster")
    context: str = documented("", "context of that kubeconfig; empty: its current one")
    timeout_seconds: float = documented(10.0, "time for one request, s")

    def __post_init__(self) -> None:
        require(
            0 < self.timeout_seconds <= 60,
            "apply_kubernetes.timeout_seconds",
            self.timeout_seconds,
            "above 0 and at most 60 s",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmApplySettings:
    """Changing Slurm jobs, by the client programs or slurmrestd."""

    enabled: bool = documented(False, "second switch: apply changes to Slurm")
    mode: str = documented("commands", "commands (scontrol) or rest (slurmrestd)")
    bin_directory: str = documented("", "folder of scontrol and squeue; empty: found on PATH")
    conf_file: str = documented("", "slurm.conf for the commands; empty: Slurm's own default")
    rest_url: str = documented("", "slurmrestd address such as http://slurm:6820")
    rest_user: str = documented("", "sent as X-SLURM-USER-NAME")
    rest_token: str = documented("", "JWT sent as X-SLURM-USER-TOKEN", secret=True)
    rest_token_file: str = documented("", "file with that token, read anew at every change")
    allow_requeue: bool = documented(
        False, "running jobs may be requeued to change them: work since a checkpoint is lost"
    )
    timeout_seconds: float = documented(10.0, "time for one command or request, s")

    def __post_init__(self) -> None:
        require(
            self.mode in ("commands", "rest"), "apply_slurm.mode", self.mode, "commands or rest"
        )
        require(
            0 < self.timeout_seconds <= 60,
            "apply_slurm.timeout_seconds",
            self.timeout_seconds,
            "above 0 and at most 60 s",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerApplySettings:
    """Power caps through the agent on the nodes."""

    enabled: bool = documented(False, "second switch: let agents set power limits")
