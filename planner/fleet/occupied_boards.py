"""Boards in use on each node, by readings and by what schedulers gave away."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from data.boards.board_shares import HOLD_TIMEOUT
from data.facts.cluster_names import cluster_in, name_in_cluster, named_in
from data.facts.fleet import Gpu


def taken_boards(
    places: Sequence[tuple[str, str, int]],
    busy_gpus: Iterable[Gpu],
    occupied: Mapping[tuple[str, str], int],
) -> Mapping[tuple[str, str], int]:
    """Return the boards in use by (node name, GPU model).

    `places` are (node name, GPU model, boards), `busy_gpus` those in use by their readings;
    `occupied` counts the boards that schedulers gave away by (node, GPU model). The two may be the
    same boards, so the larger count holds. A job whose model is not known on its node may hold any
    of it.
    """
    busy: dict[tuple[str, str], set[str]] = defaultdict(set)
    for gpu in busy_gpus:
        if not gpu.mig_instance:
            busy[short_name(gpu.node), gpu.gpu_model].add(gpu.gpu_uuid)
    models = {(short_name(name), model) for name, model, _boards in places}
    given_away: Counter[tuple[str, str]] = Counter()
    for (name, model), boards in occupied.items():
        host = short_name(name)
        given_away[host, model if (host, model) in models else ""] += boards
    counts = {}
    for name, model, boards in places:
        host = short_name(name)
        counts[name, model] = min(
            boards, max(len(busy[host, model]), given_away[host, model] + given_away[host, ""])
        )
    return counts


def is_unexplained_work(gpu: Gpu) -> bool:
    """Return whether a board, when last seen, worked without a label, or may have."""
    return gpu.unexplained_at is not None and gpu.unexplained_at > gpu.last_seen_at - HOLD_TIMEOUT


def short_name(name: str) -> str:
    """Return a host name without its domain: schedulers and exporters differ in that.

    The name of a further cluster stays with it.
    """
    host = name_in_cluster(name).partition(" ")[0].partition(".")[0].casefold()
    return named_in(host, cluster_in(name))
