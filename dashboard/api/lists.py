"""Resources that are lists of what is known now, in pages of rows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response

from dashboard.api.kept_answers import response
from dashboard.api.pages_of_rows import Keyed, PageOfRows, PageQuery, keyed, page_of
from dashboard.api.rows import (
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
    urgent_row,
)
from dashboard.api.world import ApiWorld
from dashboard.applications import ApplicationRow, application_rows
from dashboard.capacity import CapacityRow, capacity_rows
from dashboard.heat import HeatRow, heat_rows
from dashboard.queue_rows import QueueRow, queue_rows
from dashboard.savings import ledger
from dashboard.urgent import urgent_facts
from data.records.quotas import Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A list: what is read, the key that orders it and is of one record only, the row of each."""

    kind: type[Any]
    read: Callable[[ApiWorld], Iterable[Any]]
    key: Callable[[Any], tuple[Any, ...]]
    row: Callable[[Any], Any]


_JOBS = Listed(
    kind=JobRow, read=lambda mine: mine.reader.jobs(), key=lambda job: (job.job_id,), row=job_row
)
_APPLICATIONS = Listed(
    kind=ApplicationRow,
    read=lambda mine: application_rows(mine.reader.jobs()),
    key=lambda row: (row.namespace, row.application),
    row=lambda row: row,
)
_GPUS = Listed(
    kind=GpuRow,
    read=lambda mine: mine.reader.gpus(),
    key=lambda gpu: (gpu.gpu_uuid, gpu.mig_instance),
    row=gpu_row,
)
_NODES = Listed(
    kind=NodeRow,
    read=lambda mine: mine.reader.nodes(),
    key=lambda node: (node.name, node.source),
    row=node_row,
)
_QUEUE = Listed(
    kind=QueueRow,
    read=lambda mine: queue_rows(mine.reader),
    key=lambda row: (row.queue, row.jobs_ahead, row.job_id),
    row=lambda row: row,
)
_QUOTAS = Listed(
    kind=Quota,
    read=lambda mine: mine.reader.quotas(),
    key=lambda quota: quota.key,
    row=lambda quota: quota,
)
_CAPACITY = Listed(
    kind=CapacityRow,
    read=lambda mine: capacity_rows(mine.reader, mine.service.settings()),
    key=lambda row: (row.gpu_model,),
    row=lambda row: row,
)
_HEAT = Listed(
    kind=HeatRow,
    read=lambda mine: heat_rows(mine.reader, mine.service.settings()),
    key=lambda row: (row.rack, row.limit_kw),
    row=lambda row: row,
)
_SOURCES = Listed(
    kind=SourceRow,
    read=lambda mine: mine.reader.source_reports(),
    key=lambda report: (report.source,),
    row=source_row,
)
_URGENT = Listed(
    kind=UrgentRow,
    read=lambda mine: urgent_facts(mine.reader, now=mine.clock(), settings=mine.service.settings()),
    key=lambda fact: fact.order,
    row=urgent_row,
)
_SAVINGS = Listed(
    kind=SavingRow,
    read=lambda mine: ledger(mine.reader, now=mine.clock()),
    key=lambda row: (row.recommendation.digest,),
    row=saving_row,
)
_SERVING = Listed(
    kind=ServiceRow,
    read=lambda mine: [
        service_row(outlook, mine.service.settings().serving, mine.clock())
        for outlook in mine.reader.serving_outlook()
    ],
    key=lambda row: (row.job_id, row.service),
    row=lambda row: row,
)
_AUDIT = Listed(
    kind=AuditRow,
    read=lambda mine: mine.reader.audit(),
    key=lambda entry: (entry.sequence,),
    row=audit_row,
)


def add_lists(api: FastAPI, world: ApiWorld, *, anyone: Any, viewer: Any) -> None:
    """Add the resources: to `anyone` what they may see of each, to `viewer` what is the fleet's."""

    def lists(name: str, about: str, listed: Listed, who_may: Any) -> None:
        def ordered(mine: ApiWorld) -> list[Keyed[Any]]:
            def read() -> list[Keyed[Any]]:
                return keyed(listed.read(mine), listed.key)

            return mine.kept.get((name,), read)

        def rows(request: Request, who: who_may, query: Annotated[PageQuery, Query()]) -> Response:
            mine = world.of(who)

            def make() -> PageOfRows[Any]:
                return page_of(ordered(mine), listed.row, query)

            return response(request, mine.page((name, query), make, keep=query.is_first()))

        model = PageOfRows[listed.kind]  # type: ignore[name-defined]
        api.get(f"/{name}", name=name, summary=about, response_model=model)(rows)

    lists("jobs", "The jobs known now", _JOBS, anyone)
    lists("applications", "The workloads that own jobs, each once", _APPLICATIONS, anyone)
    lists("gpus", "The boards and MIG instances known now", _GPUS, anyone)
    lists("nodes", "The nodes as their schedulers describe them", _NODES, viewer)
    lists("queue", "The jobs that wait for GPUs, with place and forecast", _QUEUE, viewer)
    lists("quotas", "What schedulers let their queues hold, and its use", _QUOTAS, anyone)
    lists("capacity", "How many boards of each model to keep, and the cost", _CAPACITY, viewer)
    lists("heat", "The heat of racks (power domains), now and in the next day", _HEAT, viewer)
    lists("sources", "How the latest collection fared with each source", _SOURCES, viewer)
    lists(
        "urgent",
        "Jobs that run out of memory, boards that failed, budgets that are exceeded",
        _URGENT,
        anyone,
    )
    lists("serving", "Inference services and the replicas that they need", _SERVING, anyone)
    lists("savings", "What applied changes promised, and brought", _SAVINGS, anyone)
    lists("audit", "The append-only record", _AUDIT, anyone)
