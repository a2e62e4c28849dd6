"""Settings of approving and applying: two switches, limits, and who may do what."""

from dataclasses import dataclass

from data.setting_fields import Section, documented, documented_path
from data.state_folder import USUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplySettings(Section, name="apply"):
    """How approved recommendations reach the cluster. Read-only unless two switches are on.

    The first switch is `apply.enabled`, the second the `enabled` of the target's own section.
    """

    directory: str = documented_path(f"{USUAL}/changes", "folder that receives change files")
    enabled: bool = documented(False, "first switch: let the apply worker change clusters")
    stop_file: str = documented_path(
        f"{USUAL}/STOP", "kill switch: while this file exists nothing is applied"
    )
    max_per_hour: int = documented(
        10, "changes that may be started within an hour", minimum=1, maximum=10_000
    )
    max_namespace_share_ratio: float = documented(
        0.5,
        "GPUs that changes may take from a namespace within 24 h, share of what it holds",
        minimum=0,
        maximum=1,
    )
    min_gpu_hours: float = documented(
        1.0, "smallest saving worth a change, GPU-h", minimum=0, maximum=1e9
    )
    min_energy_kwh: float = documented(1.0, "or this much energy, kWh", minimum=0, maximum=1e9)
    cool_down_minutes: float = documented(
        60.0, "time between two changes of one job, min", minimum=0, maximum=525_600
    )
    poll_seconds: float = documented(
        2.0, "time between two looks at a change under way, s", minimum=0.05, maximum=60
    )
    rollout_timeout_minutes: float = documented(
        5.0,
        "time for the effect of a change, and for a failing job to recover, min",
        minimum=0,
        maximum=525_600,
    )
    watch_minutes: float = documented(
        30.0, "time that an applied change is watched, min", minimum=0, maximum=525_600
    )
    verify_slots: int = documented(
        8, "slots after which savings are measured", minimum=1, maximum=10_000
    )
    throughput_loss_ratio: float = documented(
        0.1,
        "loss of throughput from which a change falls short of its promise, 0..1",
        minimum=0,
        maximum=1,
    )
    auto_rollback: bool = documented(
        False, "undo a change by itself when its job fails or falls short"
    )

    def _check(self) -> None:
        self.require(bool(self.stop_file), "stop_file", "the path of a file")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesApplySettings(Section, name="apply_kubernetes"):
    """Changing Kubernetes objects, with an account apart from the reading one."""

    enabled: bool = documented(False, "second switch: apply changes to Kubernetes")
    kubeconfig: str = documented_path("", "kubeconfig of the applying account; empty: in-cluster")
    context: str = documented("", "context of that kubeconfig; empty: its current one")
    timeout_seconds: float = documented(10.0, "time for one request, s", above=0, maximum=60)
    pending_seconds: float = documented(
        120.0,
        "time a new pod may wait for GPUs before the change counts as failing, s",
        minimum=0,
        maximum=3600,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmApplySettings(Section, name="apply_slurm"):
    """Changing Slurm jobs, by the client programs or slurmrestd."""

    enabled: bool = documented(False, "second switch: apply changes to Slurm")
    mode: str = documented(
        "commands", "commands (scontrol) or rest (slurmrestd)", choices=("commands", "rest")
    )
    bin_directory: str = documented_path("", "folder of scontrol and squeue; empty: found on PATH")
    conf_file: str = documented_path("", "slurm.conf for the commands; empty: Slurm's own default")
    rest_url: str = documented("", "slurmrestd address such as http://slurm:6820")
    rest_user: str = documented("", "sent as X-SLURM-USER-NAME")
    rest_token: str = documented("", "JWT sent as X-SLURM-USER-TOKEN", secret=True)
    rest_token_file: str = documented_path("", "file with that token, read anew at every change")
    allow_requeue: bool = documented(
        False, "running jobs may be requeued to change them: work since a checkpoint is lost"
    )
    requeue_behind_others: bool = documented(
        False, "requeue a running job even while others wait for its nodes and may start first"
    )
    timeout_seconds: float = documented(
        10.0, "time for one command or request, s", above=0, maximum=60
    )
    pending_seconds: float = documented(
        120.0,
        "time a requeued job may wait to start again before the change counts as failing, s",
        minimum=0,
        maximum=604_800,
    )

    def _check(self) -> None:
        self.require(
            self.mode != "rest" or self.rest_url.startswith(("http://", "https://")),
            "rest_url",
            "an http:// or https:// address when apply_slurm.mode is rest",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerApplySettings(Section, name="apply_power"):
    """Power caps through the agent on the nodes."""

    enabled: bool = documented(False, "second switch: let agents set power limits")
    directory: str = documented_path("", "folder shared with the agents: caps/ and reports/")
    secret_file: str = documented_path("", "file with the secret that signs caps and reports")
    lease_seconds: float = documented(
        900.0, "time after which a cap that is not renewed ends, s", minimum=60, maximum=86_400
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedApplySettings(Section, name="apply_simulated"):
    """Changes to the simulated cluster; never beside a real source or a real target."""

    enabled: bool = documented(
        False, "second switch: apply changes to the simulated cluster of simulated_fleet.state_file"
    )
