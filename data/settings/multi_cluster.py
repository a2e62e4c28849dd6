"""The settings of each cluster in one store: those of the main file, with its own sources."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from data.base.errors import SettingsError
from data.settings.all_settings import Settings
from data.settings.load import ENVIRONMENT_PREFIX, load_settings

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


def settings_by_cluster(settings: Settings) -> Mapping[str, Settings]:
    """Return the settings of every cluster by name, '' for that of the main file, which is first.

    Errors: SettingsError for a file that cannot be read, is wrong, or sets what is not its own.
    """
    others = {other.name: _read(Path(other.settings)) for other in settings.clusters.others}
    return {"": settings} | {
        name: replace(settings, **{part: getattr(local, part) for part in OWN_SECTIONS}, nvml=_NONE)
        for name, local in others.items()
    }


_NONE = Settings().nvml


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
