"""Lists of commands, a server and its API: what is read for each, and its rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from dashboard.accounting.cost.applications import ApplicationRow, application_rows
from dashboard.accounting.facility.capacity import CapacityRow, capacity_rows
from dashboard.accounting.facility.heat import HeatRow, heat_rows
from dashboard.accounting.savings.ledger import ledger
from dashboard.common.attested_idle import AttestedJob, attested_jobs
from dashboard.resources.alerts import urgent_facts
from dashboard.resources.queue_rows import QueueRow, queue_rows
from dashboard.resources.resource import View
from dashboard.resources.rows import (
    AuditRow,
    GpuRow,
    JobRow,
    NodeRow,
    SavingRow,
    ServiceRow,
    SourceRow,
    UrgentRow,
    audit_row,
    gpu_row,
    job_row,
    node_row,
    saving_row,
    service_row,
    source_row,
)
from dashboard.resources.selection import Selection, selected
from data.base.rows import columns_of, row_of
from data.facts.quotas import Quota
from data.store import StoreReader

NO_SAMPLES = "The store is empty: run `trimtab cycle` or `trimtab import`."
_SOURCES_HINT = "`trimtab sources` lists what was asked."
_NO_JOB = f"No job is known: no sample names one, and no scheduler told of one. {_SOURCES_HINT}"
REPORT_COLUMNS = ("source", "state", "samples", "completeness_ratio", "reason")


def running_since(reader: StoreReader, clock: Callable[[], datetime]) -> datetime:
    """Return since when a job that runs was seen: an hour before the newest sample."""
    return (reader.latest_sample_at() or clock()) - timedelta(hours=1)


def _applications(view: View) -> list[ApplicationRow]:
    since = running_since(view.reader, view.clock)
    return application_rows(view.reader.jobs(), running_since=since)


def _as_it_is(row: Any) -> Any:
    return row


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A list: what is read, the key that orders it and is of one record only, the row of each.

    `about` tells it to users of the API, where `anyone` may see their own rows, or the fleet's
    viewers all; one `of_record` changes with every entry of the record. `empty` is what a command
    says where a store that is not empty has none (see `empty_message`), `columns` what its table
    has, `selectors` the columns of selectors that are called otherwise.
    """

    about: str
    kind: type[Any]
    read: Callable[[View], Iterable[Any]]
    key: Callable[[Any], tuple[Any, ...]]
    empty: str
    row: Callable[[Any], Any] = _as_it_is
    anyone: bool = True
    of_record: bool = False
    columns: Sequence[str] = ()
    selectors: Mapping[str, str] = field(default_factory=dict)

    def ordered(self, view: View, selection: Selection) -> list[tuple[tuple[Any, ...], Any]]:
        """Return the entries that are asked for behind their keys. Errors: BadRangeError."""
        return selected(
            ((self.key(entry), entry) for entry in self.read(view)),
            selection,
            kind=self.kind,
            row_of=self.row,
            jobs_of=view.reader.jobs_of,
            columns=self.selectors,
        )

    def table_columns(self) -> Sequence[str]:
        """Return the columns of its table, in order."""
        return self.columns or columns_of(self.kind)


def empty_message(reader: StoreReader, text: str) -> str:
    """Return the message on a list without rows: `text`, unless the store is empty altogether."""
    return text if reader.source_reports() else NO_SAMPLES


LISTINGS: Mapping[str, Listing] = {
    "jobs": Listing(
        about="The jobs known now",
        kind=JobRow,
        read=lambda view: view.reader.jobs(),
        key=lambda job: (job.job_id,),
        row=job_row,
        empty=_NO_JOB,
    ),
    "idle-jobs": Listing(
        about="The jobs that run: certainly idle and since when, or active and why",
        kind=AttestedJob,
        read=lambda view: attested_jobs(view.reader, now=view.clock()),
        key=lambda row: (row.job_id,),
        anyone=False,
        empty=f"No job with GPUs runs. {_SOURCES_HINT}",
    ),
    "applications": Listing(
        about="The workloads that own jobs, each once",
        kind=ApplicationRow,
        read=_applications,
        key=lambda row: (row.namespace, row.application),
        empty=_NO_JOB,
    ),
    "gpus": Listing(
        about="The boards and MIG instances known now",
        kind=GpuRow,
        read=lambda view: view.reader.gpus(),
        key=lambda gpu: (gpu.gpu_uuid, gpu.mig_instance),
        row=gpu_row,
        empty=f"No board is known: no sample came. {_SOURCES_HINT}",
    ),
    "nodes": Listing(
        about="The nodes as their schedulers describe them",
        kind=NodeRow,
        read=lambda view: view.reader.nodes(),
        key=lambda node: (node.name, node.source),
        selectors={"node": "name"},
        row=node_row,
        anyone=False,
        empty=f"No scheduler told of a node: set slurm.mode or kubernetes.enabled. {_SOURCES_HINT}",
    ),
    "queue": Listing(
        about="The jobs that wait for GPUs, with place and forecast",
        kind=QueueRow,
        read=lambda view: queue_rows(view.reader),
        key=lambda row: (row.queue, row.jobs_ahead, row.job_id),
        selectors={"namespace": "queue"},
        anyone=False,
        empty="No job waits for GPUs.",
    ),
    "quotas": Listing(
        about="What schedulers let their queues hold, and its use",
        kind=Quota,
        read=lambda view: view.reader.quotas(),
        key=lambda quota: quota.key,
        empty="No scheduler tells of a limit on GPUs.",
    ),
    "capacity": Listing(
        about="How many boards of each model to keep, and the cost",
        kind=CapacityRow,
        read=lambda view: capacity_rows(view.reader, view.settings),
        key=lambda row: (row.gpu_model,),
        anyone=False,
        empty=f"No board of a known model was seen. {_SOURCES_HINT}",
    ),
    "heat": Listing(
        about="The heat of racks (power domains), now and in the next day",
        kind=HeatRow,
        read=lambda view: heat_rows(view.reader, view.settings),
        key=lambda row: (row.rack, row.limit_kw),
        anyone=False,
        empty="No rack is known: state power.domains, and the nodes that each feeds.",
    ),
    "sources": Listing(
        about="How the latest collection fared with each source",
        kind=SourceRow,
        read=lambda view: view.reader.source_reports(),
        key=lambda report: (report.source,),
        row=source_row,
        anyone=False,
        columns=REPORT_COLUMNS,
        empty=NO_SAMPLES,
    ),
    "urgent": Listing(
        about="Alerts: hardware, heat, failed sources and changes, memory that runs out, budgets",
        kind=UrgentRow,
        read=lambda view: urgent_facts(view.reader, now=view.clock(), settings=view.settings),
        of_record=True,
        key=lambda fact: fact.order,
        row=partial(row_of, UrgentRow),
        empty="Nothing is urgent.",
    ),
    "serving": Listing(
        about="Inference services and the replicas that they need",
        kind=ServiceRow,
        read=lambda view: [
            service_row(outlook, view.settings.serving, view.clock())
            for outlook in view.reader.serving_outlook()
        ],
        key=lambda row: (row.job_id, row.service),
        empty=f"The latest cycle read no inference service. {_SOURCES_HINT}",
    ),
    "savings": Listing(
        about="What applied changes promised, and brought",
        kind=SavingRow,
        read=lambda view: ledger(view.reader, now=view.clock()),
        key=lambda row: (row.recommendation.digest,),
        row=saving_row,
        empty="Nothing has been applied yet.",
    ),
    "audit": Listing(
        about="The append-only record",
        kind=AuditRow,
        read=lambda view: view.reader.audit(),
        of_record=True,
        key=lambda entry: (entry.sequence,),
        row=audit_row,
        empty="Nothing has been decided yet.",
    ),
}
"""By its name in addresses of the API, which is that of the command too where there is one."""
