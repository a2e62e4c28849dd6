"""The settings of serverless submission: off until a person switches it on."""

import re
from dataclasses import dataclass

from data.facts.gpu_resources import WHOLE_GPU
from data.settings.fields import Section, documented, documented_list, documented_path, entries

TARGETS = ("kubernetes", "slurm", "simulated")
KUBERNETES_KINDS = ("job", "jobset", "pytorchjob")
_TAINT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,252}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitSettings(Section, name="submit"):
    """The target of `trimtab submit`, and its permission. Previews work without any right."""

    enabled: bool = documented(False, "let Trimtab submit jobs; off: it shows what it would submit")
    target: str = documented(
        "",
        "where jobs are submitted; empty: the target that is configured",
        choices=("", *TARGETS),
    )
    kubeconfig: str = documented_path(
        "", "kubeconfig that may create jobs; empty: that of kubernetes.kubeconfig"
    )
    context: str = documented("", "its context; empty: kubernetes.context")
    namespace: str = documented("default", "Kubernetes namespace that receives the jobs")
    kubernetes_kind: str = documented("job", "object to create", choices=KUBERNETES_KINDS)
    tolerate: str = documented_list(
        WHOLE_GPU, "keys of the nodes' taints that jobs may tolerate, comma-separated"
    )
    partition: str = documented("", "Slurm partition; empty: the default one")
    account: str = documented("", "Slurm account; empty: the default one")
    slurm_user: str = documented(
        "", "user whom Slurm jobs belong to, by sudo; empty: the one who runs Trimtab"
    )
    allow_slurm_operator: bool = documented(
        False,
        "submit although that user is root, SlurmUser or an operator, with whose rights job "
        "files then run",
    )
    max_gpus: int = documented(
        64, "most GPUs that one submitted job may have", minimum=1, maximum=65_536
    )

    def _check(self) -> None:
        for name in ("namespace", "partition", "account", "slurm_user"):
            value = getattr(self, name)
            self.require(
                (value == "" and name != "namespace") or _NAME.fullmatch(value) is not None,
                name,
                "letters, digits, '.', '_' and '-'",
            )
        self.require(
            all(_TAINT.fullmatch(key) for key in self.tolerated_keys),
            "tolerate",
            f"keys of taints such as {WHOLE_GPU}, separated by commas",
        )

    @property
    def tolerated_keys(self) -> tuple[str, ...]:
        """The keys of `tolerate`."""
        return entries(self.tolerate)
