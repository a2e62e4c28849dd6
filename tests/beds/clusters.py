"""Three simulated clusters in one store."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

SEEDS = {"": 7, "paris": 8, "lyon": 9}
"""The seed of each cluster's fleet, '' for the main one."""
ALIKE = SEEDS | {"paris": 7}
"""Two fleets with the same names, and the same boards, which no store should see."""

_TARGETS = """\
[simulated_fleet]
enabled = true
seed = {seed}
nodes = {nodes}
state_file = "{name}.json"

"""
_APPLY = """
[apply]
enabled = true
max_namespace_share_ratio = 1
stop_file = "STOP"
"""


def write_clusters(
    folder: Path, *, nodes: int = 8, seeds: Mapping[str, int] = MappingProxyType(SEEDS)
) -> Path:
    """Write the settings of the three; give the path of the main file."""
    for name, seed in seeds.items():
        text = _TARGETS.format(seed=seed, nodes=nodes, name=name or "main")
        if not name:
            text += _APPLY + "".join(
                f'[[clusters.others]]\nname = "{other}"\nsettings = "{other}.toml"\n'
                for other in SEEDS
                if other
            )
        (folder / f"{name or 'trimtab'}.toml").write_text(text, encoding="utf-8")
    return folder / "trimtab.toml"


def changed_clusters(folder: Path) -> set[str]:
    """The names of the clusters that were changed."""
    return {
        path.stem.replace("main", "")
        for path in folder.glob("*.json")
        if json.loads(path.read_text(encoding="utf-8"))["changes"]
    }
