"""What a Prometheus lacks for Trimtab, and the exact line that would add it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from collectors.prometheus_client import PrometheusClient
from data.errors import CollectorError, scrub
from data.source_settings import PrometheusSettings

Finding = tuple[str, str, str]
"""What was looked at; `ok` or `missing`; what was found, or the line to change."""

_NEEDED = {
    "SM activity": (
        ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"),
        (
            "Add the line `DCGM_FI_PROF_SM_ACTIVE, gauge, SM activity.` to the counters of "
            "dcgm-exporter (-f FILE); Ampere and older need datacenter-gpu-manager-4-proprietary "
            "and SYS_ADMIN. Until then utilization is GPU_UTIL, which one tiny kernel saturates."
        ),
    ),
    "power": (
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
        "Add the line `DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).` to the counters.",
    ),
    "energy counter": (
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",),
        (
            "Add the line `DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy (in mJ).` to the "
            "counters. Until then energy is the integral of power."
        ),
    ),
    "memory used": (
        ("DCGM_FI_DEV_FB_USED",),
        "Add the line `DCGM_FI_DEV_FB_USED, gauge, Framebuffer used (in MiB).` to the counters.",
    ),
    "memory free": (
        ("DCGM_FI_DEV_FB_FREE",),
        (
            "Add the line `DCGM_FI_DEV_FB_FREE, gauge, Framebuffer free (in MiB).` to the "
            "counters: without it a board's size comes from the catalogue only."
        ),
    ),
}
_OTHER_EXPORTERS = ("nvidia_smi_", "nvidia_gpu_", "dcgm_")


def prometheus_findings(
    client: PrometheusClient, settings: PrometheusSettings, now: datetime
) -> tuple[Finding, ...]:
    """Give what is there and what is missing, over the ten minutes before `now` (UTC)."""
    try:
        client.begin()
        names = client.metric_names()
    except CollectorError as error:
        return (("reachable and authorised", "missing", str(error)),)
    return (
        ("reachable and authorised", "ok", f"{len(names)} metrics"),
        *_metrics(names),
        *_series(client, settings, names, now),
    )


def _metrics(names: frozenset[str]) -> Iterator[Finding]:
    other = sorted(name for name in names if name.startswith(_OTHER_EXPORTERS))
    if other and not any(name.startswith("DCGM_FI_") for name in names):
        yield "exporter", "ok", f"no dcgm-exporter, but metrics such as {other[0]}"
        return
    for what, (known, fix) in _NEEDED.items():
        found = [name for name in known if name in names]
        yield what, "ok" if found else "missing", found[0] if found else fix


def _series(
    client: PrometheusClient,
    settings: PrometheusSettings,
    names: frozenset[str],
    now: datetime,
) -> Iterator[Finding]:
    probe = next((name for name in _PROBES if name in names), None)
    if probe is None:
        return
    selector = f"{{{settings.selector}}}" if settings.selector else ""
    try:
        found = list(
            client.range(
                probe + selector,
                start=now - timedelta(minutes=10),
                end=now,
                step_seconds=settings.step_seconds,
            )
        )
    except CollectorError as error:
        yield "series", "missing", str(error)
        return
    labels = [dict(one.get("metric") or {}) for one in found]
    if not labels:
        yield (
            "fresh samples",
            "missing",
            (
                f"no {probe} in the last 10 min. Is the target up? See /targets, and "
                f"prometheus.selector ({scrub(settings.selector) or 'empty'})."
            ),
        )
        return
    yield "fresh samples", "ok", f"{len(labels)} series of {probe} in the last 10 min"
    yield _holder(labels)
    yield _hosts(labels)


_PROBES = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_BOARD_POWER_WATTS",
    "nvidia_smi_utilization_gpu_ratio",
    "nvidia_gpu_duty_cycle",
)


def _holder(labels: Sequence[Mapping[str, Any]]) -> Finding:
    """Say whether the series name who holds the GPU."""

    def named(*names: str) -> int:
        return sum(any(one.get(name) for name in names) for one in labels)

    slurm, renamed, plain = named("hpc_job", "jobid"), named("exported_pod"), named("pod")
    total = len(labels)
    if slurm:
        return "job labels", "ok", f"{slurm} of {total} series name a Slurm job"
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
    exporters = sum("dcgm-exporter" in str(one.get("pod", "")) for one in labels)
    if plain > exporters:
        return "job labels", "ok", f"{plain - exporters} of {total} series name a pod"
    return (
        "job labels",
        "missing",
        (
            "no series names a job. Kubernetes: set DCGM_EXPORTER_KUBERNETES=true on "
            "dcgm-exporter. Slurm: start it with --hpc-job-mapping-dir DIR and let prolog and "
            "epilog write DIR/<gpu>. "
            "Or name a scheduler: slurm.mode or kubernetes.enabled."
        ),
    )


def _hosts(labels: Sequence[Mapping[str, Any]]) -> Finding:
    """Say whether hosts are nodes or exporter pods."""
    hosts = {str(one.get("Hostname") or one.get("hostname") or "") for one in labels} - {""}
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
    nodes = {str(one.get("node") or one.get("instance") or "") for one in labels} - {""}
    if not hosts and not nodes:
        return "host names", "missing", "no series has Hostname, node or instance"
    return "host names", "ok", f"{len(hosts or nodes)} hosts"
