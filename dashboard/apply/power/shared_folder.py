"""The folder that Trimtab and the agents share: `caps/NODE.json` for orders, `reports/NODE.json`.

Trimtab writes the one and reads the other, an agent the other way round: two folders, so that each
can be given the rights it needs. Nobody listens on a port.
"""

import fcntl
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from dashboard.apply.power.orders import (
    Cap,
    CapOrder,
    NodeReport,
    Record,
    payload_of,
    record_from,
)
from dashboard.apply.power.signed_file import NotTrustedError, read_signed, write_signed
from data.base.errors import ApplyError, scrub

_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
_ORDER = "trimtab power caps v1"
_REPORT = "trimtab power report v1"


class SignedFolder:
    """The shared folder, opened with the secret that signs what lies in it."""

    def __init__(self, folder: Path, secret: bytes) -> None:
        self._folder = folder
        self._secret = secret

    def order(self, node: str) -> CapOrder | None:
        """Return the newest order for a node. Errors: NotTrustedError."""
        return self._read(CapOrder, self._path("caps", node), node, purpose=_ORDER)

    def nodes(self) -> list[str]:
        """Return the nodes of which a report lies here, in order."""
        return sorted(path.stem for path in (self._folder / "reports").glob("*.json"))

    def report(self, node: str) -> NodeReport | None:
        """Return the latest report of a node. Errors: NotTrustedError."""
        return self._read(NodeReport, self._path("reports", node), node, purpose=_REPORT)

    def _read(self, kind: type[Record], path: Path, node: str, *, purpose: str) -> Record | None:
        payload = read_signed(path, purpose=purpose, secret=self._secret)
        if payload is None:
            return None
        noun = "order" if kind is CapOrder else "report"
        try:
            record = record_from(kind, payload)
        except ValueError as error:
            raise NotTrustedError(f"{path} is no {noun}: {scrub(str(error))}") from error
        if record.node != node:
            raise NotTrustedError(f"{path} is the {noun} for node {scrub(record.node)!r}")
        return record

    def write_report(self, report: NodeReport) -> None:
        """Write the report of a node. Errors: ApplyError."""
        self._write(self._path("reports", report.node), report, _REPORT)

    def set_cap(
        self, node: str, gpu_uuid: str, cap: Cap | None, *, now: datetime, lease: timedelta
    ) -> CapOrder:
        """Write an order with another cap (None: none) for one board. Errors: ApplyError."""
        with self._locked():
            order = self.order(node)
            valid = () if order is None or order.expires_at <= now else order.caps
            caps = tuple(entry for entry in valid if entry.gpu_uuid != gpu_uuid)
            return self._order(node, order, caps + ((cap,) if cap else ()), now, lease)

    def renew(self, *, now: datetime, lease: timedelta, live_jobs: Collection[str]) -> int:
        """Prolong the caps of jobs that still live; give how many are held. Errors: ApplyError.

        A lease that has run out stays so: the agents have restored the limits. An order that is not
        to be trusted is told once the others are renewed.
        """
        count, doubts = 0, list[NotTrustedError]()
        with self._locked():
            for path in sorted((self._folder / "caps").glob("*.json")):
                try:
                    order = self.order(path.stem)
                except NotTrustedError as error:
                    doubts.append(error)
                    continue
                if order is None or not order.caps:
                    continue
                live = order.expires_at > now
                caps = tuple(cap for cap in order.caps if live and cap.job_id in live_jobs)
                self._order(order.node, order, caps, now, lease)
                count += len(caps)
        if doubts:
            raise doubts[0]
        return count

    def _order(
        self,
        node: str,
        last: CapOrder | None,
        caps: tuple[Cap, ...],
        now: datetime,
        lease: timedelta,
    ) -> CapOrder:
        order = CapOrder(
            node=node,
            sequence=1 if last is None else last.sequence + 1,
            issued_at=now,
            expires_at=now + lease,
            caps=tuple(sorted(caps, key=lambda cap: cap.gpu_uuid)),
        )
        self._write(self._path("caps", node), order, _ORDER)
        return order

    def _write(self, path: Path, record: CapOrder | NodeReport, purpose: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_signed(path, payload_of(record), purpose=purpose, secret=self._secret)
        except OSError as error:
            raise ApplyError(
                f"cannot write {path}: {error.strerror}",
                "Give this account the right to write there, see docs/power-agent.md.",
            ) from error

    def _path(self, kind: str, node: str) -> Path:
        if not _NODE.fullmatch(node):
            raise NotTrustedError(f"{scrub(node)!r} is no name of a node")
        return self._folder / kind / f"{node}.json"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one writer at a time read, change and write an order."""
        folder = self._folder / "caps"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ApplyError(
                f"cannot write in {folder}: {error.strerror}",
                "Set apply_power.directory to a folder that this account can write.",
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
