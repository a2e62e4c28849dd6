"""Resources that are lists of what is known now, in pages of rows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import FastAPI, Query, Request, Response

from dashboard.api.kept_answers import response
from dashboard.api.pages_of_rows import Keyed, PageOfRows, PageQuery, keyed, page_of
from dashboard.api.rows import (
    AuditRow,
    GpuRow,
    JobRow,
    NodeRow,
    SavingRow,
    SourceRow,
    UrgentRow,
    audit_row,
    gpu_row,
    job_row,
    node_row,
    saving_row,
    source_row,
    urgent_row,
)
from dashboard.api.world import ApiWorld
from dashboard.savings import ledger
from dashboard.urgent import urgent_facts

Record = TypeVar("Record")
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[Record, Row]):
    """A list: what is read, the key that orders it and is of one record only, the row of each."""

    kind: type[Row]
    read: Callable[[], Iterable[Record]]
    key: Callable[[Record], tuple[Any, ...]]
    row: Callable[[Record], Row]


def add_lists(api: FastAPI, world: ApiWorld, viewer: Any) -> None:
    """Add the resources; `viewer` lets in who may see the jobs of others."""

    def lists(name: str, about: str, listed: Listed[Any, Any]) -> None:
        def ordered() -> list[Keyed[Any]]:
            return world.kept.get((name,), lambda: keyed(listed.read(), listed.key))

        def rows(request: Request, _who: viewer, query: Annotated[PageQuery, Query()]) -> Response:
            def make() -> PageOfRows[Any]:
                return page_of(ordered(), listed.row, query)

            return response(request, world.page((name, query), make, keep=query.is_first()))

        model = PageOfRows[listed.kind]  # type: ignore[name-defined]
        api.get(f"/{name}", name=name, summary=about, response_model=model)(rows)

    reader = world.reader
    lists(
        "jobs",
        "The jobs known now",
        Listed(kind=JobRow, read=reader.jobs, key=lambda job: (job.job_id,), row=job_row),
    )
    lists(
        "gpus",
        "The boards and MIG instances known now",
        Listed(
            kind=GpuRow,
            read=reader.gpus,
            key=lambda gpu: (gpu.gpu_uuid, gpu.mig_instance),
            row=gpu_row,
        ),
    )
    lists(
        "nodes",
        "The nodes as their schedulers describe them",
        Listed(
            kind=NodeRow, read=reader.nodes, key=lambda node: (node.name, node.source), row=node_row
        ),
    )
    lists(
        "sources",
        "How the latest collection fared with each source",
        Listed(
            kind=SourceRow,
            read=reader.source_reports,
            key=lambda report: (report.source,),
            row=source_row,
        ),
    )
    lists(
        "urgent",
        "Jobs that run out of memory, and boards that failed",
        Listed(
            kind=UrgentRow,
            read=lambda: urgent_facts(reader, now=world.clock()),
            key=lambda fact: fact.order,
            row=urgent_row,
        ),
    )
    lists(
        "savings",
        "What applied changes promised, and brought",
        Listed(
            kind=SavingRow,
            read=lambda: ledger(reader, now=world.clock()),
            key=lambda row: (row.recommendation.digest,),
            row=saving_row,
        ),
    )
    lists(
        "audit",
        "The append-only record",
        Listed(
            kind=AuditRow, read=reader.audit, key=lambda entry: (entry.sequence,), row=audit_row
        ),
    )
