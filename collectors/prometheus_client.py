"""Asks a Prometheus, through prometheus-api-client, with the guards that it lacks.

Every request has a deadline, every answer a size limit; ranges are split below 11,000 points; the
boundary sample is counted once; warnings are kept; every failure is one of our errors. The traps
are in docs/adding-a-collector.md.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from requests.adapters import HTTPAdapter

from data.errors import (
    CollectorError,
    SourceRefusedError,
    SourceUnreachableError,
    UnexpectedAnswerError,
    scrub,
)
from data.source_settings import PrometheusSettings

MOST_POINTS = 10_000
"""Points asked for at once and series; Prometheus refuses more than 11,000."""

MOST_BYTES = 64 * 1024 * 1024
_CONNECT_SECONDS = 5.0


class _GuardedSession(requests.Session):
    """A session whose every request has a timeout and whose every answer has a size limit."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__()
        self.warnings: list[str] = []
        self._timeout = (min(_CONNECT_SECONDS, timeout_seconds), timeout_seconds)

    def request(self, method: str | bytes, url: str | bytes, **options: Any) -> requests.Response:  # type: ignore[override]
        options["timeout"] = self._timeout
        options["allow_redirects"] = False
        options["stream"] = True
        response = super().request(method, url, **options)
        body = bytearray()
        for chunk in response.iter_content(1 << 16):
            body += chunk
            if len(body) > MOST_BYTES:
                response.close()
                raise UnexpectedAnswerError(
                    f"the answer of {scrub(str(url))[:100]} exceeds {MOST_BYTES >> 20} MiB",
                    "Narrow prometheus.selector or lengthen prometheus.step_seconds.",
                )
        response._content = bytes(body)  # noqa: SLF001 - requests keeps a read body there
        self.warnings.extend(_warnings_of(response))
        return response


def _warnings_of(response: requests.Response) -> list[str]:
    try:
        document = response.json()
    except ValueError:
        return []
    found = document.get("warnings") if isinstance(document, dict) else None
    return [scrub(str(one)) for one in found] if isinstance(found, list) else []


def escape_label_value(value: str) -> str:
    """Give a label value fit for PromQL between double quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class PrometheusClient:
    """One Prometheus."""

    def __init__(self, settings: PrometheusSettings) -> None:
        self.url = settings.url
        self._session = _GuardedSession(settings.timeout_seconds)
        headers = (
            {"Authorization": f"Bearer {settings.bearer_token}"} if settings.bearer_token else None
        )
        self._connect = PrometheusConnect(url=settings.url, headers=headers, session=self._session)
        # The library mounts adapters that retry, which would multiply the deadline; the next cycle
        # is the retry.
        for prefix in ("http://", "https://", self._connect.url):
            self._session.mount(prefix, HTTPAdapter(max_retries=0))

    def take_warnings(self) -> tuple[str, ...]:
        """Give the warnings since the last call, each once."""
        found = tuple(dict.fromkeys(self._session.warnings))
        self._session.warnings.clear()
        return found

    def metric_names(self) -> frozenset[str]:
        """Give the names of all metrics that the server holds."""
        return frozenset(str(name) for name in self._guarded(self._connect.all_metrics))

    def range(
        self, query: str, *, start: datetime, end: datetime, step_seconds: int
    ) -> Iterator[dict[str, Any]]:
        """Give the series of a range query in [start, end], part by part.

        Each part spans at most 10,000 steps and starts one step after the part before it, so that
        no sample comes twice.
        """
        step = timedelta(seconds=step_seconds)
        begins = start
        while begins <= end:
            ends = min(end, begins + step * (MOST_POINTS - 1))
            yield from self._part(query, begins, ends, step_seconds)
            begins = ends + step

    def _part(
        self, query: str, start: datetime, end: datetime, step_seconds: int
    ) -> list[dict[str, Any]]:
        def ask() -> Any:
            return self._connect.custom_query_range(
                query=query, start_time=start, end_time=end, step=str(step_seconds)
            )

        answer = self._guarded(ask)
        if not isinstance(answer, list):
            raise UnexpectedAnswerError(
                f"{self.url} answered {type(answer).__name__} where a list of series was expected",
                "Is this the address of a Prometheus?",
            )
        return answer

    def _guarded(self, ask: Any) -> Any:
        """Give the answer, every failure as one of our errors."""
        try:
            return ask()
        except CollectorError:
            raise
        except PrometheusApiClientException as error:
            raise self._refused(str(error)) from error
        except requests.exceptions.JSONDecodeError as error:
            raise UnexpectedAnswerError(
                f"{self.url} answered something that is no JSON",
                "A login page? Check the address, the path and prometheus.bearer_token.",
            ) from error
        except requests.exceptions.Timeout as error:
            raise SourceUnreachableError(
                f"{self.url} did not answer in time",
                "Raise prometheus.timeout_seconds or narrow prometheus.selector.",
            ) from error
        except requests.exceptions.RequestException as error:
            raise SourceUnreachableError(
                f"cannot reach {self.url}: {scrub(_root(error))}",
                "Is Prometheus running there, and does this machine reach it?",
            ) from error
        except (KeyError, TypeError, ValueError) as error:
            raise UnexpectedAnswerError(
                f"{self.url} answered JSON that is no Prometheus answer ({type(error).__name__})",
                "Is this the address of a Prometheus?",
            ) from error

    def _refused(self, text: str) -> CollectorError:
        if "HTTP Status Code 30" in text:
            return UnexpectedAnswerError(
                f"{self.url} redirects elsewhere", "Give the final address as prometheus.url."
            )
        return SourceRefusedError(
            f"{self.url} refused: {scrub(text)}",
            "Check prometheus.bearer_token, prometheus.selector and the server's query limits.",
        )


def _root(error: BaseException) -> str:
    """Give the innermost cause, such as `Connection refused`, without addresses of objects."""
    inner: BaseException = error
    while inner.args and isinstance(inner.args[-1], BaseException):
        inner = inner.args[-1]
    reason = getattr(inner, "reason", None)
    return str(reason or inner).rpartition(">: ")[2]
