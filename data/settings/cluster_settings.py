"""The settings of several clusters in one store."""

from dataclasses import dataclass

from data.facts.cluster_names import CLUSTER_NAME
from data.settings.fields import Section, documented, documented_list, documented_rows, require


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
        "further clusters: tables of name and settings, the file of its sources and apply targets",
    )

    contexts: str = documented_list(
        "",
        "contexts of the kubeconfig, with * and ?, each a further cluster that is only read; "
        "kubernetes.context is the main one, and those of clusters.others are left to their files",
    )
    selector: str = documented(
        "",
        "prometheus.selector of such a cluster, with {name} for its name, such as "
        "'cluster=\"{name}\"'; empty: no Prometheus is asked",
    )

    @property
    def patterns(self) -> tuple[str, ...]:
        """The entries of `contexts`."""
        return tuple(part.strip() for part in self.contexts.split(",") if part.strip())

    def _check(self) -> None:
        named = not self.selector or "{name}" in self.selector
        self.require(named, "selector", "one with {name}: clusters would count the same boards")
        names = [other.name for other in self.others]
        for other in self.others:
            require(
                names.count(other.name) == 1, "clusters.others name", other.name, "given only once"
            )
