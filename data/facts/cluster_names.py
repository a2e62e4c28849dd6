"""Names of several clusters in one store: `NAME@CLUSTER`, and NAME alone in the store's own one.

Nodes, jobs, pods and sources are told apart by name. Two clusters may use one name, so what is
read from a further cluster carries that cluster's name behind an at sign, which neither Kubernetes
nor Slurm allows in the names of nodes, objects and jobs.
"""

import re

_SIGN = "@"
MAIN_CLUSTER = "main cluster"
"""Name of the store's own cluster for people and filters."""
_NAME = r"[a-z0-9](?:[a-z0-9._-]{0,38}[a-z0-9])?"
CLUSTER_NAME = re.compile(_NAME)
"""Pattern of a cluster's name: it is part of addresses, file names and metrics."""
_FULL = re.compile(rf"(?s:(.*)){_SIGN}({_NAME})(?: \([^()]*\))?")
"""A name with its cluster. Plans name the part of a node with boards of one model in brackets."""


def named_in(name: str, cluster: str) -> str:
    """Return the store's name of something in a cluster; '' stays ''.

    `cluster` is '' for the store's own. An at sign in the name itself is escaped: a label that
    somebody wrote never names another cluster.
    """
    plain = name.replace(_SIGN, "%40")
    return f"{plain}{_SIGN}{cluster}" if plain and cluster else plain


def cluster_in(name: str) -> str:
    """Return the cluster of what the store calls so, '' for its own."""
    match = _FULL.fullmatch(name) if _SIGN in name else None
    return match[2] if match else ""


def name_in_cluster(name: str) -> str:
    """Return the name within its own cluster."""
    match = _FULL.fullmatch(name) if _SIGN in name else None
    return match[1] if match else name
