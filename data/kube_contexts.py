"""The contexts of a kubeconfig, and the names that clusters get from them."""

import os
import re
from collections import Counter
from collections.abc import Mapping
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


def other_contexts(settings: KubernetesSettings, patterns: tuple[str, ...]) -> Mapping[str, str]:
    """Return the contexts that fit a pattern by cluster name, but for that of the main cluster.

    Errors: SettingsError for a file that cannot be read, no context, and two of one name.
    """
    current, contexts = _contexts(tuple(str(path) for path in _files(settings)))
    main = settings.context or current
    fitting = [
        context
        for context in contexts
        if context != main and any(fnmatchcase(context, pattern) for pattern in patterns)
    ]
    for pattern in patterns:
        if not any(fnmatchcase(context, pattern) for context in contexts):
            known = ", ".join(map(scrub, contexts[:10])) or "none"
            raise SettingsError(
                f"no context of the kubeconfig is {pattern}; there are {known}", _HINT
            )
    names = {context: _name(context) for context in fitting}
    twice = [name for name, count in Counter(names.values()).items() if count > 1]
    for name in twice:
        alike = ", ".join(scrub(context) for context in fitting if names[context] == name)
        raise SettingsError(
            f"the contexts {alike} would both be the cluster {name!r}",
            "Give each a name of its own in clusters.others.",
        )
    return {name: context for context, name in names.items()}


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
    if settings.kubeconfig:
        return [Path(settings.kubeconfig).expanduser()]
    named = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return [Path(part).expanduser() for part in named] or [Path.home() / ".kube" / "config"]


@cache
def _contexts(paths: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return (current context, all contexts): read once, so that a process keeps to one answer."""
    import yaml

    current = ""
    found: dict[str, None] = {}
    for path in map(Path, paths):
        try:
            told: Any = yaml.safe_load(read_small_file(path))
        except (OSError, yaml.YAMLError, RecursionError) as error:
            said = getattr(error, "strerror", None) or "it is not valid YAML"
            raise SettingsError(f"cannot read the kubeconfig {path}: {said}", _HINT) from error
        told = told if isinstance(told, dict) else {}
        current = current or str(told.get("current-context") or "")
        entries = told.get("contexts")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                found[entry["name"]] = None
    return current, tuple(found)
