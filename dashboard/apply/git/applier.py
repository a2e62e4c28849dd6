"""The Git applier: an approved change becomes a pull request, and is followed into the cluster.

It reads the cluster and never writes to it; the repository gets one commit on one new branch.
"""

from datetime import timedelta
from shutil import which
from urllib.parse import quote

from collectors.kubernetes.api import KubernetesApi
from dashboard.apply.contract.applier import CloseResult
from dashboard.apply.contract.wording import change_words
from dashboard.apply.git import send
from dashboard.apply.git.find_manifest import find_source, names_workload, source_of
from dashboard.apply.git.forges import forge_of
from dashboard.apply.git.manifests import line_difference
from dashboard.apply.git.repository import base_copy
from dashboard.apply.git.steps import (
    CLOSE,
    PushOrder,
    close_step,
    edits_of_plan,
    facts_of,
    live_change,
    live_plan,
    order_of,
    push_order,
    push_step,
    request_step,
    with_facts,
)
from dashboard.apply.kubernetes.change import observe as looking
from dashboard.apply.kubernetes.change.dry_run import standing_refusals
from dashboard.apply.kubernetes.change.observe import observation_of
from dashboard.apply.kubernetes.state import reading
from dashboard.common.escaping import shown
from dashboard.common.figures import figure_text, range_text, samples_text
from dashboard.common.kubernetes_writer import applying_account
from data.base.errors import ChangeRefusedError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import Gpu
from data.facts.jobs import Job, Platform
from data.records.changes import Change, ChangeStep, ReadBack, Rehearsal, StepResult, Target
from data.records.recommendations import Recommendation, Savings
from data.settings.apply import BRANCH_PREFIX, GitApplySettings, KubernetesApplySettings

CARRIERS = frozenset({"Argo CD", "Flux", "Helm"})
"""Who brings a change of the repository into the cluster."""
_DIGEST_LENGTH = 16
_POLL = timedelta(minutes=1)
"""People merge, which takes them longer; forges count requests."""
_NOTHING_YET = (
    "A pull request against {base} is opened; nothing changes in the cluster until it is merged."
)
_MAX_LENGTH = 300


class GitApplier:
    """Opens pull requests for changes of Kubernetes workloads."""

    def __init__(
        self, settings: GitApplySettings, *, cluster: KubernetesApplySettings, public_url: str = ""
    ) -> None:
        self._settings = settings
        self._api = applying_account(KubernetesApi, cluster)
        self._rollout_timeout = timedelta(seconds=cluster.pending_seconds)
        self._takes_all = not cluster.enabled
        self._public_url = public_url
        self._forge = forge_of(settings)
        self._catalogue = load_gpu_catalogue()

    @property
    def name(self) -> str:
        """Name in settings, audit and pages."""
        return "git"

    def access(self) -> tuple[bool, str]:
        """Return whether the account may push. Errors: ApplyError."""
        missing = "" if which("git") else "the program git (2.31 or later) is not on PATH"
        refusal = missing or self._forge.may_push()
        return not refusal, refusal or f"the account may push to {self._settings.repository}"

    def looks_every(self) -> timedelta:
        """Return the time between two looks at a request."""
        return _POLL

    def covers(self, recommendation: Recommendation) -> bool:
        """Return whether it makes this change: where both ways are on, of what `paths` names.

        Without `apply_kubernetes.enabled` there is no other way, and every workload is its.
        """
        ours = recommendation.platform is Platform.KUBERNETES
        ours = ours and self.name in recommendation.action.spec.appliers
        return ours and (self._takes_all or names_workload(self._settings, _holder(recommendation)))

    def look(
        self, recommendation: Recommendation, *, job: Job | None, gpus: tuple[Gpu, ...]
    ) -> Target:
        """Read the live object, its manifest on the base branch, and whether a request exists."""
        del job, gpus
        live = looking.look(self._api, self._catalogue, recommendation, carried_by=CARRIERS)
        edits = edits_of_plan(live_plan(recommendation, live))
        view = observation_of(live)
        _path, document = reading.fetch(self._api, view.place, view.path)
        source = source_of(self._settings, view.place, document)
        with base_copy(self._settings) as copy:
            match = find_source(copy, source, view.place, edits)
        branch = self._branch(recommendation.digest)
        there = self._forge.request_of(branch)
        if there is not None:
            raise ChangeRefusedError(
                f"a request of this recommendation is {there.state} already: {there.url}",
                "Run a new cycle and approve its recommendation.",
            )
        file = match.file
        return with_facts(
            live,
            **self._where(),
            **({} if match.other is None else {"values": match.other.text}),
            path=file.path,
            mode=file.mode,
            blob=file.blob,
            difference=line_difference(file.path, match.text, match.changed),
            request="none",
        )

    def change_for(self, recommendation: Recommendation, target: Target) -> Change:
        """Return the commit and the request. Errors: ChangeRefusedError."""
        plan = live_plan(recommendation, target)
        facts, branch = facts_of(target), self._branch(recommendation.digest)
        order = PushOrder(
            path=facts["path"],
            mode=facts["mode"],
            blob=facts["blob"],
            branch=branch,
            message=commit_message(recommendation, self._settings),
            at=int(recommendation.created_at.timestamp()),
            live=plan.steps[0].payload,
            values=facts.get("values", ""),
        )
        body = request_body(recommendation, self._public_url)
        return Change(
            recommendation_digest=recommendation.digest,
            target=target,
            steps=(
                push_step(plan, order, facts["difference"]),
                request_step(facts["repository"], branch, title_of(recommendation), body),
            ),
            undo=(close_step(facts["repository"], branch),),
            notes=(_NOTHING_YET.format(base=facts["base"]), *plan.notes),
        )

    def look_again(self, change: Change) -> Target:
        """Read the live object, the file of the change and its request afresh."""
        if not change.steps:
            return change.target
        order = order_of(change.steps[0])
        there = self._forge.request_of(order["branch"])
        state = "none" if there is None else there.state
        if change.steps[0].verb == CLOSE:
            return with_facts(change.target, request=state, **self._where())
        live = looking.look_again(
            self._api, self._catalogue, live_change(change), carried_by=CARRIERS
        )
        path = push_order(change).path
        with base_copy(self._settings) as copy:
            blob = next((file.blob for file in copy.files(path) if file.path == path), "")
        fresh = {"blob": blob, "request": state} | self._where()
        return with_facts(live, **facts_of(change.target) | fresh)

    def change_back(self, change: Change, target: Target) -> Change:
        """Return the closing of the request. Errors: ChangeRefusedError once it is merged.

        The forge reverts a merged request, with the history that its owners want. A request that
        was closed is not opened again: its digest is used up.
        """
        if not change.steps or change.steps[0].verb == CLOSE:
            raise ChangeRefusedError(
                "a closed pull request is not reopened",
                "Run a new cycle and approve its recommendation.",
            )
        send.require_same_place(self._settings, change)
        facts, branch = facts_of(target), str(order_of(change.steps[0])["branch"])
        if facts["request"] == "merged":
            raise ChangeRefusedError(
                f"the request of {branch} is merged",
                "Revert it at the forge, and look at the workload: Trimtab follows it no further.",
            )
        close = close_step(facts["repository"], branch)
        return Change(
            recommendation_digest=change.recommendation_digest,
            target=target,
            steps=(close,) if facts["request"] == "open" else (),
            undo=(),
        )

    def rehearse(self, change: Change) -> Rehearsal:
        """Ask the forge for the right to push, and the cluster for what stands against the change.

        The edit itself was made by the look. Errors: ApplyError.
        """
        refusal = self._forge.may_push()
        refusals = [refusal] if refusal else []
        if change.steps and change.steps[0].verb != CLOSE:
            view = observation_of(change.target)
            _path, document = reading.fetch(self._api, view.place, view.path)
            refusals += standing_refusals(self._api, document, live_change(change))
        return Rehearsal(rehearsed=True, refusals=tuple(refusals))

    def execute(self, step: ChangeStep, change: Change) -> StepResult:
        """Push, open or close, once."""
        return send.execute(self._settings, self._forge, step, change)

    def read_back(self, change: Change, *, done: int) -> ReadBack:
        """Look at the request, and once it is merged at the live object."""
        return send.read_back(
            self._settings,
            self._forge,
            self._api,
            change,
            done=done,
            rollout_timeout=self._rollout_timeout,
        )

    def close(self, change: Change, *, sent: int) -> CloseResult:
        """Close the request of a change that is given up half-way."""
        del sent
        return send.close_request(self._settings, self._forge, change)

    def between_steps(self, change: Change, *, sent: int) -> str:
        """Return '': a branch without a request holds nothing up."""
        del change, sent
        return ""

    def _where(self) -> dict[str, str]:
        return {"repository": self._settings.repository, "base": self._settings.base_branch}

    def _branch(self, digest: str) -> str:
        return f"{BRANCH_PREFIX}{digest[:_DIGEST_LENGTH]}"


def _holder(recommendation: Recommendation) -> str:
    """Return the object that holds the number, as jobs are called: the job, or its autoscaler."""
    if not recommendation.action.spec.bound:
        return recommendation.job_id
    kind, _, name = dict(recommendation.details).get("autoscaler", "").partition("/")
    namespace = recommendation.job_id.partition("/")[0]
    return f"{namespace}/{kind.partition('.')[0]}/{name}"


def title_of(recommendation: Recommendation) -> str:
    """Return the subject of the commit and of the request."""
    title = shown(change_words(recommendation, back=False), limit=120)
    return f"{title[:1].upper()}{title[1:]}"


def commit_message(recommendation: Recommendation, settings: GitApplySettings) -> str:
    """Return the message of the commit, signed off by the account that makes it."""
    return (
        f"{title_of(recommendation)}\n\n"
        "Proposed by Trimtab and approved by a person.\n\n"
        f"Trimtab-Digest: {recommendation.digest}\n"
        f"Signed-off-by: {settings.author}\n"
    )


def request_body(recommendation: Recommendation, public_url: str) -> str:
    """Return the description of the request in Markdown.

    Names come from a cluster and are hostile: no line of a commit begins with one, and a request
    shows them as code, where no forge finds a mention, a link or an issue to close.
    """
    evidence, savings = recommendation.evidence, recommendation.savings
    since, until = recommendation.created_at, recommendation.expires_at
    computed = f"{since:%Y-%m-%d %H:%M} UTC, for use until {until:%Y-%m-%d %H:%M} UTC"
    saved = _saved(savings)
    rows = [
        ("Why", recommendation.why),
        (f"Saves over {savings.horizon_hours:g} h", saved),
        ("Signal", evidence.signal),
        ("Samples", samples_text(evidence)),
        ("Forecast", evidence.forecast_model),
        ("Confidence and risk", f"{recommendation.confidence}, {recommendation.risk}"),
        ("Computed", computed),
    ]
    facts = "\n".join(f"- {name}: {_code(value)}" for name, value in rows)
    address = f"{public_url.rstrip('/')}/jobs?job={quote(recommendation.job_id)}"
    page = f"\nPage: {address}\n" if public_url else ""
    return (
        f"{_code(title_of(recommendation))}\n\n{facts}\n\n"
        f"Recommendation `{recommendation.recommendation_id}`, digest `{recommendation.digest}`\n"
        f"{page}\n"
        "A person approved exactly this change. Merging makes it; closing declines it, and the "
        "last comment is kept as the reason. Trimtab never merges, and never pushes here again.\n"
    )


def _code(text: str) -> str:
    return f"`{shown(text, limit=_MAX_LENGTH).replace('`', chr(39)).strip() or '-'}`"


def _saved(savings: Savings) -> str:
    """Return the savings that are known; of money no range: a new price list changes no request."""
    texts = [range_text(part, "") for part in (savings.gpu_hours, savings.energy_kwh)]
    if savings.cost:
        texts.append(f"{figure_text(savings.cost.central)} {savings.cost.unit}")
    return ", ".join(filter(None, texts)) or "unknown"
