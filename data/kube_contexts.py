"""The contexts of a kubeconfig, and the names that clusters get from them."""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from data.errors import SettingsError, scrub
from data.records.clusters import CLUSTER_NAME
from data.small_files import read_small_file
from data.source_settings import KubernetesSettings

_HINT = (
    "Correct kubernetes.kubeconfig, or clusters.contexts. `kubectl config get-contexts` lists them."
)
_MAX_NAME = 40


def other_contexts(
    settings: KubernetesSettings,
    patterns: tuple[str, ...],
    *,
    taken: Collection[str] = (),
    left_out: Collection[str] = (),
) -> Mapping[str, str]:
    """Return the contexts that fit a pattern by cluster name.

    Without those of the main cluster's server, of the servers of the contexts `taken`, and of the
    clusters' names `left_out`. Errors: SettingsError for a file that cannot be read, no context of
    the main cluster or of a pattern, two of one name, and two of one server.
    """
    server_of = _contexts(tuple(str(path) for path in _files(settings)))
    known = ", ".join(map(scrub, [*server_of][:10])) or "none"
    if settings.context not in server_of:
        raise SettingsError(
            f"kubernetes.context is {settings.context!r}; the kubeconfig has {known}",
            "Where clusters.contexts is set, name the context of the main cluster there.",
        )
    for pattern in patterns:
        if not any(fnmatchcase(context, pattern) for context in server_of):
            raise SettingsError(
                f"no context of the kubeconfig is {pattern}; there are {known}", _HINT
            )
    skipped = {settings.context, *taken}
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


def _require_one_each(names: Mapping[str, str], told: Mapping[str, str], words: str) -> None:
    """Refuse two contexts of which the same is told: boards would be counted twice."""
    for shared, count in Counter(value for value in told.values() if value).items():
        if count > 1:
            alike = ", ".join(scrub(context) for context in names if told[context] == shared)
            raise SettingsError(
                f"the contexts {alike} would each {words} {scrub(shared)!r}",
                "Name in clusters.contexts the one that is meant, or give them files of their own "
                "in clusters.others.",
            )


def _name(context: str) -> str:
    """Return what a cluster is called by its context, such as ml-1 of arn:aws:eks:…:cluster/ml_1.

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
    named = [settings.kubeconfig] if settings.kubeconfig else []
    named = named or [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    try:
        return [Path(part).expanduser() for part in named or ["~/.kube/config"]]
    except RuntimeError as error:
        raise SettingsError(f"there is no home folder for {', '.join(named)}", _HINT) from error


@cache
def _contexts(paths: tuple[str, ...]) -> Mapping[str, str]:
    """Return the server of each context: read once, so that a process keeps to one answer."""
    import yaml

    leads_to: dict[str, str] = {}
    servers: dict[str, str] = {}
    for path in map(Path, paths):
        try:
            # Texts alone: nothing of it is a date or a number here.
            told = yaml.load(read_small_file(path), Loader=yaml.BaseLoader)  # noqa: S506
        except (OSError, yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
            said = getattr(error, "strerror", None) or "it is not valid YAML"
            raise SettingsError(f"cannot read the kubeconfig {path}: {said}", _HINT) from error
        for name, cluster in _named(told, "clusters", "cluster"):
            servers.setdefault(name, str(cluster.get("server") or "").rstrip("/"))
        for name, context in _named(told, "contexts", "context"):
            leads_to.setdefault(name, str(context.get("cluster") or ""))
    return {context: servers.get(cluster, "") for context, cluster in leads_to.items()}


def _named(told: Any, plural: str, single: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, content) of the entries of a kubeconfig's list; what is none is passed over."""
    entries = told.get(plural) if isinstance(told, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            content = entry.get(single)
            yield entry["name"], content if isinstance(content, dict) else {}
