"""Lists of a Kubernetes API as one inventory: what may not be read is named beside the rest."""

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

from collectors.kubernetes.api import Document, KubernetesApi
from collectors.kubernetes.kinds import (
    ASKED_WHERE,
    KINDS,
    NEEDED,
    WITHOUT_NAMESPACE,
    without_unread_fields,
)
from collectors.shared.json_parts import text_in
from data.base.errors import (
    CollectorError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
)
from data.settings.fields import entries


def path_of_config_map(source: str) -> str:
    """Return the API path of a ConfigMap that settings name as NAMESPACE/NAME."""
    namespace, _, name = source.partition("/")
    return f"api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"


@dataclass(slots=True)
class Inventory:
    """The objects by kind, and the kinds that were refused or failed, with the reason.

    `unreadable` counts the list entries that were no objects. `namespaces` are those that alone
    were asked for, '' where all were. `mig_config` is the ConfigMap that
    `mig_source` names, None where none is read; `warnings` tell what else could not be read.
    `version` is the server's release, '' where it does not say.
    """

    objects: dict[str, list[Document]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    unreadable: int = 0
    namespaces: str = ""
    mig_source: str = ""
    mig_config: Document | None = None
    warnings: list[str] = field(default_factory=list)
    version: str = ""

    def of(self, kind: str) -> list[Document]:
        """Return the objects of a kind, none when it is not installed or was refused."""
        return self.objects.get(kind, [])


class KubernetesClient(KubernetesApi):
    """One API server, of which whole lists are read."""

    def inventory(self) -> Inventory:
        """Return all objects of the known kinds.

        Errors: CollectorError when neither nodes nor pods may be read, or either fails otherwise.
        """
        inventory = Inventory(namespaces=self._settings.namespaces)
        errors: dict[str, CollectorError] = {}
        for kind in KINDS:
            if kind in ASKED_WHERE and not ASKED_WHERE[kind](inventory.objects):
                continue
            silent = [
                collector_error
                for collector_error in errors.values()
                if isinstance(collector_error, SourceUnreachableError)
            ]
            if len(silent) > 1:
                # The server is gone: every further kind would wait as long.
                inventory.missing[kind] = f"not asked: {silent[-1]}"
                continue
            try:
                listed = self.listed(kind)
            except CollectorError as error:
                errors[kind] = error
                if kind in NEEDED and not isinstance(error, SourceRefusedError):
                    raise
                if errors.keys() >= set(NEEDED):
                    raise errors[NEEDED[0]] from error
                inventory.missing[kind] = str(error)
                continue
            if listed is not None:
                inventory.objects[kind] = [entry for entry in listed if isinstance(entry, dict)]
                inventory.unreadable += len(listed) - len(inventory.objects[kind])
            elif kind in NEEDED:
                raise UnexpectedAnswerError(
                    f"{self.name} knows no {kind}s: {KINDS[kind][0]} answered 404",
                    "Is this the address of a Kubernetes API?",
                )
        self._read_mig_config(inventory)
        if not any(isinstance(error, SourceUnreachableError) for error in errors.values()):
            with suppress(CollectorError):  # unknown then: nothing that needs a release is offered
                inventory.version = version_of(self.read("version"))
        return inventory

    def _read_mig_config(self, inventory: Inventory) -> None:
        """Add the ConfigMap of MIG layouts where one is named: without it none is known."""
        source = self._settings.mig_layouts
        if not source:
            return
        try:
            layouts = self.read(path_of_config_map(source))
        except CollectorError as error:
            inventory.warnings.append(f"no MIG layout is known: {error}")
            return
        if layouts is None:
            inventory.warnings.append(f"no ConfigMap {source}. Correct kubernetes.mig_layouts.")
        else:
            inventory.mig_config, inventory.mig_source = layouts, source

    def listed(self, kind: str) -> list[Any] | None:
        """Return every entry of a kind's list, None when the server does not know the kind.

        Of pods that ask for no device, as most of a cluster, little is kept.
        """
        for path in KINDS[kind]:
            lists = [
                self.whole_list(place, read=partial(without_unread_fields, kind))
                for place in self._paths(kind, path)
            ]
            if all(entries is not None for entries in lists):
                return [entry for entries in lists for entry in entries or []]
        return None

    def _paths(self, kind: str, path: str) -> list[str]:
        namespaces = entries(self._settings.namespaces)
        if not namespaces or kind in WITHOUT_NAMESPACE:
            return [path]
        group, _, plural = path.rpartition("/")
        return [
            f"{group}/namespaces/{quote(namespace, safe='')}/{plural}" for namespace in namespaces
        ]


def version_of(answer: object) -> str:
    """Return the release that a server's /version states, as `1.20`; '' where it does not."""
    major, minor = text_in(answer, "major"), text_in(answer, "minor").rstrip("+")
    return f"{major}.{minor}" if major.isdecimal() and minor.isdecimal() else ""
