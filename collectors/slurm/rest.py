"""Asks slurmrestd over HTTP with a JWT, where no Slurm command is installed.

Its paths carry an API version that lives for a few releases only, so the newest one that both sides
know is chosen from the server's own list. HTTP 200 is no success yet: an answer may list errors.
"""

import json
import re
import time
from collections import Counter

import requests
from urllib3.exceptions import HTTPError, ReadTimeoutError

from collectors.shared.collector import Window
from collectors.shared.http_deadline import LargeAnswerError, LateAnswerError, whole_body
from collectors.slurm.accounting import checkpoint_sign, read_accounting_record, with_sign
from collectors.slurm.backend import (
    SlurmAnswers,
    errors_in,
    list_in,
    read_each,
    read_nodes,
    read_queue,
    release_in,
)
from collectors.slurm.commands import TIMEOUT_SECONDS
from collectors.slurm.failures import OPERATOR_HINT, failure_of
from collectors.slurm.queue_facts import with_queue_facts
from collectors.slurm.records import Record, SlurmJob
from collectors.slurm.reservations import with_reservations
from collectors.slurm.unread import unread_gres
from collectors.slurm.values import identifier_of, text_of
from data.base.errors import (
    CollectorError,
    SourceNotConfiguredError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.base.files import text_of_setting
from data.settings.sources import SlurmSettings

MAX_BYTES = 512 * 1024 * 1024
KNOWN_VERSIONS = tuple(f"v0.0.{number}" for number in range(44, 37, -1))
"""Newest first: v0.0.38 is 22.05's newest, v0.0.44 that of 25.11."""

_CONNECT_SECONDS = 5.0
_TOKEN_HINT = (
    "Make a new token with `scontrol token username=NAME lifespan=SECONDS`, and set "  # noqa: S105
    "slurm.rest_user and slurm.rest_token_file."
)


class SlurmRest:
    """One slurmrestd."""

    def __init__(self, settings: SlurmSettings) -> None:
        self.settings = settings
        self._base = settings.rest_url.rstrip("/")

    @property
    def name(self) -> str:
        """Name of the source in reports: its address without credentials."""
        scheme, _, rest = self._base.partition("://")
        return f"slurm {scheme}://{rest.rpartition('@')[2]}"

    def answers(self, window: Window) -> SlurmAnswers:
        """Return the answers of Slurm for the window. Errors: CollectorError."""
        dropped: Counter[str] = Counter()
        version = self.api_version()
        jobs = self.document(f"/slurm/{version}/jobs")
        listed = list_in(jobs, "jobs", source=f"{self.name} /jobs")
        queue = read_queue(listed, dropped, release=release_in(jobs))
        answered = self.document(f"/slurm/{version}/nodes")
        records = list_in(answered, "nodes", source=f"{self.name} /nodes")
        nodes = read_nodes(records, dropped)
        nodes, warnings = with_reservations(nodes, lambda: self._reservations(version), window.end)
        _refuse_hidden(self.name, len(queue), sum(node.gpus_in_use or 0 for node in nodes))
        try:
            document = self.document(
                f"/slurmdb/{version}/jobs",
                # In the server's own zone a plain time would mean another moment.
                start_time=f"uts{int(window.start.timestamp())}",
                end_time=f"uts{int(window.end.timestamp())}",
                **({} if version == "v0.0.38" else {"show_duplicates": "true"}),
            )
            stretches = list_in(document, "jobs", source=f"{self.name} /slurmdb jobs")
            past: tuple[SlurmJob, ...] | None = read_each(
                stretches, read_accounting_record, what="accounting-row", dropped=dropped
            )
            lines = {
                identifier_of(row.get("job_id")): text_of(row.get("submit_line"))
                for row in stretches
            }
            queue = tuple(
                with_sign(job, checkpoint_sign(lines.get(job.raw_id, ""))) for job in queue
            )
        except CollectorError as error:
            past = None
            warnings += (f"finished jobs are not visible: {error}",)
        queue = with_queue_facts(queue, listed, nodes)
        return SlurmAnswers(
            queue=queue,
            nodes=nodes,
            past=past,
            warnings=warnings,
            dropped=dropped,
            unread=unread_gres(records, listed),
        )

    def _reservations(self, version: str) -> list[Record]:
        document = self.document(f"/slurm/{version}/reservations")
        return list_in(document, "reservations", source=f"{self.name} /reservations")

    def api_version(self) -> str:
        """Return the newest API version that both sides know. Errors: CollectorError."""
        try:
            document = self.document("/openapi")
        except UnexpectedAnswerError:
            document = self.document("/openapi/v3")
        paths = document.get("paths") if isinstance(document, dict) else None
        text = " ".join(paths) if isinstance(paths, dict) else ""
        offered = set(re.findall(r"/slurm/(v0\.0\.\d+)/jobs", text))
        for version in KNOWN_VERSIONS:
            if version in offered:
                return version
        raise UnexpectedAnswerError(
            f"{self.name} offers the API versions {', '.join(sorted(offered)) or 'none'}",
            f"Known here: {KNOWN_VERSIONS[-1]} to {KNOWN_VERSIONS[0]} (Slurm 22.05 to 25.11).",
        )

    def document(self, path: str, **query: str) -> object:
        """Return the answer's JSON when it lists no errors. Errors: CollectorError."""
        status, body = self._get(path, query)
        request = f"{self.name} {path}"
        text = body.decode("utf-8", errors="replace")
        try:
            document: object = json.loads(text)
        except ValueError as error:
            if status == 200:
                raise UnexpectedAnswerError(
                    f"{request} answered something that is no JSON", "Is this a slurmrestd?"
                ) from error
            document = None
        words = scrub("; ".join(errors_in(document)) or text)
        if status in (401, 403, 511):
            raise SourceRefusedError(f"{request} answered {status}: {words}", _TOKEN_HINT)
        if status == 404:
            raise UnexpectedAnswerError(
                f"{request} answered 404: {words}", "Is slurm.rest_url the address of a slurmrestd?"
            )
        if 300 <= status < 400:
            raise UnexpectedAnswerError(
                f"{request} redirects elsewhere", "Give the final address as slurm.rest_url."
            )
        if status != 200 or errors_in(document):
            raise _failure(f"{request} answered {status}: {words}", words)
        return document

    def _get(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        """Return status and body, within a deadline for each try and a size limit.

        A busy slurmrestd resets a connection that it took: what only reads is asked once more.
        """
        try:
            return self._get_once(path, query)
        except SourceUnreachableError as error:
            if not _was_reset(error):
                raise
            return self._get_once(path, query)

    def _get_once(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        ends = time.monotonic() + TIMEOUT_SECONDS
        try:
            with requests.get(
                self._base + path,
                params=query,
                headers=self._headers(),
                timeout=(min(_CONNECT_SECONDS, TIMEOUT_SECONDS), TIMEOUT_SECONDS),
                allow_redirects=False,
                stream=True,
            ) as response:
                return response.status_code, whole_body(response, ends=ends, max_bytes=MAX_BYTES)
        except LargeAnswerError as error:
            raise UnexpectedAnswerError(
                f"the answer of {self.name} {path} exceeds {MAX_BYTES >> 20} MiB",
                "Collect more often, so that a collection reaches back less far.",
            ) from error
        except (LateAnswerError, requests.exceptions.Timeout, ReadTimeoutError) as error:
            raise SourceUnreachableError(
                f"{self.name} {path} gave no answer in {TIMEOUT_SECONDS:g} s",
                "Is slurmctld running and not overloaded?",
            ) from error
        except (requests.exceptions.RequestException, HTTPError) as error:
            raise SourceUnreachableError(
                f"cannot reach {self.name}: {scrub(str(error))[:160]}",
                "Is slurmrestd running there, and does this machine reach it?",
            ) from error

    def _headers(self) -> dict[str, str]:
        token = self.settings.rest_token
        if self.settings.rest_token_file:
            token = text_of_setting(
                self.settings.rest_token_file, "slurm.rest_token_file", _TOKEN_HINT
            )
            # `scontrol token` prints SLURM_JWT=…: kept as it came, it serves too.
            token = token.removeprefix("SLURM_JWT=")
        if not token or not self.settings.rest_user:
            raise SourceNotConfiguredError(
                f"{self.name} needs slurm.rest_user and slurm.rest_token", _TOKEN_HINT
            )
        return {
            "X-SLURM-USER-NAME": self.settings.rest_user,
            "X-SLURM-USER-TOKEN": token,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }


def _failure(message: str, words: str) -> CollectorError:
    if "Unspecified error" in words or "(-1)" in words:
        # Measured on 22.05: it says no more to a bad token, a dead slurmctld and hidden nodes.
        return SourceRefusedError(
            message,
            "Slurm 22.05 says no more than this when the token is not accepted, when slurmctld is "
            f"down (try `scontrol ping`) and when PrivateData hides nodes. {_TOKEN_HINT}",
        )
    return failure_of(message, words, otherwise="Ask slurmrestd by hand, and read its log.")


def _refuse_hidden(name: str, jobs: int, in_use: int) -> None:
    """Refuse an empty list of jobs when GPUs are in use: it is hidden, not empty."""
    if in_use and not jobs:
        raise SourceRefusedError(
            f"{name} lists no job, though {in_use} GPUs are in use",
            f"PrivateData in slurm.conf hides them from slurm.rest_user. {OPERATOR_HINT}",
        )


def _was_reset(error: BaseException | None) -> bool:
    """Return whether a connection that was reset is what an error came of."""
    while error is not None and not isinstance(error, ConnectionResetError):
        error = error.__context__
    return error is not None
