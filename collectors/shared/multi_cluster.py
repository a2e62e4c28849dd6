"""A source of a further cluster: what it tells is known by names that carry the cluster's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from collectors.shared.collector import Collector, HistoryCollector, Window
from data.facts.cluster_names import named_in
from data.facts.collected import Collected
from data.facts.fleet import Node
from data.facts.identifiers import digest_of
from data.facts.jobs import Job

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd

_NAMES = ("node", "job_id", "label_id", "source", "gpu_uuid", "address")
"""The columns of frames that hold names of a cluster."""
_UUID = "GPU-"
"""Prefix of board UUIDs that no two clusters share; others stand for a node's board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InCluster:
    """The source `inner` of the further cluster `cluster`."""

    inner: Collector
    cluster: str

    @property
    def name(self) -> str:
        """The source's name in reports."""
        return named_in(self.inner.name, self.cluster)

    def reaches_back(self, window: Window) -> datetime | None:
        """Return the time since when the source has readings, None of one that keeps none."""
        return self.inner.reaches_back(window) if isinstance(self.inner, HistoryCollector) else None

    def collect_past(self, window: Window) -> Collected:
        """Return the source's facts of a window of its past. Errors: CollectorError."""
        if not isinstance(self.inner, HistoryCollector):
            raise TypeError(f"{self.name} keeps no past")
        return self._of_cluster(self.inner.collect_past(window))

    def collect(self, window: Window) -> Collected:
        """Return the source's facts of the window. Errors: CollectorError."""
        return self._of_cluster(self.inner.collect(window))

    def _of_cluster(self, batch: Collected) -> Collected:
        return replace(
            batch,
            batch_id=digest_of([batch.batch_id, self.cluster]),
            samples=self._frame(batch.samples),
            allocations=self._frame(batch.allocations),
            xids=self._frame(batch.xids),
            serving=self._frame(batch.serving),
            activity=self._frame(batch.activity),
            progress=self._frame(batch.progress),
            jobs=tuple(self._job(job) for job in batch.jobs),
            nodes=tuple(self._node(node) for node in batch.nodes),
            quotas=None
            if batch.quotas is None
            else tuple(
                replace(quota, source=named_in(quota.source, self.cluster))
                for quota in batch.quotas
            ),
            report=replace(batch.report, source=self.name),
        )

    def _frame(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a frame with its names: each of few is written thousands of times."""
        renamed = {
            name: frame[name].map({text: self._name(name, text) for text in frame[name].unique()})
            for name in _NAMES
            if name in frame and not frame.empty
        }
        return frame.assign(**renamed).astype({name: frame[name].dtype for name in renamed})

    def _name(self, column: str, text: str) -> str:
        """Return a name of this cluster; an address tells it even where it is not known itself."""
        if text.startswith(_UUID):
            return text
        return named_in(text, self.cluster) or (f"@{self.cluster}" if column == "address" else "")

    def _job(self, job: Job) -> Job:
        facts = job.scheduler
        return replace(
            job,
            job_id=named_in(job.job_id, self.cluster),
            source=named_in(job.source, self.cluster),
            scheduler=facts
            and replace(facts, nodes=tuple(named_in(name, self.cluster) for name in facts.nodes)),
        )

    def _node(self, node: Node) -> Node:
        return replace(
            node,
            name=named_in(node.name, self.cluster),
            source=named_in(node.source, self.cluster),
        )
