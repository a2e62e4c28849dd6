"""Dry run of the steps on the server, compared with what they intend."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from collectors.kubernetes.api import ApiAnswer, Document, KubernetesApi
from collectors.kubernetes.kinds import excerpt
from collectors.kubernetes.placement_rules import floors_of
from collectors.kubernetes.pod_templates import gpus_named_by, pods_named_by, processes_named_by
from collectors.shared.json_parts import part, text_in, whole_number
from dashboard.apply.kubernetes.change.observe import edits_in, observation_of
from dashboard.apply.kubernetes.change.steps import (
    StepCommand,
    StepWait,
    command_of,
    ends_first,
    sent,
)
from dashboard.apply.kubernetes.state import reading
from dashboard.apply.kubernetes.state.api_errors import admission_word, meaning_of
from dashboard.apply.kubernetes.state.free_capacity import (
    NO,
    asked_by,
    fitting_pods,
    is_waiting_for_node,
    room_for,
)
from dashboard.apply.kubernetes.state.immutable_fields import difference
from dashboard.apply.kubernetes.state.json_patch import as_text, leaves, patched, value_at
from dashboard.apply.kubernetes.state.object_paths import AUTOSCALERS
from dashboard.apply.kubernetes.state.pod_spec import holders, pods_of, roles_of
from dashboard.apply.kubernetes.state.quotas import (
    asked_in_all,
    doubts,
    limit_doubts,
    limit_refusal,
    refusal,
)
from dashboard.common.kubernetes_writer import KubernetesWriter
from data.base.errors import ApplyError, CollectorError
from data.facts.gpu_resources import is_of_vendor
from data.records.changes import Change, Rehearsal

Difference = tuple[str, str, str]

_POD_SPEC = "/spec/template/spec"
_MAX_NAMES = 5


def rehearse(api: KubernetesWriter, change: Change) -> Rehearsal:
    """Send every step that can be sent now as a dry run. Errors: ApplyError."""
    view = observation_of(change.target)
    _path, document = reading.fetch(api, view.place, view.path)
    refusals: list[str] = []
    differences: list[Difference] = []
    warnings: list[str] = []
    moved: set[str] = set()
    for step in change.steps:
        command = command_of(step)
        follows = not moved.isdisjoint(command.edits)
        moved |= command.edits.keys()
        if follows or command.wait is not StepWait.NOTHING:
            warnings.append(f"{step.field} -> {step.after} is rehearsed when its turn has come.")
            continue
        answer = _dry_run(api, command, document)
        if answer.ok:
            differences += differing(document, command, answer.found)
        elif answer.status in (409, 429) or answer.status >= 500:
            raise ApplyError(
                f"the dry run of {step.target} was not answered: "
                f"{meaning_of(answer, command.path, verb='patch')}",
                "Try again when the server is less busy.",
            )
        else:
            refusals.append(meaning_of(answer, command.path, verb="patch"))
            if (
                answer.status == 422
                and not admission_word(answer)
                and view.place.kind not in AUTOSCALERS
            ):
                refusals.append(_recreate(change, document))
    dropped = [entry for entry in differences if entry[2] == _before(change, entry[0])]
    if dropped:
        names = ", ".join(at for at, _intended, _answered in dropped)
        refusals += [f"this server drops {names} and says nothing", _recreate(change, document)]
    refusals += standing_refusals(api, document, change)
    warnings += _unknown_limits(api, document, change)
    warnings += _without_room(api, document, change)
    return Rehearsal(
        rehearsed=True,
        refusals=tuple(refusals),
        differences=tuple(differences),
        warnings=tuple(warnings),
    )


def standing_refusals(api: KubernetesApi, document: Document, change: Change) -> Iterator[str]:
    """Yield the objections to a change that no dry run reports."""
    yield from _not_offered(api, document, change)
    yield from _beyond_quota(api, document, change)
    yield from _beyond_limits(api, document, change)
    yield from _named_beyond(document, change)
    yield from _launched_beyond(document, change)
    yield from _below_budgets(api, document, change)
    yield from _without_successor(api, document, change)


def _below_budgets(api: KubernetesApi, document: Document, change: Change) -> Iterator[str]:
    """Refuse fewer pods than a disruption budget wants available: it is their owner's floor."""
    place = observation_of(change.target).place
    now, rest = (pods_of(place.kind, entry) for entry in (document, _target(document, change)))
    if rest >= now:
        return
    for least, name in floors_of(reading.budgets(api, place.namespace) or (), document, now):
        if rest < least:
            yield (
                f"PodDisruptionBudget {name} wants {least} pods of {place.word} at least, {rest} "
                "would be left. Ask its owner to lower minAvailable first"
            )


def differing(document: Document, command: StepCommand, answered: Document) -> Iterator[Difference]:
    """Yield (field, intended, answered) where a server stores or would store something else."""
    intended = dict(leaves(excerpt(patched(document, command.operations))))
    stored = dict(leaves(excerpt(answered)))
    for at in sorted(intended.keys() | stored.keys()):
        target, actual = intended.get(at, as_text(None)), stored.get(at, as_text(None))
        if target != actual:
            yield at, target, actual


def _dry_run(api: KubernetesWriter, command: StepCommand, document: Document) -> ApiAnswer:
    try:
        return api.patch(command.path, sent(command, document), dry_run=True)
    except CollectorError as error:
        raise ApplyError(error.message, "Nothing was changed; try again.") from error


def _before(change: Change, at: str) -> str:
    return as_text(value_at(observation_of(change.target).document, at))


def _recreate(change: Change, document: Document) -> str:
    text = difference(observation_of(change.target).place, document, edits_in(change))
    return f"needs recreate, with this manifest:\n{text}"


def _not_offered(api: KubernetesApi, document: Document, change: Change) -> Iterator[str]:
    """Refuse a GPU resource that no node offers: pods that ask for it would wait for ever."""
    target = _target(document, change)
    kind = observation_of(change.target).place.kind
    templates = [role.template_at for role in roles_of(kind, document)]
    before, after = (
        {name for at in templates for name in asked_by(value_at(entry, at))}
        for entry in (document, target)
    )
    new = after - before
    nodes = reading.nodes(api) if new else None
    for name in sorted(new):
        if nodes is not None and not _is_offered(name, nodes):
            yield f"no node offers {name}: cut the boards first, or pods would wait for ever"


def _is_offered(name: str, nodes: Iterable[Document]) -> bool:
    return any(part(node, "status", "allocatable", name) for node in nodes)


def _beyond_quota(api: KubernetesApi, document: Document, change: Change) -> Iterator[str]:
    """Refuse more pods or GPUs than a quota of the namespace admits."""
    place, more = observation_of(change.target).place, _more(document, change)
    if +more and (why := refusal(reading.quotas(api, place.namespace) or [], more)):
        yield why


def _more(document: Document, change: Change) -> Counter[str]:
    """Return the pods and GPUs that are asked for beyond those of now."""
    kind = observation_of(change.target).place.kind
    more = asked_in_all(kind, _target(document, change))
    more.subtract(asked_in_all(kind, document))
    return more


def _beyond_limits(api: KubernetesApi, document: Document, change: Change) -> Iterator[str]:
    """Refuse pods of a new template or more pods, where a limit range keeps them out.

    A dry run of the workload does not see it: its controller makes the pods.
    """
    specs = _new_specs(document, change)
    ranges = (
        reading.limit_ranges(api, observation_of(change.target).place.namespace) if specs else []
    )
    for spec in specs:
        if why := limit_refusal(ranges or [], spec):
            yield why


def _new_specs(document: Document, change: Change) -> list[object]:
    """Return the specs of pods that a change makes anew or makes more of."""
    kind, target = observation_of(change.target).place.kind, _target(document, change)
    more = +(asked_in_all(kind, target) - asked_in_all(kind, document))
    specs = (
        (value_at(entry, role.template_at) for entry in (target, document))
        for role in roles_of(kind, target)
    )
    return [new for new, old in specs if more or new != old]


def _unknown_limits(api: KubernetesApi, document: Document, change: Change) -> Iterator[str]:
    """Warn of quotas and limit ranges that may refuse new pods, which nobody can tell."""
    namespace, more = observation_of(change.target).place.namespace, _more(document, change)
    texts = list(doubts(reading.quotas(api, namespace), more)) if +more else []
    specs = _new_specs(document, change)
    ranges = reading.limit_ranges(api, namespace) if specs else []
    texts += [text for spec in specs for text in limit_doubts(ranges, spec)]
    yield from (f"{text[0].upper()}{text[1:]}." for text in dict.fromkeys(texts))


def _named_beyond(document: Document, change: Change) -> Iterator[str]:
    """Refuse fewer GPUs than the command of a container starts with: it would fail."""
    kind, target = observation_of(change.target).place.kind, _target(document, change)
    for role in roles_of(kind, target):
        before = {holder.at: holder.count for holder in holders(document, role.template_at)}
        for holder in holders(target, role.template_at):
            if holder.count >= before.get(holder.at, 0):
                continue
            for count, text in gpus_named_by(value_at(document, holder.at)):
                if holder.count < count <= before[holder.at]:
                    yield (
                        f"container {holder.name} says {text!r}, more GPUs than the {holder.count} "
                        "that it would have: it would fail. Change its command with its GPUs"
                    )


def _launched_beyond(document: Document, change: Change) -> Iterator[str]:
    """Refuse fewer pods or GPUs than a launcher in them waits for: what is left would wait."""
    kind, target = observation_of(change.target).place.kind, _target(document, change)
    before, after = roles_of(kind, document), roles_of(kind, target)
    boards, boards_left = (sum(role.gpus for role in roles) for roles in (before, after))
    for role, changed in zip(before, after, strict=True):
        pods, pods_left = (entry.count * entry.pods_each for entry in (role, changed))
        for holder in holders(document, role.template_at) if boards_left else ():
            container = value_at(document, holder.at)
            for what, counts, now, rest in (
                ("pods", pods_named_by(container), pods, pods_left),
                ("GPUs", processes_named_by(container), boards, boards_left),
            ):
                for count, text in counts:
                    if rest < count <= now:
                        yield (
                            f"container {holder.name} says {text!r}, more {what} than the {rest} "
                            "that would be left: it would fail. Change its command with them"
                        )


def _without_successor(api: KubernetesApi, document: Document, change: Change) -> Iterator[str]:
    """Refuse a rollout that ends a pod whose successor no node would take: it would stay down.

    Of a rollout that adds a pod first nothing is asked here. One of which a pod is not running yet
    is under way, or being taken back, and goes on.
    """
    place, target = observation_of(change.target).place, _target(document, change)
    rolls = value_at(target, _POD_SPEC) != value_at(document, _POD_SPEC)
    if not rolls or not (place.kind == "StatefulSet" or ends_first(target, change.steps)):
        return
    work, nodes, pods = reading.work_of(api, place, document), None, None
    members = [] if work is None else work.pods
    if members and all(text_in(pod, "status", "phase") == "Running" for pod in members):
        nodes, pods = reading.nodes(api), reading.pods(api)
    if nodes is None or pods is None:
        return
    spec = value_at(target, _POD_SPEC)
    if any(not _is_offered(name, nodes) for name in asked_by(spec)):
        return  # said before
    takers: list[str] = []
    for gone in members:
        uid = value_at(gone, "/metadata/uid")
        others = [pod for pod in pods if value_at(pod, "/metadata/uid") != uid]
        if room_for(spec, nodes, others) == NO:
            continue
        rivals = _first_in_line(gone, nodes, others)
        if room_for(spec, nodes, [*others, *rivals]) != NO:
            return
        takers = takers or [_name_of(pod) for pod in rivals]
    if takers:
        yield (
            f"a pod that ends for a new one frees its GPUs first, and others wait for such "
            f"({', '.join(takers[:_MAX_NAMES])}): its successor would wait instead"
        )
        return
    homes = {text_in(pod, "spec", "nodeName") for pod in members}
    closed = [
        name
        for node in nodes
        if (name := text_in(node, "metadata", "name")) in homes
        and part(node, "spec", "unschedulable") is True
    ]
    cordoned = f" ({', '.join(sorted(closed))} cordoned)" if closed else ""
    yield (
        f"no node would take a new pod, not even where one of its own has ended{cordoned}: it "
        "would go down and stay down. Uncordon or free a node that its nodeSelector and affinity "
        "allow first"
    )


def _first_in_line(
    gone: Document, nodes: Sequence[Document], others: Sequence[Document]
) -> list[Document]:
    """Return the pods that wait, as bound to the node of one that ends, as far as they have room.

    Those of a lower priority come after its successor; whether those of another scheduler do,
    nobody can tell.
    """
    home = [node for node in nodes if value_at(node, "/metadata/name") == _node_of(gone)]
    rivals: list[Document] = []
    for pod in others:
        spec = part(pod, "spec")
        is_first = (
            is_waiting_for_node(pod)
            and asked_by(spec).total()
            and _scheduler_of(pod) == _scheduler_of(gone)
            and _priority(pod) >= _priority(gone)
        )
        if is_first and room_for(spec, home, [*others, *rivals]) != NO:
            rivals.append({**pod, "spec": {**pod["spec"], "nodeName": _node_of(gone)}})
    return rivals


def _node_of(pod: Document) -> str:
    return text_in(pod, "spec", "nodeName")


def _scheduler_of(pod: Document) -> str:
    return text_in(pod, "spec", "schedulerName") or "default-scheduler"


def _priority(pod: Document) -> int:
    return whole_number(part(pod, "spec", "priority") or 0) or 0


def _name_of(pod: Document) -> str:
    return "/".join(text_in(pod, "metadata", name) for name in ("namespace", "name"))


def _target(document: Document, change: Change) -> Document:
    for step in change.steps:
        document = patched(document, command_of(step).operations)
    return document


def _without_room(api: KubernetesApi, document: Document, change: Change) -> Iterator[str]:
    """Warn of more pods than nodes have room for, and of pods that wait for what is freed.

    A cluster may still add a node.
    """
    place, target = observation_of(change.target).place, _target(document, change)
    now, then = (asked_in_all(place.kind, entry) for entry in (document, target))
    roles = zip(*(roles_of(place.kind, entry) for entry in (document, target)), strict=True)
    more = [(new.template_at, new.count - old.count) for old, new in roles if new.count > old.count]
    freed = {name: count for name, count in (now - then).items() if is_of_vendor(name)}
    nodes, pods = (reading.nodes(api), reading.pods(api)) if more or freed else ([], [])
    if nodes is None or pods is None:
        yield "Whether nodes have room for more pods is unknown: they may not be listed."
        return
    for at, count in more:
        least, room = fitting_pods(value_at(target, at), nodes, pods, most=count)
        if room < count:
            yield (
                f"Nodes have room for {room} of {count} more pods now: the others would wait until "
                "GPUs are free."
            )
        elif least < count:
            yield (
                f"Whether nodes have room for {count - least} of {count} more pods is unknown: "
                "numbers of GPUs of nodes or pods are not understood."
            )
    if freed and (takers := _takers(api, document, change, freed, nodes, pods)):
        yield (
            f"{', '.join(takers)} {'wait' if len(takers) > 1 else 'waits'} for such GPUs and would "
            "take what is freed: the way back would then wait until GPUs are free."
        )


def _takers(
    api: KubernetesApi,
    document: Document,
    change: Change,
    freed: Mapping[str, int],
    nodes: Sequence[Document],
    pods: Sequence[Document],
) -> list[str]:
    """Return the pods that no node has room for, and the nodes of the workload would have."""
    work = reading.work_of(api, observation_of(change.target).place, document)
    uids = {value_at(pod, "/metadata/uid") for pod in (work.pods if work else ())}
    mine = [pod for pod in pods if value_at(pod, "/metadata/uid") in uids]
    others = [pod for pod in pods if value_at(pod, "/metadata/uid") not in uids]
    homes = {text_in(pod, "spec", "nodeName") for pod in mine}
    nearest = [node for node in nodes if text_in(node, "metadata", "name") in homes]
    names = []
    for pod in others:
        spec = part(pod, "spec")
        request = +asked_by(spec)
        if (
            is_waiting_for_node(pod)
            and request
            and all(count <= freed.get(name, 0) for name, count in request.items())
            and room_for(spec, nodes, pods) == NO
            and room_for(spec, nearest, others) != NO
        ):
            names.append(_name_of(pod))
    more = [f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
    return sorted(names)[:_MAX_NAMES] + more
