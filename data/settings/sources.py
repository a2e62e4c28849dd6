"""The settings of every source of facts."""

import re
from dataclasses import dataclass, fields

from data.facts.cluster_names import CLUSTER_NAME
from data.settings.fields import (
    Section,
    documented,
    documented_list,
    documented_path,
    documented_rows,
    fixed,
    require,
    require_once,
)

_METRIC = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSection(Section):
    """The section of a source; `switch` is the setting that turns the source on."""

    switch = "enabled"

    @property
    def in_use(self) -> bool:
        """Return whether the source is turned on."""
        return bool(getattr(self, self.switch))


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings(SourceSection, name="prometheus"):
    """The Prometheus that scrapes dcgm-exporter."""

    switch = "url"
    url: str = documented("", "base address such as http://prometheus:9090; empty: not used")
    bearer_token: str = documented("", "token sent as Authorization: Bearer", secret=True)
    bearer_token_file: str = documented_path(
        "", "file with that token, read anew at every collection"
    )
    username: str = documented("", "user for HTTP basic authentication")
    password: str = documented("", "password for HTTP basic authentication", secret=True)
    headers_file: str = documented_path("", "file with further headers, one `Name: value` a line")
    ca_file: str = documented_path("", "certificates to trust, PEM; empty: those of certifi")
    client_cert_file: str = documented_path("", "client certificate for mutual TLS, PEM")
    client_key_file: str = documented_path(
        "", "its private key, PEM; empty: in the certificate's file"
    )
    step_seconds: int = documented(60, "resolution asked for, s", minimum=1, maximum=3600)
    lookback_hours: float = documented(
        24.0,
        "how far the first collection reaches back by this step, h; before that, back to "
        "retention.raw_days, it reads five-minute values",
        above=0,
        maximum=9600,
    )
    selector: str = documented("", 'extra label matchers such as cluster="a", inside the braces')
    progress_metric: str = documented(
        "",
        "metric of a job's progress: steps done, or their share, 0 to 1; its labels name the pod "
        "or Slurm job; empty: not read",
    )
    progress_total_metric: str = documented(
        "", "metric with the same labels that holds all steps; empty: progress_metric is a share"
    )
    checkpoint_metric: str = documented(
        "",
        "metric of a job's last checkpoint, Unix seconds; labels as of progress_metric; empty: "
        "not read",
    )

    def _check(self) -> None:
        self.require(
            not self.url or self.url.startswith(("http://", "https://")),
            "url",
            "an http:// or https:// address",
        )
        for name in ("progress_metric", "progress_total_metric", "checkpoint_metric"):
            written = getattr(self, name)
            rule = "the name of a metric, such as training_steps_done"
            self.require(not written or _METRIC.fullmatch(written) is not None, name, rule)
        self.require(
            bool(self.progress_metric) or not self.progress_total_metric,
            "progress_total_metric",
            "given together with prometheus.progress_metric",
        )
        self.require(
            not (self.username and (self.bearer_token or self.bearer_token_file)),
            "username",
            "empty when a bearer token is set: one way to sign in",
        )
        self.require(
            not (self.bearer_token and self.bearer_token_file),
            "bearer_token_file",
            "empty when prometheus.bearer_token is set",
        )
        self.require(
            not self.client_key_file or bool(self.client_cert_file),
            "client_key_file",
            "given together with prometheus.client_cert_file",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings(SourceSection, name="slurm"):
    """Slurm as the source of jobs, nodes and allocations. Reading only."""

    switch = "mode"
    mode: str = documented(
        "",
        "commands (squeue, sacct) or rest (slurmrestd); empty: not used",
        choices=("commands", "rest", ""),
    )
    bin_directory: str = documented_path(
        "", "folder of squeue, sacct and sinfo; empty: found on PATH"
    )
    conf_file: str = documented_path("", "slurm.conf for the commands; empty: Slurm's own default")
    rest_url: str = documented("", "slurmrestd address such as http://slurm:6820")
    rest_user: str = documented("", "sent as X-SLURM-USER-NAME")
    rest_token: str = documented("", "JWT sent as X-SLURM-USER-TOKEN", secret=True)
    rest_token_file: str = documented_path(
        "", "file with that token, read anew at every collection"
    )
    gpu_models: str = documented(
        "", "gres types as catalogue models, such as h100=H100-SXM5-80GB,a100=A100-SXM4-80GB"
    )

    def _check(self) -> None:
        self.require(
            self.mode != "rest" or self.rest_url.startswith(("http://", "https://")),
            "rest_url",
            "an http:// or https:// address when slurm.mode is rest",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings(SourceSection, name="kubernetes"):
    """Kubernetes as the source of workloads, nodes and allocations. Reading only."""

    enabled: bool = documented(False, "read nodes, pods and workloads from a Kubernetes API")
    kubeconfig: str = documented_path("", "kubeconfig file; empty: in-cluster, else ~/.kube/config")
    context: str = documented("", "context of the kubeconfig; empty: its current one")
    namespaces: str = documented_list("", "namespaces to read, comma-separated; empty: all")
    mig_layouts: str = documented(
        "",
        "NAMESPACE/NAME of the ConfigMap of the GPU operator's MIG manager, such as "
        "gpu-operator/default-mig-parted-config; empty: no node is proposed to be cut",
    )

    def _check(self) -> None:
        match = re.fullmatch(r"[a-z0-9][-a-z0-9]{0,62}/[a-z0-9][-a-z0-9.]{0,252}", self.mig_layouts)
        self.require(not self.mig_layouts or match is not None, "mig_layouts", "NAMESPACE/NAME")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlSettings(SourceSection, name="nvml"):
    """The NVIDIA driver of this machine as a source, where no exporter runs."""

    enabled: bool = documented(False, "read the GPUs of this machine through NVML")
    library: str = documented_path("", "path of libnvidia-ml.so.1; empty: the system's")
    mapping_directory: str = documented_path(
        "", "folder of job mapping files written by a Slurm prolog, named by GPU index or UUID"
    )
    node: str = documented("", "this machine's name with its scheduler; empty: its host name")
    proc_root: str = documented_path("/proc", "proc file system of the host, such as /host/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFleetSettings(SourceSection, name="simulated_fleet"):
    """The simulated fleet as a source, for demo, tests and load."""

    enabled: bool = documented(False, "collect from the simulated fleet in this process")
    seed: int = fixed(7)  # same seed, same fleet
    nodes: int = documented(8, "number of nodes", minimum=1, maximum=20_000)
    state_file: str = documented_path(
        "",
        "file of the changes made to it; with apply.enabled it lets more be made; empty: none is",
    )
    small_services: bool = fixed(False)  # beside it, with a node that offers shares


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSections:
    """The section of every live source, by the name that `COLLECTORS` has for it."""

    prometheus: PrometheusSettings = PrometheusSettings()
    slurm: SlurmSettings = SlurmSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    nvml: NvmlSettings = NvmlSettings()
    simulated_fleet: SimulatedFleetSettings = SimulatedFleetSettings()

    def sources_in_use(self) -> tuple[str, ...]:
        """Return the sections of the sources that are turned on."""
        names = (field.name for field in fields(SourceSections))
        return tuple(name for name in names if getattr(self, name).in_use)


def real_source_switches() -> dict[str, str]:
    """Return the setting that turns a source on, by section, of all but the simulated fleet."""
    every = SourceSections()
    return {
        field.name: f"{field.name}.{getattr(every, field.name).switch}"
        for field in fields(SourceSections)
        if field.name != "simulated_fleet"
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCluster:
    """One further cluster: its name, and the file with its sources and apply targets."""

    name: str
    settings: str

    def __post_init__(self) -> None:
        require(
            CLUSTER_NAME.fullmatch(self.name) is not None,
            "clusters.others name",
            self.name,
            "1 to 40 lower-case letters, digits, dots and hyphens, such as paris-1",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings(Section, name="clusters"):
    """Several clusters side by side: the main one, of this file, and others with a file each."""

    others: tuple[OtherCluster, ...] = documented_rows(
        OtherCluster,
        "further clusters: tables of name and settings (a file)",
    )

    def _check(self) -> None:
        require_once([other.name for other in self.others], "clusters.others name")
