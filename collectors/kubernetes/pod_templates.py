"""GPUs that a workload asks for by its templates, also while it has no pods.

The GPUs of its pod templates, times the pods that it makes of each.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from collectors.kubernetes.api import Document
from collectors.kubernetes.host_requests import asked_of_host
from collectors.kubernetes.objects import GpuRequest, HostRequest, PodFacts, requests_of
from collectors.shared.json_parts import list_in, part, text_in, whole_number
from data.base.errors import scrub
from data.facts.device_numbers import named_gpus, named_nodes, named_processes, named_shards
from data.records.feasible_changes import UNREAD_COUNT

Templates = Iterator[tuple[int, object]]
"""Pods to make, and the pod spec to make them of."""

Reader = Callable[[str], Iterator[tuple[int, str]]]
"""Reads numbers with their words in a line of a command."""

_VARIABLE = re.compile(r"\$[({]?([A-Za-z_]\w*)[)}]?")
"""A variable of the container as Kubernetes and as a shell name it: $(NAME), $NAME, ${NAME}."""
_ENGINES: Mapping[str, tuple[re.Pattern[str], str]] = {
    "vllm": (
        re.compile(r"(?:^|[\s/])vllm\s+serve\b|\bvllm\.entrypoints\.openai\.api_server\b"),
        "vllm serve",
    ),
    "sglang": (re.compile(r"\bsglang\.launch_server\b"), "python -m sglang.launch_server"),
}
_KEPT_ARGUMENTS = frozenset(
    (
        *("model", "model-path", "tensor-parallel-size", "tp", "tp-size", "max-model-len"),
        *("context-length", "max-num-seqs", "max-running-requests", "max-num-batched-tokens"),
        *("chunked-prefill-size", "gpu-memory-utilization", "mem-fraction-static"),
        *("kv-cache-dtype", "quantization"),
    )
)
_UNREAD = re.compile(
    r"lora|adapter|specul|draft|offload|config|override|rope|parallel|^[dp]p(?:-size)?$|^q$|^O$"
    r"|mamba|encoder|mm-|worker|load-format|revision"
)
_PLAIN = re.compile(r"[A-Za-z0-9-][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")
_HALF = frozenset(("auto", "half", "float16", "bfloat16"))
_MAX_LENGTH = 120
_MAX_WORDS = 200


class CountNotReadError(ValueError):
    """A number of pods that is not a whole number."""


def _times(value: object) -> int:
    """Return a number of pods; what is left out is one, as Kubernetes fills it in.

    Errors: CountNotReadError, as none would be a workload without GPUs.
    """
    count = 1 if value is None else whole_number(value)
    if count is None:
        raise CountNotReadError(str(value))
    return count


def unread_count(kind: str, document: object) -> str:
    """Return the number of pods of an object that is not understood, '' where all are."""
    try:
        list(_BY_KIND[kind](document))
    except CountNotReadError as error:
        return str(error)
    return ""


def _replicated(document: object) -> Templates:
    yield _times(part(document, "spec", "replicas")), part(document, "spec", "template", "spec")


def _job(document: object) -> Templates:
    yield _times(part(document, "spec", "parallelism")), part(document, "spec", "template", "spec")


def _roles(document: object) -> Templates:
    """Yield Kubeflow's templates by role, under a name that begins with the framework's."""
    spec = part(document, "spec")
    for name, roles in spec.items() if isinstance(spec, Mapping) else ():
        if str(name).endswith("ReplicaSpecs") and isinstance(roles, Mapping):
            for role in roles.values():
                yield _times(part(role, "replicas")), part(role, "template", "spec")


def _train_job(document: object) -> Templates:
    trainer = part(document, "spec", "trainer")
    container = {"resources": part(trainer, "resourcesPerNode")}
    yield _times(part(trainer, "numNodes")), {"containers": [container]}


def _job_set(document: object) -> Templates:
    for entry in list_in(document, "spec", "replicatedJobs"):
        for times, spec in _job(part(entry, "template")):
            yield _times(part(entry, "replicas")) * times, spec


def _ray(*place: str) -> Callable[[object], Templates]:
    def templates(document: object) -> Templates:
        cluster = part(document, *place)
        yield 1, part(cluster, "headGroupSpec", "template", "spec")
        for group in list_in(cluster, "workerGroupSpecs"):
            pods = _times(part(group, "replicas")) * _times(part(group, "numOfHosts"))
            yield pods, part(group, "template", "spec")

    return templates


def _leader_worker_set(document: object) -> Templates:
    groups = _times(part(document, "spec", "replicas"))
    group = part(document, "spec", "leaderWorkerTemplate")
    worker = part(group, "workerTemplate", "spec")
    leader = part(group, "leaderTemplate", "spec") or worker
    yield groups, leader
    yield groups * max(0, _times(part(group, "size")) - 1), worker


_BY_KIND: Mapping[str, Callable[[object], Templates]] = {
    "Deployment": _replicated,
    "StatefulSet": _replicated,
    "Job": _job,
    "PyTorchJob": _roles,
    "MPIJob": _roles,
    "TrainJob": _train_job,
    "JobSet": _job_set,
    "RayCluster": _ray("spec"),
    "RayJob": _ray("spec", "rayClusterSpec"),
    "RayService": _ray("spec", "rayClusterConfig"),
    "LeaderWorkerSet": _leader_worker_set,
}


def rollout_refusal(document: object) -> str:
    """Return the reason why a new template would not replace all pods; '' when it would."""
    spec = part(document, "spec")
    if part(spec, "paused") is True:
        return "it is paused: no pod would be made anew before someone resumes it"
    if part(spec, "updateStrategy", "type") == "OnDelete":
        return "its updateStrategy is OnDelete: no pod would be made anew before it is deleted"
    if part(spec, "updateStrategy", "rollingUpdate", "partition"):
        return "its updateStrategy has a partition: some pods would keep their GPUs"
    return ""


def unit_facts(kind: str, document: Document) -> Iterator[tuple[str, str]]:
    """Return the facts of a workload's units: GPUs of one, of its pods and in all, and containers.

    The unit is what one more of its replicas brings; nothing for a kind without such a count. Of a
    count that is not understood its text alone.
    """
    if unread := unread_count(kind, document):
        yield UNREAD_COUNT, scrub(unread, limit=40)
        return
    units, specs = _units(kind, document)
    each = sum(times * _gpus(spec) for times, spec in specs)
    if not each:
        return
    total = sum(request.count for request in demand_of(kind, document))
    yield "wanted_gpus", str(total)
    yield "gpus_per_unit", str(each)
    yield "fixed_gpus", str(max(0, total - units * each))
    if len(specs) == 1:
        containers = list_in(specs[0][1], "containers")
        holding = [entry for entry in containers if _gpus({"containers": [entry]})]
        yield "gpu_containers", str(len(holding))
        if len(holding) == 1 and (command := engine_command(holding[0])):
            yield "engine_command", command
        gpu_counts = [
            count
            for entry in holding
            for count, _text in gpus_named_by(entry)
            if count <= _gpus(specs[0][1])
        ]
        if gpu_counts:
            yield "named_gpus", str(max(gpu_counts))
        for fact, reader, limit in (
            ("named_pods", pods_named_by, units),
            ("named_processes", processes_named_by, total),
        ):
            fits = [count for entry in holding for count, _text in reader(entry) if count <= limit]
            if fits:
                yield fact, str(max(fits))


def gpus_named_by(container: object) -> list[tuple[int, str]]:
    """Return the numbers of GPUs that a container's command and variables name, with the words."""
    return _named_in(container, named_gpus)


def pods_named_by(container: object) -> list[tuple[int, str]]:
    """Return the numbers of nodes or shards that a container names, with the words: of pods."""
    return _named_in(container, named_nodes) + _named_in(container, named_shards)


def processes_named_by(container: object) -> list[tuple[int, str]]:
    """Return the numbers of processes of the whole workload that a container names."""
    return _named_in(container, named_processes)


def _named_in(container: object, reader: Reader) -> list[tuple[int, str]]:
    words = (*list_in(container, "command"), *list_in(container, "args"))
    values = {
        text_in(entry, "name"): text_in(entry, "value") for entry in list_in(container, "env")
    }
    variables = (f"{name}={value}" for name, value in values.items())
    lines = (" ".join(map(str, words)).replace("\n", " "), *variables)
    texts = (_VARIABLE.sub(lambda used: values.get(used[1], "") or used[0], line) for line in lines)
    return [pair for line in texts for pair in reader(line)]


def _gpus(spec: object) -> int:
    return sum(request.count for request in requests_of(spec))


def _units(kind: str, document: object) -> tuple[int, list[tuple[int, object]]]:
    """Return the number of units, and the pods of one as (times, pod spec)."""
    if kind == "PyTorchJob":
        worker = part(document, "spec", "pytorchReplicaSpecs", "Worker")
        return _times(part(worker, "replicas")), [(1, part(worker, "template", "spec"))]
    if kind == "LeaderWorkerSet":
        group = part(document, "spec", "leaderWorkerTemplate")
        worker = part(group, "workerTemplate", "spec")
        leader = part(group, "leaderTemplate", "spec") or worker
        others = max(0, _times(part(group, "size")) - 1)
        return _times(part(document, "spec", "replicas")), [(1, leader), (others, worker)]
    if kind in ("RayCluster", "RayService"):
        cluster = part(
            document, *(("spec",) if kind == "RayCluster" else ("spec", "rayClusterConfig"))
        )
        groups = [
            (
                _times(part(entry, "replicas")),
                [(_times(part(entry, "numOfHosts")), part(entry, "template", "spec"))],
            )
            for entry in list_in(cluster, "workerGroupSpecs")
        ]
        return max(
            groups,
            key=lambda entries: entries[0] * entries[1][0][0] * _gpus(entries[1][0][1]),
            default=(0, []),
        )
    if kind in ("Deployment", "StatefulSet", "Job"):
        return next((units, [(1, spec)]) for units, spec in _BY_KIND[kind](document))
    return 0, []


def demand_of(kind: str, document: Document) -> tuple[GpuRequest, ...]:
    """Return the GPUs that an object of one of `KINDS_WITH_TEMPLATES` wants in all.

    Nothing where a number of its pods is not understood.
    """
    if unread_count(kind, document):
        return ()
    return added(
        replace(request, count=request.count * pods)
        for pods, spec in _BY_KIND[kind](document)
        for request in requests_of(spec)
    )


KINDS_WITH_TEMPLATES = tuple(_BY_KIND)


def host_facts(pods: Sequence[PodFacts], kind: str, document: object) -> Iterator[tuple[str, str]]:
    """Yield CPUs and memory that pods with GPUs request together; without pods, their templates.

    Nothing where one of them cannot be read.
    """
    is_read = kind in _BY_KIND and not unread_count(kind, document)
    templates = _BY_KIND[kind](document) if is_read else ()
    requests = [pod.asks for pod in pods] or [
        asks and asks.times(count)
        for count, spec in templates
        if requests_of(spec)
        for asks in (asked_of_host(spec),)
    ]
    readable = [asks for asks in requests if asks is not None]
    if readable and len(readable) == len(requests):
        total = sum(readable, HostRequest())
        yield "cpus", str(total.cpus).removesuffix(".0")
        yield "memory_mib", str(total.memory_mib).removesuffix(".0")


def added(requests: Iterable[GpuRequest]) -> tuple[GpuRequest, ...]:
    """Return the requests with those of one kind added up, the most devices first."""
    total: Counter[tuple[str, bool]] = Counter()
    for request in requests:
        total[request.mig_profile, request.shared] += request.count
    return tuple(
        GpuRequest(mig_profile=profile, shared=shared, count=count)
        for (profile, shared), count in sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))
        if count > 0
    )


def engine_command(container: object) -> str:
    """Return the command of the engine that a container starts, '' where it is not wholly told.

    Only named options are kept, as a command may hold secrets. Where another option could change
    the memory, or a value is not told in the command, nothing is: half of a command reads like
    another.
    """
    words = [str(word) for name in ("command", "args") for word in list_in(container, name)]
    try:
        if words and re.fullmatch(r"(?:/\w+)*/?(?:ba|da)?sh", words[0]):
            words = shlex.split(words[-1])
    except ValueError:  # a quote that does not close
        return ""
    line = " ".join(words)
    for name, (starts, program) in _ENGINES.items():
        begun = starts.search(line)
        if begun:
            return _cut(program, line[begun.end() :].split())
        if not list_in(container, "command") and f"/{name}" in f"/{text_in(container, 'image')}":
            return _cut(program, words)  # the image's own entrypoint
    return ""


def _cut(program: str, words: list[str]) -> str:
    """Return the options that are kept of those given, '' where another one matters."""
    if len(words) > _MAX_WORDS:
        return ""
    options, place = [program], 0
    if words and not words[0].startswith("-"):
        options.append(words[0])
        place = 1
    while place < len(words):
        flag, stated, value = words[place].partition("=")
        name = flag.lstrip("-").replace("_", "-")
        place += 1
        if not flag.startswith("-"):
            continue
        if name in _KEPT_ARGUMENTS:
            if not stated:
                value = words[place] if place < len(words) else ""
                place += 1
            options += [f"--{name}", value]
        elif _UNREAD.search(name) or (
            name == "dtype" and (value or "".join(words[place : place + 1])) not in _HALF
        ):
            return ""
    plain = all(_PLAIN.fullmatch(word) and len(word) <= _MAX_LENGTH for word in options[1:])
    return " ".join(options) if plain and len(options) > 1 else ""
