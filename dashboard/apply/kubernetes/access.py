"""What the applying account may do, as the API server says of it; nothing is changed."""

from dashboard.apply.kubernetes.api import KubernetesApi
from data.errors import scrub

_PATH = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ASKED = {"group": "apps", "resource": "deployments", "verb": "patch"}
_FIX = "Give the account the rights of deploy/kubernetes-applier.yaml."


def access_of(api: KubernetesApi) -> tuple[bool, str]:
    """Return whether changes can be made, and what was found. Errors: NotSentError, CutError.

    An account that may change some namespaces is told from one without any right by an approved
    change alone: the API answers for one namespace at a time.
    """
    answer = api.create(
        _PATH,
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": _ASKED},
        },
    )
    if not answer.ok:
        said = scrub(str(answer.found.get("message", "")) or answer.text)[:200]
        return False, f"the API server answers {answer.status}: {said}. {_FIX}"
    if answer.found.get("status", {}).get("allowed") is True:
        return True, "the account may change Deployments in all namespaces"
    return (
        True,
        f"the account may not change Deployments of all namespaces: only bound ones. {_FIX}",
    )
