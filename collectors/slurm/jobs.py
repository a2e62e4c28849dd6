"""Jobs, nodes and allocations from Slurm, through its commands or through slurmrestd.

Slurm knows who holds which GPU of a node only while a job runs (`gres_detail`), and only with
slurmdbd what ran before. So a running job gives one allocation for every GPU, and an ended stretch
of accounting one for every node, with a count.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pandas as pd

from collectors.shared.collector import Finding, Source, Window
from collectors.slurm.backend import SlurmAnswers, list_in, read_nodes, read_queue
from collectors.slurm.commands import COMMANDS, SlurmCommands, hidden_kinds
from collectors.slurm.failures import OPERATOR_HINT
from collectors.slurm.gpu_models import ModelNames, gpu_models_of
from collectors.slurm.records import Record, SlurmJob, SlurmNode
from collectors.slurm.rest import SlurmRest
from collectors.slurm.unread import unread_gres
from collectors.slurm.values import Gpus
from data.base.counts import count_text
from data.base.errors import CollectorError, scrub
from data.base.rows import row_of
from data.boards.board_shares import SHARED_BOARDS, SHARING
from data.catalogue.gpu_catalogue import GpuCatalogue, load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.columns import ALLOCATIONS, check_frame, empty_frame
from data.facts.fleet import Node, SourceReport, SourceState
from data.facts.identifiers import digest_of
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts, WorkloadKind
from data.facts.quotas import Quota
from data.settings.sources import SlurmSettings

_MAPPING = (
    "telemetry cannot name Slurm jobs. In slurm.conf: Prolog=/etc/slurm/prolog.sh, "
    "Epilog=/etc/slurm/epilog.sh and PrologFlags=Alloc, where the prolog writes $SLURM_JOB_ID into "
    "a file named by each GPU of $SLURM_JOB_GPUS, in the folder that dcgm-exporter has as "
    "--hpc-job-mapping-dir, and the epilog removes it"
)


def slurm_findings(settings: SlurmSettings) -> tuple[Finding, ...]:
    """Return the findings: (what, ok or missing, detail). Nothing when Slurm is not used."""
    if settings.mode == "commands":
        return _by_commands(SlurmCommands(settings))
    if settings.mode == "rest":
        return _by_rest(SlurmRest(settings))
    return ()


def _by_commands(commands: SlurmCommands) -> tuple[Finding, ...]:
    try:
        paths = [commands.program(command) for command in COMMANDS]
    except CollectorError as error:
        return (("slurm commands", "missing", str(error)),)
    rows: list[Finding] = [("slurm commands", "ok", paths[0].rpartition("/")[0])]
    try:
        configuration = commands.configuration()
    except CollectorError as error:
        return (*rows, ("slurm controller", "missing", str(error)))
    release = scrub(configuration.get("SLURM_VERSION", ""))
    rows.append(("slurm controller", "ok", f"Slurm {release}"))
    rows += _accounting(configuration)
    rows.append(_visibility(commands, configuration))
    # Since 23.11 every Prolog has a number: Prolog[0].
    prologs = [
        value
        for name, value in configuration.items()
        if name.partition("[")[0] == "Prolog" and value not in ("", "(null)")
    ]
    rows.append(
        ("slurm job mapping", "ok", f"Prolog={scrub(', '.join(prologs))}")
        if prologs
        else ("slurm job mapping", "missing", _MAPPING)
    )
    try:
        listed, records, _release = commands.listed()
        rows += _understood(commands.settings, records, listed)
    except CollectorError as error:
        rows.append(("slurm nodes", "missing", str(error)))
    return tuple(rows)


def _understood(
    settings: SlurmSettings, nodes: list[Record], jobs: list[Record]
) -> Iterator[Finding]:
    """Yield the parts of the cluster that are not understood, so that they are not missed."""
    if unread := unread_gres(nodes, jobs).texts:
        yield "accelerators", "missing", f"{'; '.join(unread)}."
    read = read_nodes(nodes, Counter())
    models = ModelNames(gpu_models_of(settings.gpu_models), load_gpu_catalogue(), read)
    missing = models.lacking(read)
    if missing:
        yield "GPU models", "missing", f"{'; '.join(missing)}."
    elif any(node.gpus for node in read):
        yield "GPU models", "ok", "every node with GPUs names a known model"


def _accounting(configuration: dict[str, str]) -> list[Finding]:
    kind = configuration.get("AccountingStorageType", "")
    if not kind.endswith("slurmdbd"):
        detail = (
            f"AccountingStorageType is {scrub(kind) or 'not set'}, so finished jobs are not "
            "visible. In slurm.conf: AccountingStorageType=accounting_storage/slurmdbd"
        )
        return [("slurm accounting", "missing", detail)]
    rows: list[Finding] = [("slurm accounting", "ok", scrub(kind))]
    resources = configuration.get("AccountingStorageTRES", "")
    types = [part for part in resources.split(",") if part.startswith("gres/gpu")]
    if types:
        return [*rows, ("slurm accounting of GPUs", "ok", scrub(",".join(types)))]
    detail = (
        "AccountingStorageTRES has no GPUs, so finished jobs show none. "
        "In slurm.conf: AccountingStorageTRES=gres/gpu"
    )
    return [*rows, ("slurm accounting of GPUs", "missing", detail)]


def _visibility(commands: SlurmCommands, configuration: dict[str, str]) -> Finding:
    hidden = hidden_kinds(configuration)
    if not hidden:
        return ("slurm visibility", "ok", "PrivateData hides no jobs and no nodes")
    if commands.may_see_all(configuration):
        return ("slurm visibility", "ok", f"PrivateData={','.join(hidden)}, not from this user")
    return (
        "slurm visibility",
        "missing",
        f"PrivateData={','.join(hidden)} hides it. {OPERATOR_HINT}",
    )


def _by_rest(rest: SlurmRest) -> tuple[Finding, ...]:
    try:
        version = rest.api_version()
        replies = rest.document(f"/slurm/{version}/jobs"), rest.document(f"/slurm/{version}/nodes")
        lists = [list_in(answer, name, source="slurmrestd")
                 for answer, name in zip(replies, ("jobs", "nodes"), strict=True)]  # fmt: skip
        jobs, nodes = read_queue(lists[0], Counter()), read_nodes(lists[1], Counter())
    except CollectorError as error:
        return (("slurmrestd", "missing", str(error)),)
    rows: list[Finding] = [("slurmrestd", "ok", f"{rest.name}, API {version}")]
    rows += _understood(rest.settings, lists[1], lists[0])
    try:
        rest.document(f"/slurmdb/{version}/jobs", start_time="now")
        rows.append(("slurm accounting", "ok", "slurmdbd answers through slurmrestd"))
    except CollectorError as error:
        rows.append(("slurm accounting", "missing", f"finished jobs are not visible: {error}"))
    in_use = sum(node.gpus_in_use or 0 for node in nodes)
    if in_use and not jobs:
        detail = f"{in_use} GPUs are in use, no job is visible. {OPERATOR_HINT}"
        return (*rows, ("slurm visibility", "missing", detail))
    return (
        *rows,
        (
            "slurm visibility",
            "ok",
            f"{count_text(len(jobs), 'job')} on {count_text(len(nodes), 'node')}",
        ),
    )


_HOLDING = (JobState.RUNNING, JobState.SUSPENDED)


def slurm_collector(settings: SlurmSettings, catalogue: GpuCatalogue) -> "SlurmCollector":
    """Return the collector that the settings ask for. Errors: SourceNotConfiguredError."""
    backend = SlurmRest(settings) if settings.mode == "rest" else SlurmCommands(settings)
    models = gpu_models_of(settings.gpu_models)
    return SlurmCollector(backend, models, catalogue)


@dataclass(frozen=True, slots=True)
class SlurmCollector:
    """One Slurm cluster. `gpu_models` maps gres types to catalogue names."""

    backend: SlurmCommands | SlurmRest
    gpu_models: Mapping[str, str]
    catalogue: GpuCatalogue

    @property
    def name(self) -> str:
        """The source's name in reports."""
        return self.backend.name

    def collect(self, window: Window) -> Collected:
        """Return jobs, nodes and allocations of the window. Errors: CollectorError."""
        answers = self.backend.answers(window)
        view = _SlurmView(
            answers=answers,
            window=window,
            source=self.name,
            models=ModelNames(self.gpu_models, self.catalogue, answers.nodes),
            dropped=answers.dropped.copy(),
        )
        jobs = view.jobs()
        nodes = view.nodes()
        allocations = view.allocations()
        quotas = None if answers.quotas is None else tuple(map(view.quota, answers.quotas))
        rows = allocations.to_csv(index=False)
        in_use, explained = view.gpus_in_use()
        warnings = list(answers.warnings)
        if explained < in_use:
            warnings.append(
                f"nodes report {in_use} GPUs in use, the visible jobs hold {explained}: jobs of "
                "other users are hidden, or changed while asking"
            )
        warnings += [*answers.unread.texts, *view.models.lacking(answers.nodes)]
        return Collected(
            batch_id=digest_of([self.name, window.start, window.end, jobs, nodes, rows, quotas]),
            jobs=jobs,
            nodes=nodes,
            allocations=allocations,
            quotas=quotas,
            report=SourceReport(
                source=self.name,
                state=SourceState.RAN,
                reason="; ".join(answers.unread.texts)
                or ("" if jobs else "no job with GPUs in the window"),
                dropped=tuple(sorted(view.dropped.items())),
                completeness_ratio=answers.unread.whole_ratio * min(1.0, explained / in_use)
                if in_use
                else None,
                warnings=tuple(warnings),
                window_start=window.start,
                window_end=window.end,
            ),
        )


@dataclass(slots=True, kw_only=True)
class _SlurmView:
    """The answers of one window on their way into records."""

    answers: SlurmAnswers
    window: Window
    source: str
    models: ModelNames
    dropped: Counter[str] = field(default_factory=Counter)

    def jobs(self) -> tuple[Job, ...]:
        """Return every job once: as the controller sees it, else as accounting last saw it."""
        ended = self._ended()
        newest: dict[str, SlurmJob] = {job.raw_id: job for job in ended}
        newest |= {
            entry.raw_id: entry for entry in self.answers.queue if not self._long_over(entry)
        }
        earlier = defaultdict[str, list[SlurmJob]](list)
        for stretch in ended:
            if stretch.submitted_at != newest[stretch.raw_id].submitted_at:
                earlier[stretch.raw_id].append(stretch)
        rows = (self._job(entry, earlier[raw_id]) for raw_id, entry in sorted(newest.items()))
        return tuple(job for job in rows if job is not None)

    def _ended(self) -> list[SlurmJob]:
        """Return the ended periods of accounting, oldest first."""
        queue_ids = {entry.raw_id for entry in self.answers.queue}
        ended = []
        for entry in self.answers.past or ():
            if entry.ended_at is not None:
                ended.append(entry)
            elif entry.raw_id not in queue_ids:
                # Accounting still waits for the end of a job that the controller has forgotten.
                self.dropped["runaway"] += 1
        return sorted(ended, key=lambda job: (job.ended_at or self.window.end, job.raw_id))

    def _long_over(self, job: SlurmJob) -> bool:
        return job.is_over and job.ended_at is not None and job.ended_at <= self.window.start

    def _job(self, job: SlurmJob, earlier: Iterable[SlurmJob] = ()) -> Job | None:
        count = sum(entry.count for entry in job.gpus)
        if count < 1:
            self.dropped["no-gpu"] += 1
            return None
        model = self.models.of_job(job)
        end = self.window.end
        first = min(job.started_at or job.ended_at or end, end)
        waits = [stretch.wait for entry in earlier if (stretch := self._job(entry)) is not None]
        return Job(
            job_id=f"slurm:{job.raw_id}",
            name=job.name,
            namespace=job.partition,
            owner=job.user,
            platform=Platform.SLURM,
            kind=WorkloadKind.UNKNOWN,
            gpu_model=model.name,
            gpu_count=count,
            mig_profile=model.mig_profile,
            gpu_memory_mib=model.memory_mib,
            first_seen_at=first,
            last_seen_at=max(first, min(job.ended_at or end, end)),
            source=self.source,
            assumed=model.assumed,
            scheduler=replace(_facts(job), earlier_waits=tuple(filter(None, waits))),
        )

    def nodes(self) -> tuple[Node, ...]:
        """Return every node that has GPUs."""
        rows = []
        for node in self.answers.nodes:
            if node.gpus:
                rows.append(self._node(node))
            else:
                self.dropped["node-without-gpu"] += 1
        return tuple(rows)

    def _node(self, node: SlurmNode) -> Node:
        boards = [entry for entry in node.gpus if not self.models.of_type(entry.gpu_type)[1]]
        slices = [
            (profile, entry.count)
            for entry in node.gpus
            if (profile := self.models.of_type(entry.gpu_type)[1])
        ]
        main = max(boards or node.gpus, key=lambda entry: entry.count)
        if len(boards) > 1:
            self.dropped["further-gpu-type-of-node"] += len(boards) - 1
        model = self.models.of_type(main.gpu_type)[0]
        return Node(
            name=node.name,
            gpu_model=model,
            gpu_count=main.count if boards else 0,
            mig_instances=tuple(slices),
            cpus=node.cpus,
            memory_mib=node.memory_mib,
            partitions=node.partitions,
            features=node.features,
            state=node.state,
            reason=node.reason,
            schedulable=node.schedulable,
            seen_at=self.window.end,
            source=self.source,
        )

    def quota(self, quota: Quota) -> Quota:
        """Return a limit as this source's, with the GPU model that its TRES names."""
        gpu_type = quota.resource.partition(":")[2]
        model = self.models.of_type(gpu_type)[0] if gpu_type else ""
        return replace(quota, source=self.source, gpu_model=model)

    def gpus_in_use(self) -> tuple[int, int]:
        """Return the GPUs in use by the nodes, and those of visible jobs, alone or in shares."""
        holding = [entry for entry in self.answers.queue if entry.state in _HOLDING]
        shared = {place for job in holding for place in _shared_boards(job)}
        return (
            sum((node.gpus_in_use or 0) + len(node.shared_gpus) for node in self.answers.nodes),
            len(shared) + sum(gpu.count for job in holding for gpu in job.gpus if not gpu.share),
        )

    def allocations(self) -> pd.DataFrame:
        """Return the allocations: columns ALLOCATIONS."""
        rows: list[dict[str, Any]] = []
        for job in self.answers.past or ():
            if job.ended_at is not None:
                rows.extend(self._counted(job))
        for entry in self.answers.queue:
            if entry.is_over and self.answers.past is None and not self._long_over(entry):
                rows.extend(self._counted(entry))
            elif entry.state in _HOLDING:
                rows.extend(self._gpu_rows(entry))
        if not rows:
            return empty_frame(ALLOCATIONS)
        frame = pd.DataFrame(rows)
        for name in ("started_at", "ended_at", "seen_at"):
            frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
        return check_frame(frame, ALLOCATIONS)

    def _gpu_rows(self, job: SlurmJob) -> Iterable[dict[str, Any]]:
        """Yield one row for every GPU of a job that holds them now."""
        if job.started_at is None:
            return
        started_at = job.started_at
        resized = dict(job.extra).get("resized_at")
        if resized and self.answers.past is not None:
            # What it held until then is a stretch of accounting.
            started_at = max(started_at, datetime.fromisoformat(resized))
        row = self._row(job, min(started_at, self.window.end), None)
        if len(job.gpus_by_node) != len(job.nodes):
            yield from self._by_node(job, row)
            return
        for node, gpus_of_node in zip(job.nodes, job.gpus_by_node, strict=True):
            for entry in gpus_of_node:
                mig = self.models.of_type(entry.gpu_type)[1]
                if entry.indices is None or mig:
                    # The index of a MIG instance is none of a board, and instances are no boards.
                    some = mig or entry.share
                    yield row | {"node": node, "gpu_count": None if some else float(entry.count)}
                    continue
                for number, index in enumerate(entry.indices):
                    part = self._part(node, entry, number) if entry.share else 1.0
                    yield row | {"node": node, "gpu_index": index, "gpu_count": part}

    def _part(self, node: str, gpus: Gpus, number: int) -> float | None:
        """Return the part of a GPU in shares, None where that is not known: all may be on it."""
        if gpus.parts is not None:
            return gpus.parts[number]
        entry_of_node = next((entry for entry in self.answers.nodes if entry.name == node), None)
        boards = sum(entry.count for entry in entry_of_node.gpus) if entry_of_node else 0
        all_shares = entry_of_node.shares.get(gpus.share, 0) if entry_of_node else 0
        return gpus.amount * boards / all_shares / gpus.count if boards and all_shares else None

    def _counted(self, job: SlurmJob) -> Iterable[dict[str, Any]]:
        """Yield one row for every node of an accounting period that has ended."""
        if job.started_at is None or job.ended_at is None or job.ended_at < job.started_at:
            return
        yield from self._by_node(job, self._row(job, job.started_at, job.ended_at))

    def _by_node(self, job: SlurmJob, row: dict[str, Any]) -> Iterable[dict[str, Any]]:
        """Slurm keeps only the total: it is spread over the nodes when it divides evenly."""
        total = sum(entry.count for entry in job.gpus)
        if total < 1:
            return
        if any(entry.share or self.models.of_type(entry.gpu_type)[1] for entry in job.gpus):
            # Counted instances and shares would pass for the boards of the node.
            yield from (row | {"node": node, "gpu_count": None} for node in job.nodes)
            return
        if not job.nodes or total % len(job.nodes):
            yield row | {"gpu_count": float(total)}
            return
        for node in job.nodes:
            yield row | {"node": node, "gpu_count": total / len(job.nodes)}

    def _row(
        self, job: SlurmJob, started_at: datetime, ended_at: datetime | None
    ) -> dict[str, Any]:
        return {
            "job_id": f"slurm:{job.raw_id}",
            "label_id": f"slurm:{job.raw_id}",
            "node": "",
            "gpu_index": "",
            "started_at": started_at,
            "ended_at": ended_at,
            "seen_at": self.window.end,
            "source": self.source,
        }


def _shared_boards(job: SlurmJob) -> list[str]:
    """Return the boards that a job has shares of, as NODE:INDEX."""
    return [
        f"{node}:{index}"
        for node, gpus in zip(job.nodes, job.gpus_by_node, strict=False)
        for entry in gpus
        if entry.share
        for index in entry.indices or ()
    ]


def _shares(job: SlurmJob) -> dict[str, str]:
    """Return the shares of GPUs that a job has or asks for, as facts."""
    amounts = Counter[str]()
    for entry in job.gpus:
        if entry.share:
            amounts[entry.share] += entry.amount
    if not amounts:
        return {}
    text = ", ".join(f"{amount} of gres/{share}" for share, amount in sorted(amounts.items()))
    return {SHARING: text, SHARED_BOARDS: ",".join(_shared_boards(job))}


def _facts(job: SlurmJob) -> SchedulerFacts:
    return row_of(
        SchedulerFacts,
        job,
        # A job that a limit or a lost node ended has no reason but its state.
        reason=job.reason or (job.state_word if job.state is JobState.FAILED else ""),
        managed_by=(),
        earlier_waits=(),
        extra=(*job.extra, *((fact, value) for fact, value in _shares(job).items() if value)),
    )


SOURCE = Source(
    build=lambda settings, catalogue: slurm_collector(settings.slurm, catalogue),
    findings=lambda settings, _now: slurm_findings(settings.slurm),
)
