"""An Event on a changed object: who looks at it sees who changed it, and on what grounds."""

from dashboard.apply.kubernetes.api import CutError, KubernetesApi, NotSentError
from dashboard.apply.kubernetes.look import seen_of
from dashboard.apply.kubernetes.refusals import meaning_of
from data.clock import utc_now
from data.errors import scrub
from data.records.changes import Change
from data.records.identifiers import SHORT_ID_LENGTH

_MAX_NOTE = 1000


def note_event(api: KubernetesApi, change: Change, *, actor: str, outcome: str) -> str:
    """Write the Event; give '' when it is there, else why it is not. Never raises."""
    seen = seen_of(change.target)
    names = seen.path.split("/")
    namespace = seen.place.namespace or "default"  # an Event of a node lives there
    path = f"api/v1/namespaces/{namespace}/events"
    now = utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
    steps = "; ".join(f"{step.field}: {step.before} -> {step.after}" for step in change.steps)
    said = (
        f"{scrub(actor, limit=100)}: {scrub(outcome, limit=100)}. {steps} "
        f"(recommendation {change.recommendation_digest[:SHORT_ID_LENGTH]})"
    )
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{seen.place.name[:200]}.trimtab-", "namespace": namespace},
        "involvedObject": {
            "apiVersion": "/".join(names[1:3]) if names[0] == "apis" else names[1],
            "kind": seen.place.kind,
            "namespace": seen.place.namespace,
            "name": seen.place.name,
            "uid": change.target.identity,
        },
        "type": "Normal",
        "reason": "Trimtab",
        "message": scrub(said, limit=_MAX_NOTE),
        "source": {"component": "trimtab"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        answer = api.create(path, event)
    except (NotSentError, CutError) as error:
        return f"no Event was written: {error.message}"
    if answer.ok:
        return ""
    return f"no Event was written: {meaning_of(answer, path, verb='create')}"
