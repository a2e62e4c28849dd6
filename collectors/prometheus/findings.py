"""Gaps of a Prometheus for Trimtab, each with the exact line that would close it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from collectors.prometheus.client import PrometheusClient
from collectors.readings.board_nodes import TwoNodes
from collectors.readings.device_labels import (
    UnreadDeviceError,
    board_uuid,
    canonical_labels,
    device_of,
    host_of,
    node_of,
)
from collectors.readings.metric_names import (
    BY_NAME,
    NEEDED,
    UTILIZATION_PREFERENCE,
    readable_names,
    unread_metrics,
)
from collectors.shared.collector import Finding
from data.base.counts import count_text
from data.base.errors import CollectorError, scrub
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.sources import PrometheusSettings

_FIELDS = {
    "SM activity": "sm_active",
    "power": "power_watts power_instant_watts",
    "energy counter": "energy_joules",
    "memory used": "memory_used_mib",
    "memory size": "memory_free_mib memory_total_mib",
}
_LINES = {
    "SM activity": "DCGM_FI_PROF_SM_ACTIVE, gauge, SM activity.",
    "power": "DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).",
    "energy counter": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy (in mJ).",
    "memory used": "DCGM_FI_DEV_FB_USED, gauge, Framebuffer used (in MiB).",
    "memory size": "DCGM_FI_DEV_FB_FREE, gauge, Framebuffer free (in MiB).",
}
_CAUSES = {
    "tensor_active": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "dram_active": "DCGM_FI_PROF_DRAM_ACTIVE",
    "fp32_active": "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
    "clock_event_reasons": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
}
"""Metrics of every board that the causes of slow work need beside SM activity."""
_SM_ACTIVITY = "Ampere and older need datacenter-gpu-manager-4-proprietary and SYS_ADMIN. "
NAMES_SLURM = "name a Slurm job"
"""Part of the finding that samples name Slurm jobs."""


def prometheus_findings(
    client: PrometheusClient,
    settings: PrometheusSettings,
    now: datetime,
    *,
    schedulers: Collection[str] = (),
    past: timedelta = timedelta(days=14),
) -> tuple[Finding, ...]:
    """Return present and missing parts, over the ten minutes before `now` (UTC).

    `schedulers` are those of slurm and kubernetes that the settings name already, `past` is how far
    back the first cycle reads.
    """
    try:
        client.begin()
        names = client.metric_names(selector=settings.selector)
    except CollectorError as error:
        return (("reachable and authorised", "missing", str(error)),)
    others = unread_metrics(names)
    return (
        ("reachable and authorised", "ok", count_text(len(names), "metric")),
        *_metrics(names),
        *([("other accelerators", "warning", f"{'; '.join(others)}.")] * bool(others)),
        *_past(client, names, now, past),
        *_series(client, settings, names, now, schedulers),
    )


def _past(
    client: PrometheusClient, names: frozenset[str], now: datetime, past: timedelta
) -> Iterator[Finding]:
    """Yield the days of readings of boards that the server holds."""
    metric = next((name for name in NEEDED if name in readable_names(names)), None)
    if metric is None:
        return
    try:
        first = client.first_reading_at(metric, now - past, now)
    except CollectorError as error:
        yield "past", "warning", f"how far back it holds readings is unknown: {error}"
        return
    day = timedelta(days=1)
    days = 0.0 if first is None else (now - first) / day
    yield "past", "ok", f"holds {days:.1f} d of the {past / day:g} d that the first cycle reads"


def _metrics(names: frozenset[str]) -> Iterator[Finding]:
    """Yield the gaps of the exporter; where none is scraped, that alone."""
    present = sorted(readable_names(names))
    dcgm = any(name.startswith("DCGM_FI_") for name in names)
    if not present and not dcgm:
        yield (
            "GPU exporter",
            "missing",
            (
                "no GPU exporter is scraped. Run dcgm-exporter on every GPU node (the NVIDIA GPU "
                "operator brings it) and add a scrape job, or a ServiceMonitor, for its port 9400."
            ),
        )
        return
    if not dcgm:
        yield "exporter", "ok", f"no dcgm-exporter, but metrics such as {present[0]}"
        return
    metrics = {BY_NAME[name][0].quantity: name for name in reversed(present) if name in BY_NAME}
    for what, quantities in _FIELDS.items():
        hits = [metrics[part] for part in quantities.split() if part in metrics]
        fix = f"Add the line `{_LINES[what]}` to the counters of dcgm-exporter (-f FILE). "
        yield what, "ok" if hits else "missing", hits[0] if hits else fix + _until(what, metrics)
    missing = [name for quantity, name in _CAUSES.items() if quantity not in metrics]
    more = f"Add {', '.join(missing)} (gauge) to the counters of dcgm-exporter. Until then some "
    yield (
        "causes of slow work",
        "missing" if missing else "ok",
        more + "causes are not told, or weakly." if missing else "all counters are there",
    )


def _until(what: str, names: Mapping[str, str]) -> str:
    """Return the substitute for a counter, from those that are there."""
    if what == "SM activity":
        best = next((names[entry] for entry in UTILIZATION_PREFERENCE if entry in names), "unknown")
        tiny = ", which one tiny kernel saturates" if "GPU_UTIL" in best else ""
        return f"{_SM_ACTIVITY}Until then utilization is {best}{tiny}."
    if what == "memory size":
        return "Until then a board's size comes from the catalogue only."
    if what == "energy counter" and {"power_watts", "power_instant_watts"} & names.keys():
        return "Until then energy is the integral of power."
    return f"Until then {'memory use' if what == 'memory used' else what} is unknown."


def _series(
    client: PrometheusClient,
    settings: PrometheusSettings,
    names: frozenset[str],
    now: datetime,
    schedulers: Collection[str],
) -> Iterator[Finding]:
    probe = next((name for name in (*_PROBES, *NEEDED) if name in names), None)
    if probe is None:
        return
    # MIG boards have no utilization by GPU_UTIL: what else a board shows is asked for beside it.
    metrics = [probe, *sorted(name for name in names - {probe} if name in _OF_EVERY_BOARD)]
    matchers = ",".join([f'__name__=~"{"|".join(metrics)}"', *filter(None, [settings.selector])])
    try:
        results = list(
            client.range(
                f"{{{matchers}}}",
                start=now - timedelta(minutes=10),
                end=now,
                step_seconds=settings.step_seconds,
            )
        )
    except CollectorError as error:
        yield "series", "missing", str(error)
        return
    labels = list(_labels(results))
    if not labels:
        selector = f", and prometheus.selector ({scrub(settings.selector)})"
        yield (
            "fresh samples",
            "missing",
            (
                f"no {probe} in the last 10 min. Is the target up? See /targets"
                f"{selector if settings.selector else ''}."
            ),
        )
        return
    catalogue = load_gpu_catalogue()
    devices = [(text, device_of(text, catalogue, {})) for text in labels]
    models = {device.gpu_uuid: device.gpu_model for _text, device in devices if device}
    counted = {
        device.gpu_uuid
        for text, device in devices
        if device and text.get("__name__") in _ENERGY_COUNTERS
    }
    boards = f"{len(labels):,} series of {count_text(len(models), 'board')}"
    yield "fresh samples", "ok", f"{boards} in the last 10 min"
    if 0 < len(counted) < len(models):
        yield (
            "boards with an energy counter",
            "missing",
            (
                f"{len(counted)} of {len(models)}. Add the line `{_LINES['energy counter']}` to "
                "the counters of the other exporters. Until then energy there is the integral of "
                "power."
            ),
        )
    yield _holder(labels, schedulers)
    yield from _two_nodes(labels)
    for detail in catalogue.lacking(models.values()):
        yield "GPU models", "missing", detail
    yield _hosts(labels)


def _labels(results: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield the labels of the series of devices that are read, under the names that are ours."""
    for entry in results:
        texts = {name: str(value) for name, value in dict(entry.get("metric") or {}).items()}
        with suppress(UnreadDeviceError):
            yield dict(canonical_labels(texts.get("__name__", ""), texts))


_PROBES = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_BOARD_POWER_WATTS",
    "nvidia_smi_utilization_gpu_ratio",
    "nvidia_gpu_duty_cycle",
)

_ENERGY_COUNTERS = frozenset(
    name for name, (field, _factor) in BY_NAME.items() if field.quantity == "energy_joules"
)
_OF_EVERY_BOARD = _ENERGY_COUNTERS | {
    name for name, (field, _factor) in BY_NAME.items() if field.quantity == "power_watts"
}


def _holder(labels: Sequence[Mapping[str, str]], schedulers: Collection[str]) -> Finding:
    """Return whether the series name the holder of the GPU."""

    def number(*names: str) -> int:
        return sum(any(label.get(name) for name in names) for label in labels)

    slurm, renamed, plain = number("hpc_job", "jobid"), number("exported_pod"), number("pod")
    total = len(labels)
    if slurm:
        return "job labels", "ok", f"{slurm} of {total} series {NAMES_SLURM}"
    if renamed:
        return (
            "job labels",
            "ok",
            (
                f"{renamed} of {total} series name a pod as exported_pod. The line "
                "`honorLabels: true` in the ServiceMonitor (honor_labels in scrape_configs) "
                "would keep the name pod."
            ),
        )
    exporters = sum("dcgm-exporter" in label.get("pod", "") for label in labels)
    if plain > exporters:
        return "job labels", "ok", f"{plain - exporters} of {total} series name a pod"
    fixes = [fix for name, fix in _NAMING.items() if not schedulers or name in schedulers]
    other = "" if schedulers else "Or name a scheduler: slurm.mode or kubernetes.enabled. "
    return "job labels", "missing", f"no series names a job. {' '.join(fixes)} {other}".strip()


_NAMING = {
    "kubernetes": "Kubernetes: set DCGM_EXPORTER_KUBERNETES=true on dcgm-exporter.",
    "slurm": (
        "Slurm: start it with --hpc-job-mapping-dir DIR and let prolog and epilog write DIR/<gpu>."
    ),
}


def _two_nodes(labels: Sequence[Mapping[str, str]]) -> Iterator[Finding]:
    """Name boards that the same metric has from two nodes."""
    nodes: dict[str, set[str]] = {}
    for texts in labels:
        uuid = texts.get("UUID") or texts.get("gpu_uuid") or texts.get("uuid") or ""
        if uuid and (host := host_of(node_of(texts))):
            nodes.setdefault(board_uuid(uuid), set()).add(host)
    shared = {uuid: hosts for uuid, hosts in nodes.items() if len(hosts) > 1}
    if shared:
        (detail,) = TwoNodes(shared).warnings()
        yield "boards", "missing", detail


def _hosts(labels: Sequence[Mapping[str, str]]) -> Finding:
    """Return whether hosts are nodes or exporter pods."""
    hosts = {label.get("Hostname") or label.get("hostname") or "" for label in labels} - {""}
    pods = sorted(host for host in hosts if "dcgm-exporter" in host)
    if pods:
        return (
            "host names",
            "missing",
            (
                f"Hostname is the exporter's pod ({scrub(pods[0])}). Set NODE_NAME from "
                "spec.nodeName (chart: --set env) or relabel "
                "__meta_kubernetes_pod_node_name to node."
            ),
        )
    nodes = set(map(node_of, labels)) - {""}
    if not nodes:
        return "host names", "missing", "no series has Hostname, node or instance"
    return "host names", "ok", count_text(len(nodes), "host")
