"""Device and holder of a series by its labels, in every exporter's and relabeling's dialect.

Labels are untrusted text. An empty label is an unknown one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from collectors.readings.metric_names import EXPORTER_OF, INFOS
from data.base.text import storable
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.cluster_names import named_in

Labels = Mapping[str, str]

_EXPORTER = re.compile(r"(?:dcgm|nvidia|gpu)[a-z-]{0,40}-exporter")
_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/(\d+)/\d+")
_NUMBERED = re.compile(r"nvidia(\d+)/gi(\d+)(?:/vgpu\d+)?")
_UUID = re.compile(
    r"(?i:(gpu-|mig-(?:gpu-)?)([0-9a-f-]+(?:/\d+/\d+)?)|()([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))"
)
_WHOLE_UUID = re.compile(r"(?:GPU-)?(?!0{8}-)[0-9A-Za-z]{8}(?:-[0-9A-Za-z]{4}){3}-[0-9A-Za-z]{12}")
"""A virtual machine may show a UUID of zeros for each of its boards."""
_COMPUTE_INSTANCE = re.compile(r"^\d+c\.")
_REPLICA = re.compile(r"::\d+$")
_PORT = re.compile(r":\d+$")
_ADDRESS = re.compile(r"[0-9.]+|.*:.*")
_UUID_LABELS = ("UUID", "gpu_uuid", "uuid")
MAX_LABEL = 1024
"""Characters; names of pods, nodes and models have at most 253."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledDevice:
    """The board or MIG instance of a series, and its holder as far as labels tell."""

    gpu_uuid: str
    mig_instance: str
    job_id: str
    mig_profile: str
    node: str
    gpu_index: str
    gpu_model: str


def readable_labels(labels: Mapping[str, object]) -> tuple[Labels, int] | None:
    """Return the labels as text that can be kept and shown, and how many of them were too long.

    One that is too long becomes unknown, so that its board keeps its readings. None: one is no
    text at all.
    """
    result: dict[str, str] = {}
    long = 0
    for name, value in labels.items():
        if not isinstance(value, str):
            return None
        long += len(value) > MAX_LABEL
        result[name] = storable(value) if len(value) <= MAX_LABEL else ""
    return result, long


class UnreadDeviceError(ValueError):
    """A series of a device that is not read; the text is the mode that a board is in, or empty."""


def canonical_labels(metric: str, labels: Labels) -> Labels:
    """Return the labels of a series under the names that `device_of` reads.

    A board without a UUID is that of its node and index. Errors: UnreadDeviceError for a series
    that exporters.toml does not name, such as one of a part of a board.
    """
    exporter = EXPORTER_OF.get(metric)
    if exporter is None or not exporter.needs:
        return labels
    for name, values in exporter.modes.items():
        if labels.get(name, "") not in values:
            raise UnreadDeviceError(f"{name}={labels[name]}")
    if not all(labels.get(name, "").strip() for name in exporter.needs) or any(
        labels.get(name, "") not in values for name, values in exporter.only.items()
    ):
        raise UnreadDeviceError
    ours = dict(labels)
    for name, our_name in exporter.labels.items():
        if name in labels:
            ours[our_name] = labels[name]
    uuid = _first(ours, *_UUID_LABELS)
    if not _WHOLE_UUID.fullmatch(uuid):
        node, index = node_of(ours), _first(ours, "gpu") or uuid
        if not node or not index or index.startswith("MIG-"):
            raise UnreadDeviceError
        uuid = f"{node}/{'gpu' * index.isdigit()}{index}"
    for name in _UUID_LABELS:
        ours.pop(name, None)
    return ours | {"uuid" if metric in INFOS else "UUID": uuid}


def board_name(labels: Labels) -> str:
    """Return the name by which a person finds the board of a series of any exporter."""
    place = _first(labels, "gpu", "gpu_id")
    return _first(labels, *_UUID_LABELS) or f"{node_of(labels)}/gpu{place}"


def board_uuid(text: str) -> str:
    """Return a UUID as NVML writes it, `GPU-0f1e2d3c-…`; text that is none without blanks."""
    match = _UUID.fullmatch(text.strip())
    if match is None:
        return text.strip()
    kind, digits = match[1] or "", match[2] or match[4]
    return kind.upper() + digits.lower()


def _first(labels: Labels, *names: str) -> str:
    return next((text for name in names if (text := labels.get(name, "").strip())), "")


def device_of(
    labels: Labels, catalogue: GpuCatalogue, infos: Mapping[str, Labels]
) -> LabelledDevice | None:
    """Return the device of a series, None when it names no board.

    `infos` maps `info_key` of an info series to its labels, for exporters that name model, index
    and MIG profile there only.
    """
    uuid = board_uuid(_REPLICA.sub("", _first(labels, *_UUID_LABELS)))
    info = infos.get(uuid, {})
    node = node_of(labels)
    index = _first(labels, "gpu", "minor_number", "ordinal") or info.get("index", "")
    instance = _first(labels, "GPU_I_ID", "gpu_instance_id")
    profile = _first(labels, "GPU_I_PROFILE", "dra_mig_profile") or _COMPUTE_INSTANCE.sub(
        "", infos.get(f"{uuid}/{instance}", {}).get("profile", "")
    )
    old = _OLD_MIG.fullmatch(uuid)
    numbered = _NUMBERED.fullmatch(uuid)
    if old:
        uuid, instance = old.group(1), instance or old.group(2)
    elif numbered:
        # Google's device plugin numbers boards per node.
        index = index or numbered.group(1)
        uuid, instance = (f"{node}/gpu{index}", instance or numbered.group(2)) if node else ("", "")
    elif uuid.startswith("MIG-"):
        # A MIG UUID does not tell its board; node and index do, and the board's values are one.
        uuid, instance = (f"{node}/gpu{index}", instance or uuid) if node and index else ("", "")
    elif uuid and not uuid.startswith("GPU-") and ("uuid" in labels or _UUID.fullmatch(uuid)):
        uuid = f"GPU-{uuid}"
    if not uuid:
        return None
    model = _first(labels, "modelName", "model_name", "name") or info.get("name", "")
    return LabelledDevice(
        gpu_uuid=uuid,
        mig_instance=instance,
        job_id=holder_of(labels),
        mig_profile=profile,
        node=node,
        gpu_index=index,
        gpu_model=catalogue.recognise(model) if model else "",
    )


def info_key(info: Labels) -> str:
    """Return the key of an info series: its uuid, of a MIG instance uuid/instance."""
    instance = info.get("gpu_instance_id", "")
    uuid = board_uuid(info.get("uuid", ""))
    return f"{uuid}/{instance}" if instance else uuid


def node_of(labels: Labels) -> str:
    """Return node: its label, else the host name unless that is the exporter's pod, else address.

    Without host naming dcgm-exporter's Hostname is its own pod.
    """
    host = _first(labels, "Hostname", "hostname", "host")
    if _EXPORTER.search(host):
        host = ""
    node = _first(labels, "node", "kubernetes_node", "nodename")
    return named_in(node or host or _PORT.sub("", _first(labels, "instance")), "")


def host_of(node: str) -> str:
    """Return the short lower-case name by which a node is one and the same, '' for an address.

    One exporter calls a node by its name, another by its address: those do not contradict.
    """
    return "" if _ADDRESS.fullmatch(node) else node.partition(".")[0].lower()


def holder_of(labels: Labels) -> str:
    """Return the id of the job that the labels name, '' when they name none.

    With honor_labels off Prometheus moves the workload to exported_*, and `pod` is the exporter.
    """
    slurm = _first(labels, "hpc_job", "jobid")
    if slurm and slurm != "0":
        return named_in(f"slurm:{slurm}", "")
    for pod, namespace in (
        ("exported_pod", "exported_namespace"),
        ("pod", "namespace"),
        ("pod_name", "pod_namespace"),
    ):
        if pod in labels:
            name = _first(labels, pod)
            if not name or _EXPORTER.search(name):
                return ""
            return named_in(f"{_first(labels, namespace)}/{name}", "")
    return ""
