"""Meaning of an API answer for a change: each status is one stated outcome."""

from collections.abc import Mapping

from collectors.kubernetes.api import ApiAnswer
from data.base.errors import ApplyError, ChangeRefusedError, StalePlanError
from data.records.changes import StepOutcome, StepResult

_MEANINGS: Mapping[int, str] = {
    400: "the server does not understand the patch",
    401: "the applying account is not signed in: renew its token",
    404: "the object is gone, or this server has no such kind",
    405: "this server does not let the object be patched",
    410: "the object is gone",
    413: "the patch is too large for this server",
    415: "this server takes no JSON patch for this kind",
    422: "the server finds the object invalid, or it is not as it was: plan anew, or recreate it",
}
_BY_ADMISSION: Mapping[str, str] = {
    "ValidatingAdmissionPolicy": "a policy of the cluster",
    "admission webhook": "an admission webhook",
    "exceeded quota": "a quota of the namespace",
    "violates PodSecurity": "the pod security level of the namespace",
}
"""Who refuses an object that its kind allows, by the words of the API server."""
_MOVED = 409
_FORBIDDEN = 403
_TOO_MANY = 429
_UNAVAILABLE = 503


def outcome_of(answer: ApiAnswer, path: str) -> StepResult:
    """Return the outcome of a patch that was no success.

    Busy where the server surely did nothing and may do it later; unknown where it may have done it.
    """
    reply = f"{answer.status}: {answer.text}" if answer.text else str(answer.status)
    if answer.status == _MOVED:
        return StepResult(
            outcome=StepOutcome.BUSY,
            detail=f"the object moved between the look and the patch ({reply})",
        )
    by_the_api = answer.status == _UNAVAILABLE and answer.kind == "Status"
    if answer.status == _TOO_MANY or by_the_api:
        return StepResult(
            outcome=StepOutcome.BUSY,
            detail=f"the server is too busy ({reply})",
            retry_after_seconds=answer.retry_after_seconds,
        )
    if answer.status >= 500 or answer.status < 300:
        # Of a gateway's own errors nobody knows whether the server had the request before.
        return StepResult(
            outcome=StepOutcome.UNKNOWN,
            detail=f"an answer that tells nothing ({reply}): only a look can",
        )
    return StepResult(outcome=StepOutcome.REFUSED, detail=meaning_of(answer, path, verb="patch"))


def meaning_of(answer: ApiAnswer, path: str, *, verb: str) -> str:
    """Return a refusal in words, with the missing right where one is missing."""
    text = f"{answer.status}: {answer.text}" if answer.text else str(answer.status)
    if who := admission_word(answer):
        return (
            f"{who} refuses it ({text}). What it says has to hold for the proposed object: ask who "
            "keeps it, or approve a recommendation that it allows"
        )
    if answer.status == _FORBIDDEN:
        group, resource = group_and_resource(path)
        return (
            f"refused ({text}). If it is a right that is missing, add to the role of the applying "
            f'account: {{apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["{verb}"]}}'
        )
    return f"{_MEANINGS.get(answer.status, 'the server refused')} ({text})"


def admission_word(answer: ApiAnswer) -> str:
    """Return the admission controller that refused an object, '' where its kind or a role did."""
    return next((who for words, who in _BY_ADMISSION.items() if words in answer.text), "")


def look_error(answer: ApiAnswer, path: str, label: str) -> ApplyError:
    """Return the error of a look that found nothing to change."""
    message = f"{label} cannot be read: {meaning_of(answer, path, verb='get')}"
    if answer.status in (404, 410):
        return StalePlanError(message, "Run a new cycle and approve its recommendation.")
    if answer.status in (401, 403):
        return ChangeRefusedError(message, "See deploy/kubernetes-applier.yaml for the whole role.")
    return ApplyError(message, "Look again once the API server answers.")


def group_and_resource(path: str) -> tuple[str, str]:
    """Return the API group and the resource of a path."""
    names = path.split("/")
    group = names[1] if names[0] == "apis" else ""
    rest = names[3:] if names[0] == "apis" else names[2:]
    inside = rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest
    return group, inside[0]
