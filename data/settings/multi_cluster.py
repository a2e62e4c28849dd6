"""The settings of each cluster in one store: those of the main file, with its own sources."""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from data.base.errors import SettingsError, scrub
from data.base.files import read_small_file
from data.facts.cluster_names import CLUSTER_NAME
from data.settings.all_settings import Settings
from data.settings.load import ENVIRONMENT_PREFIX, load_settings
from data.settings.sources import KubernetesSettings

OWN_SECTIONS = (
    "prometheus",
    "slurm",
    "kubernetes",
    "simulated_fleet",
    "apply_kubernetes",
    "apply_git",
    "apply_slurm",
    "apply_power",
)
"""Sections in the file of a further cluster. All others are common, in the main file.

Not NVML: it reads the machine that Trimtab runs on.
"""
_HINT = (
    "Correct kubernetes.kubeconfig, or clusters.contexts. `kubectl config get-contexts` lists them."
)
_MAX_NAME = 40


def settings_by_cluster(settings: Settings) -> Mapping[str, Settings]:
    """Return the settings of every cluster by name, '' for that of the main file, which is first.

    Errors: SettingsError for a file that cannot be read, is wrong, or sets what is not its own.
    """
    others = {other.name: _read(Path(other.settings)) for other in settings.clusters.others}
    others |= _of_contexts(settings, others)
    return {"": settings} | {
        name: replace(settings, **{part: getattr(local, part) for part in OWN_SECTIONS}, nvml=_NONE)
        for name, local in others.items()
    }


_NONE = Settings().nvml


def _of_contexts(settings: Settings, others: Mapping[str, Settings]) -> dict[str, Settings]:
    """Return the settings of the clusters of a kubeconfig: they are read, and never changed.

    What the files of `others` watch, or are called, is left to them.
    """
    clusters, kubernetes = settings.clusters, settings.kubernetes
    if not clusters.patterns or not kubernetes.enabled:
        return {}
    used = [
        other.kubernetes.context
        for other in others.values()
        if other.kubernetes.enabled and other.kubernetes.kubeconfig == kubernetes.kubeconfig
    ]
    by_name = {}
    contexts = other_contexts(kubernetes, clusters.patterns, used=used, left_out=others)
    for name, context in contexts.items():
        prometheus = Settings().prometheus
        if clusters.selector:
            selector = clusters.selector.replace("{name}", name)
            prometheus = replace(settings.prometheus, selector=selector)
        local = replace(kubernetes, context=context)
        by_name[name] = replace(Settings(), kubernetes=local, prometheus=prometheus)
    return by_name


@cache
def _read(path: Path) -> Settings:
    """Return the settings of a cluster's file: read once, so that a process keeps to one answer."""
    rest = {
        name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)
    }
    loaded = load_settings(path, environ=rest, is_main=False)
    for name, origin in loaded.origins.items():
        if origin.startswith("file ") and name.partition(".")[0] not in OWN_SECTIONS:
            raise SettingsError(
                f"{name} stands in {path}, the file of a further cluster",
                f"It is one for all clusters: set it in the main file. Of a cluster's own are "
                f"{', '.join(OWN_SECTIONS)}.",
            )
    return loaded.settings


def other_contexts(
    settings: KubernetesSettings,
    patterns: tuple[str, ...],
    *,
    used: Collection[str] = (),
    left_out: Collection[str] = (),
) -> Mapping[str, str]:
    """Return the contexts that fit a pattern by cluster name.

    Without those of the main cluster's server, of the servers of the contexts `used`, and of the
    clusters' names `left_out`. Errors: SettingsError for a file that cannot be read, no context of
    the main cluster or of a pattern, two of one name, and two of one server.
    """
    server_of = _contexts(tuple(str(path) for path in _files(settings)))
    listing = ", ".join(map(scrub, [*server_of][:10])) or "none"
    if settings.context not in server_of:
        raise SettingsError(
            f"kubernetes.context is {settings.context!r}; the kubeconfig has {listing}",
            "Where clusters.contexts is set, name the context of the main cluster there.",
        )
    for pattern in patterns:
        if not any(fnmatchcase(context, pattern) for context in server_of):
            raise SettingsError(
                f"no context of the kubeconfig is {pattern}; there are {listing}", _HINT
            )
    skipped = {settings.context, *used}
    servers = {server_of[context] for context in skipped if server_of.get(context)}
    names = {
        context: _name(context)
        for context, server in server_of.items()
        if context not in skipped
        and server not in servers
        and any(fnmatchcase(context, pattern) for pattern in patterns)
    }
    names = {context: name for context, name in names.items() if name not in left_out}
    _require_one_each(names, names, "be the cluster")
    _require_one_each(names, {context: server_of[context] for context in names}, "watch")
    return {name: context for context, name in names.items()}


def _require_one_each(names: Mapping[str, str], value_of: Mapping[str, str], words: str) -> None:
    """Refuse two contexts of which the same is told: boards would be counted twice."""
    for shared, count in Counter(value for value in value_of.values() if value).items():
        if count > 1:
            alike = ", ".join(scrub(context) for context in names if value_of[context] == shared)
            raise SettingsError(
                f"the contexts {alike} would each {words} {scrub(shared)!r}",
                "Name in clusters.contexts the one that is meant, or give them files of their own "
                "in clusters.others.",
            )


def _name(context: str) -> str:
    """Return a cluster's name by its context, such as ml-1 of arn:aws:eks:…:cluster/ml_1.

    The end of a long name counts: what is before it is the account and the region.
    """
    plain = re.sub(r"[^a-z0-9.]+", "-", re.split(r"[/@]", context.lower())[-1])
    name = plain[-_MAX_NAME:].strip("-._")
    if CLUSTER_NAME.fullmatch(name) is None:
        raise SettingsError(
            f"the context {scrub(context)!r} gives no name of a cluster",
            "Give it one in clusters.others, and leave it out of clusters.contexts.",
        )
    return name


def _files(settings: KubernetesSettings) -> list[Path]:
    """Return the files that kubectl would read."""
    paths = [settings.kubeconfig] if settings.kubeconfig else []
    paths = paths or [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    try:
        return [Path(part).expanduser() for part in paths or ["~/.kube/config"]]
    except RuntimeError as error:
        raise SettingsError(f"there is no home folder for {', '.join(paths)}", _HINT) from error


@cache
def _contexts(paths: tuple[str, ...]) -> Mapping[str, str]:
    """Return the server of each context: read once, so that a process keeps to one answer."""
    import yaml

    leads_to: dict[str, str] = {}
    servers: dict[str, str] = {}
    for path in map(Path, paths):
        try:
            # Texts alone: nothing of it is a date or a number here.
            document = yaml.load(read_small_file(path), Loader=yaml.BaseLoader)  # noqa: S506
        except (OSError, yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or "it is not valid YAML"
            raise SettingsError(f"cannot read the kubeconfig {path}: {reason}", _HINT) from error
        for name, cluster in _entries(document, "clusters", "cluster"):
            servers.setdefault(name, str(cluster.get("server") or "").rstrip("/"))
        for name, context in _entries(document, "contexts", "context"):
            leads_to.setdefault(name, str(context.get("cluster") or ""))
    return {context: servers.get(cluster, "") for context, cluster in leads_to.items()}


def _entries(document: Any, plural: str, single: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, content) of the entries of a kubeconfig's list; what is none is passed over."""
    entries = document.get(plural) if isinstance(document, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            content = entry.get(single)
            yield entry["name"], content if isinstance(content, dict) else {}
