"""The Kubernetes applier: what each of its methods does stands in the module it names."""

from datetime import timedelta

from dashboard.apply.contract.applier import CloseResult, Remains
from dashboard.apply.kubernetes.change import dry_run, make_steps, node_layouts, send, verify
from dashboard.apply.kubernetes.change import observe as looking
from dashboard.apply.kubernetes.change.observe import observation_of
from dashboard.apply.kubernetes.state.api_errors import meaning_of
from dashboard.common.kubernetes_writer import KubernetesWriter, applying_account
from data.base.clock import utc_now
from data.base.errors import CollectorError, scrub, sentence
from data.catalogue.gpu_catalogue import GpuCatalogue, load_gpu_catalogue
from data.facts.fleet import Gpu
from data.facts.identifiers import SHORT_ID_LENGTH
from data.facts.jobs import Job, Platform
from data.records.changes import Change, ChangeStep, ReadBack, Rehearsal, StepResult, Target
from data.records.recommendations import Recommendation
from data.settings.apply import KubernetesApplySettings

_PATH = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_ACCESS_REVIEW = {"group": "apps", "resource": "deployments", "verb": "patch"}
_FIX = "Give the account the rights of deploy/kubernetes-applier.yaml."
CUT_SECONDS = 900.0
"""For a node's MIG manager, which stops its clients, cuts, and may start the node anew."""
_MAX_NOTE = 1000


class KubernetesApplier:
    """Makes approved changes of workloads and nodes, with the applying account."""

    def __init__(
        self, settings: KubernetesApplySettings, *, catalogue: GpuCatalogue | None = None
    ) -> None:
        self._api = applying_account(KubernetesWriter, settings)
        self._rollout_timeout = timedelta(seconds=settings.pending_seconds)
        self._cuts_nodes = settings.cut_nodes
        self._cutting = timedelta(seconds=CUT_SECONDS)
        self._catalogue = catalogue or load_gpu_catalogue()

    @property
    def name(self) -> str:
        """Name in settings, audit and pages."""
        return "kubernetes"

    def access(self) -> tuple[bool, str]:
        """Return whether changes can be made, and what was found. Errors: CollectorError.

        An account that may change some namespaces is told from one without any right by an approved
        change alone: the API answers for one namespace at a time.
        """
        answer = self._api.create(
            _PATH,
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": _ACCESS_REVIEW},
            },
        )
        if not answer.ok:
            message = scrub(str(answer.found.get("message", "")) or answer.text)[:200]
            return False, f"the API server answers {answer.status}: {sentence(message)} {_FIX}"
        if answer.found.get("status", {}).get("allowed") is True:
            return True, "the account may change Deployments in all namespaces"
        bound = "the account may not change Deployments of all namespaces: only bound ones"
        return True, f"{bound}. {_FIX}"

    def covers(self, recommendation: Recommendation) -> bool:
        """Return whether this applier makes changes of this kind."""
        on_kubernetes = recommendation.platform is Platform.KUBERNETES
        allowed = self._cuts_nodes or not recommendation.action.spec.cuts
        makes = self.name in recommendation.action.spec.appliers and not recommendation.is_advice
        return on_kubernetes and allowed and makes

    def look(
        self, recommendation: Recommendation, *, job: Job | None, gpus: tuple[Gpu, ...]
    ) -> Target:
        """Read the workload that the job id names; what the store knows of it is not needed."""
        del job, gpus
        return looking.look(self._api, self._catalogue, recommendation)

    def change_for(self, recommendation: Recommendation, target: Target) -> Change:
        """Return the steps and the steps back."""
        return make_steps.change_for(recommendation, target)

    def look_again(self, change: Change) -> Target:
        """Read the target of a change afresh."""
        return looking.look_again(self._api, self._catalogue, change)

    def change_back(self, change: Change, target: Target) -> Change:
        """Return the change that restores the touched fields."""
        return make_steps.change_back(change, target)

    def rehearse(self, change: Change) -> Rehearsal:
        """Send the steps as dry runs."""
        return dry_run.rehearse(self._api, change)

    def execute(self, step: ChangeStep, change: Change) -> StepResult:
        """Send one patch, once. A step that has to wait answers BUSY until its turn has come."""
        return send.execute(
            self._api,
            step,
            change,
            rollout_timeout=self._rollout_timeout,
            cutting_limit=self._cutting,
        )

    def read_back(self, change: Change, *, done: int) -> ReadBack:
        """Look at the object and its pods, once."""
        return verify.read_back(self._api, change, done=done, rollout_timeout=self._rollout_timeout)

    def close(self, change: Change, *, sent: int) -> CloseResult:
        """Take back a cut that is given up; a node of ours is uncordoned. Never raises."""
        facts = looking.observation_of(change.target).facts
        if not sent or node_layouts.CUT_FACT not in facts:
            return CloseResult(left=Remains.AS_IT_IS, detail="")
        pods = looking.pods_on(self._api, change.target.name)
        return node_layouts.close(self._api, change, facts, self._cutting, sent=sent, pods=pods)

    def between_steps(self, change: Change, *, sent: int) -> str:
        """Return the reason not to leave a node as it is, '' for none."""
        cut = node_layouts.CUT_FACT in looking.observation_of(change.target).facts
        return node_layouts.between_steps(change, sent) if cut else ""

    def note(self, change: Change, *, actor: str, outcome: str) -> str:
        """Write an Event on the object; give '' when it is there, else why it is not."""
        view = observation_of(change.target)
        names = view.path.split("/")
        namespace = view.place.namespace or "default"  # an Event of a node lives there
        path = f"api/v1/namespaces/{namespace}/events"
        now = utc_now().strftime("%Y-%m-%dT%H:%M:%SZ")
        steps = "; ".join(f"{step.field}: {step.before} -> {step.after}" for step in change.steps)
        note = (
            f"{scrub(actor, limit=100)}: {scrub(outcome, limit=100)}. {steps} "
            f"(recommendation {change.recommendation_digest[:SHORT_ID_LENGTH]})"
        )
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "generateName": f"{view.place.name[:200]}.trimtab-",
                "namespace": namespace,
            },
            "involvedObject": {
                "apiVersion": "/".join(names[1:3]) if names[0] == "apis" else names[1],
                "kind": view.place.kind,
                "namespace": view.place.namespace,
                "name": view.place.name,
                "uid": change.target.identity,
            },
            "type": "Normal",
            "reason": "Trimtab",
            "message": scrub(note, limit=_MAX_NOTE),
            "source": {"component": "trimtab"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            answer = self._api.create(path, event)
        except CollectorError as error:
            return f"no Event was written: {error.message}"
        if answer.ok:
            return ""
        return f"no Event was written: {meaning_of(answer, path, verb='create')}"
