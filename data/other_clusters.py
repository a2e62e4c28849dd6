"""The settings of each cluster in one store: those of the main file, with its own sources."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from data.errors import SettingsError
from data.kube_contexts import other_contexts
from data.load_settings import ENVIRONMENT_PREFIX, LoadedSettings, load_settings
from data.settings import Settings

OWN_SECTIONS = (
    "prometheus",
    "slurm",
    "kubernetes",
    "simulated_fleet",
    "apply_kubernetes",
    "apply_git",
    "apply_slurm",
    "apply_power",
    "apply_simulated",
)
"""What the file of a further cluster holds. All else is one for all and stands in the main file.

Not NVML: it reads the machine that Trimtab runs on.
"""


def settings_by_cluster(settings: Settings) -> Mapping[str, Settings]:
    """Return the settings of every cluster by name, '' for that of the main file, which is first.

    Errors: SettingsError for a file that cannot be read, is wrong, or sets what is not its own.
    """
    others = {other.name: _read(Path(other.settings)) for other in settings.clusters.others}
    others |= _of_contexts(settings, others)
    return {"": settings} | {
        name: replace(settings, **{part: getattr(own, part) for part in OWN_SECTIONS}, nvml=_NONE)
        for name, own in others.items()
    }


_NONE = Settings().nvml


def _of_contexts(settings: Settings, others: Mapping[str, Settings]) -> dict[str, Settings]:
    """Return the settings of the clusters of a kubeconfig: they are read, and never changed.

    What the files of `others` watch, or are called, is left to them.
    """
    clusters, kubernetes = settings.clusters, settings.kubernetes
    if not clusters.patterns or not kubernetes.enabled:
        return {}
    taken = [
        other.kubernetes.context
        for other in others.values()
        if other.kubernetes.enabled and other.kubernetes.kubeconfig == kubernetes.kubeconfig
    ]
    found = {}
    contexts = other_contexts(kubernetes, clusters.patterns, taken=taken, left_out=others)
    for name, context in contexts.items():
        prometheus = Settings().prometheus
        if clusters.selector:
            selector = clusters.selector.replace("{name}", name)
            prometheus = replace(settings.prometheus, selector=selector)
        own = replace(kubernetes, context=context)
        found[name] = replace(Settings(), kubernetes=own, prometheus=prometheus)
    return found


@cache
def _read(path: Path) -> Settings:
    """Return what a cluster's file says: read once, so that a process keeps to one answer."""
    rest = {
        name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)
    }
    loaded = load_settings(path, environ=rest)
    for name in _set_in_file(loaded):
        if name.partition(".")[0] not in OWN_SECTIONS:
            raise SettingsError(
                f"{name} stands in {path}, the file of a further cluster",
                f"It is one for all clusters: set it in the main file. Of a cluster's own are "
                f"{', '.join(OWN_SECTIONS)}.",
            )
    return loaded.settings


def _set_in_file(loaded: LoadedSettings) -> list[str]:
    return [name for name, origin in loaded.origins.items() if origin.startswith("file ")]
