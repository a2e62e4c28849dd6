"""The settings of serverless submission: off until a person switches it on."""

import re
from dataclasses import dataclass

from data.gpu_resources import WHOLE_GPU
from data.setting_fields import documented, documented_list, documented_path, require

TARGETS = ("kubernetes", "slurm")
KUBERNETES_KINDS = ("job", "jobset", "pytorchjob")
_TAINT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,252}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitSettings:
    """Where `trimtab submit` sends jobs, and whether it may. Previews work without any right."""

    enabled: bool = documented(False, "let Trimtab submit jobs; off: it shows what it would submit")
    without_confirmation: bool = documented(False, "submit without asking a person each time")
    target: str = documented("", "kubernetes or slurm; empty: the one that is configured")
    kubeconfig: str = documented_path(
        "", "kubeconfig that may create jobs; empty: that of kubernetes.kubeconfig"
    )
    context: str = documented("", "its context; empty: kubernetes.context")
    namespace: str = documented("default", "Kubernetes namespace that receives the jobs")
    kubernetes_kind: str = documented("job", "object to create: job, jobset or pytorchjob")
    tolerate: str = documented_list(
        WHOLE_GPU, "keys of the nodes' taints that jobs may tolerate, comma-separated"
    )
    keep_finished_hours: float = documented(
        168.0, "Kubernetes deletes a finished job after so long, h; 0: never"
    )
    partition: str = documented("", "Slurm partition; empty: the default one")
    account: str = documented("", "Slurm account; empty: the default one")
    slurm_user: str = documented(
        "", "user whom Slurm jobs belong to, by sudo; empty: the one who runs Trimtab"
    )
    allow_slurm_operator: bool = documented(
        False, "submit although that user is root, SlurmUser or an operator: so is every job file"
    )
    max_gpus: int = documented(64, "most GPUs that one submitted job may have")

    def __post_init__(self) -> None:
        require(
            self.target in ("", *TARGETS), "submit.target", self.target, "kubernetes, slurm or ''"
        )
        require(
            self.kubernetes_kind in KUBERNETES_KINDS,
            "submit.kubernetes_kind",
            self.kubernetes_kind,
            "job, jobset or pytorchjob",
        )
        for name in ("namespace", "partition", "account", "slurm_user"):
            value = getattr(self, name)
            require(
                (value == "" and name != "namespace") or _NAME.fullmatch(value) is not None,
                f"submit.{name}",
                value,
                "letters, digits, '.', '_' and '-'",
            )
        require(
            all(_TAINT.fullmatch(key) for key in self.tolerated_keys),
            "submit.tolerate",
            self.tolerate,
            f"keys of taints such as {WHOLE_GPU}, separated by commas",
        )
        require(
            0 <= self.keep_finished_hours <= 24 * 365,
            "submit.keep_finished_hours",
            self.keep_finished_hours,
            "0..8760 h",
        )
        require(1 <= self.max_gpus <= 65_536, "submit.max_gpus", self.max_gpus, "1..65536")

    @property
    def tolerated_keys(self) -> tuple[str, ...]:
        """The keys of `tolerate`."""
        return tuple(key.strip() for key in self.tolerate.split(",") if key.strip())
