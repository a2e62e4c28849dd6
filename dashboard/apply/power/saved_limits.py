"""Limits that the agent must put back, on disk before it sets any: they survive a kill."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from data.base.errors import ApplyError
from data.base.files import read_small_file
from data.store.engine.private_files import write_private


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLimit:
    """A board that we capped: the limit found before, and every limit that we have set since."""

    original: int
    ours: tuple[int, ...]

    def with_cap(self, milliwatts: int) -> "HeldLimit":
        """Return the record with one more limit of ours, the newest last."""
        others = tuple(our for our in self.ours if our != milliwatts)
        return replace(self, ours=(*others, milliwatts))

    @property
    def cap(self) -> int:
        """The limit that we hold."""
        return self.ours[-1]


class HeldLimits:
    """The state file: limits to put back by GPU UUID, and the newest order that was obeyed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.boards: dict[str, HeldLimit] = {}
        self.sequence = 0
        self._load()

    def hold(self, gpu_uuid: str, limit: HeldLimit) -> None:
        """Remember a board, before its limit is set. Errors: ApplyError."""
        self.boards[gpu_uuid] = limit
        self._save()

    def drop(self, gpu_uuid: str) -> None:
        """Forget a board that needs nothing any more. Errors: ApplyError."""
        del self.boards[gpu_uuid]
        self._save()

    def obey(self, sequence: int) -> None:
        """Remember the newest order, so that no older one is obeyed again. Errors: ApplyError."""
        if sequence > self.sequence:
            self.sequence = sequence
            self._save()

    def _save(self) -> None:
        boards = {uuid: asdict(entry) for uuid, entry in sorted(self.boards.items())}
        text = json.dumps({"sequence": self.sequence, "boards": boards})
        try:
            write_private(self._path, text.encode())
        except OSError as error:
            raise ApplyError(
                f"cannot write {self._path}: {error.strerror}",
                "Nothing is capped that could not be put back: give the agent a folder of its own.",
            ) from error

    def _load(self) -> None:
        try:
            document = json.loads(read_small_file(self._path, linked=False))
            self.sequence = int(document["sequence"])
            self.boards = TypeAdapter(dict[str, HeldLimit]).validate_python(document["boards"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ApplyError(
                f"the state file {self._path} cannot be read: {error}",
                "Set the limits by hand (`nvidia-smi -q -d POWER` shows the defaults), then remove "
                "the file.",
            ) from error


@contextmanager
def agent_lock(path: Path) -> Iterator[None]:
    """Be the only agent with this state file; its lock names our process. Errors: ApplyError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(
            path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600
        )
    except OSError as error:
        raise ApplyError(
            f"cannot write in {path.parent}: {error.strerror}", "Name another --state-file."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise ApplyError(
            f"another agent holds {path}", "One agent a node: stop the other one."
        ) from error
    try:
        os.truncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.truncate(lock, 0)
        os.close(lock)
