"""Slurm through slurmrestd, where no client program is installed.

A change has worked when the answer is 200 without errors and without warnings, and a look
afterwards shows the value: 24.11 answers a field that it does not know with 200 and a warning.
"""

import json
from typing import Any

import requests
from urllib3.exceptions import HTTPError

from collectors.shared import json_parts
from collectors.slurm.backend import errors_in, list_in, release_in
from collectors.slurm.records import Record, SlurmJob
from collectors.slurm.rest import SlurmRest
from dashboard.apply.slurm.client.client import Partition, Records, explained
from dashboard.apply.slurm.client.programs import TIMEOUT_SECONDS
from dashboard.apply.slurm.client.requests import Payload, interface_name
from dashboard.apply.slurm.client.responses import CommandAnswer, CommandOutcome, answer_of
from data.base.errors import CollectorError, scrub
from data.facts.quotas import Quota

_MAX_BYTES = 8 * 1024 * 1024
_CONNECT_SECONDS = 5.0
_UNKNOWN_JOB = ("Invalid job id specified", "2017")


class SlurmRestWriter(SlurmRest):
    """One slurmrestd, asked and changed with the token of the applying account."""

    _version = ""

    def api_version(self) -> str:
        """Return the newest API version that both sides know, asked for once by each client."""
        self._version = self._version or super().api_version()
        return self._version

    def jobs(self, number: str) -> Records:
        """Return the records of a job or of an array. Errors: CollectorError."""
        try:
            return self._all("jobs", f"job/{number}")
        except CollectorError as error:
            if any(word in error.message for word in _UNKNOWN_JOB):
                return Records(interface=interface_name(self.api_version(), (0, 0)), records=())
            raise

    def queue(self) -> Records:
        """Return the records of all jobs that slurmctld still knows. Errors: CollectorError."""
        return self._all("jobs")

    def reservations(self) -> list[Record]:
        """Return the reservations of nodes. Errors: CollectorError."""
        return list(self._all("reservations").records)

    def nodes(self) -> Records:
        """Return the records of all nodes. Errors: CollectorError."""
        return self._all("nodes")

    def _all(self, kind: str, path: str = "") -> Records:
        version, path = self.api_version(), path or kind
        document = self.document(f"/slurm/{version}/{path}")
        return Records(
            interface=interface_name(version, release_in(document)),
            records=tuple(list_in(document, kind, source=f"{self.name} /{path}")),
        )

    def partition(self, name: str) -> Partition:
        """Return an unknown partition: slurmrestd requeues no job, and only a requeue needs it."""
        return Partition()

    def limits(self, job: SlurmJob) -> tuple[Quota, ...]:
        """Return nothing: limits are read by the client programs alone."""
        return ()

    def submission(self, number: str) -> tuple[str | None, str | None]:
        """Return nothing: slurmrestd gives no script."""
        return None, None

    def may_change_all(self) -> bool | None:
        """Return that it is not known: slurmrestd alone does not tell who is an operator."""
        return None

    def send(self, payload: Payload) -> CommandAnswer:
        """Send one request, once."""
        try:
            path = f"/slurm/{self.api_version()}{payload['path']}"
            headers = self._headers()
        except CollectorError as error:
            return CommandAnswer(outcome=CommandOutcome.LATER, words=explained(error))
        try:
            with requests.request(
                payload["method"],
                self.settings.rest_url.rstrip("/") + path,
                json=payload["body"] or None,
                headers=headers,
                timeout=(min(_CONNECT_SECONDS, TIMEOUT_SECONDS), TIMEOUT_SECONDS),
                allow_redirects=False,
                stream=True,
            ) as response:
                status = response.status_code
                body = response.raw.read(_MAX_BYTES, decode_content=True)
        except requests.exceptions.ConnectTimeout as error:
            return CommandAnswer(outcome=CommandOutcome.LATER, words=scrub(str(error)))
        except (requests.exceptions.RequestException, HTTPError) as error:
            # The connection may have been cut after the request was read: only a look can tell.
            refused = "refused" in str(error)
            return CommandAnswer(
                outcome=CommandOutcome.LATER if refused else CommandOutcome.NOTHING,
                words=scrub(str(error)),
            )
        return rest_answer(status, body, response.headers.get("Retry-After", ""))


def rest_answer(status: int, body: bytes, retry_after: str = "") -> CommandAnswer:
    """Sort an answer of slurmrestd: errors[] and warnings[] are failures, whatever the status."""
    text = body.decode("utf-8", errors="replace")
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    wrong = errors_in(document) + [str(entry) for entry in json_parts.list_in(document, "warnings")]
    if status == 200 and isinstance(document, dict) and not wrong:
        return CommandAnswer(outcome=CommandOutcome.YES, words="")
    words = f"{status}: {scrub('; '.join(wrong) or text)}"
    if status in (429, 503):
        seconds = float(retry_after) if retry_after.isdecimal() else None
        return CommandAnswer(outcome=CommandOutcome.LATER, words=words, retry_after_seconds=seconds)
    if status in (502, 504) or (status == 200 and not isinstance(document, dict)):
        return CommandAnswer(outcome=CommandOutcome.NOTHING, words=words)
    return answer_of(words)
