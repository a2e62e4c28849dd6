"""A Prometheus whose every answer is one body, without a socket.

The session, the library, the client, the collector and the readers are the real ones; only the
connection is replaced, so that ten thousand cases take seconds.
"""

import contextlib
import io
import json
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
from fuzz.prometheus_bodies import AT, METRICS, STEPS
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.metrics import PrometheusDcgmCollector
from collectors.shared.collector import Window
from data.base.errors import CollectorError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.sources import PrometheusSettings

_END = datetime.fromtimestamp(AT, tz=UTC)
WINDOW = Window(start=_END - timedelta(minutes=STEPS), end=_END)
_NAMES = json.dumps({"status": "success", "data": list(METRICS[:2])}).encode()


class AnsweringAdapter(HTTPAdapter):
    """Answers every request with `body`; the names of metrics well, unless told otherwise."""

    body = b""
    names_too = False

    def send(self, request: requests.PreparedRequest, **_options: Any) -> requests.Response:  # type: ignore[override]
        """Return the answer as urllib3 would from a socket."""
        names = str(request.url).endswith("__name__/values") and not self.names_too
        raw = HTTPResponse(
            body=io.BytesIO(_NAMES if names else self.body), status=200, preload_content=False
        )
        return self.build_response(request, raw)


class FuzzedPrometheus:
    """A client and a collector of a Prometheus that answers what they are given."""

    def __init__(self) -> None:
        settings = PrometheusSettings(url="http://fuzzed:9090", step_seconds=60)
        self._adapter = AnsweringAdapter()
        self._client = PrometheusClient(settings)
        self._client._session.adapters = OrderedDict({"http://": self._adapter})
        self._collector = PrometheusDcgmCollector(self._client, settings, load_gpu_catalogue())

    def ask(self, body: bytes) -> int:
        """Ask for the names and for a metric; give the number of series. Errors: CollectorError."""
        self._adapter.body, self._adapter.names_too = body, True
        self._client.begin()
        with contextlib.suppress(CollectorError):
            self._client.metric_names()
        scrape = self._client.scrape_seconds(METRICS[0], WINDOW.end)
        found = list(
            self._client.series(
                METRICS[0],
                start=WINDOW.start,
                end=WINDOW.end,
                step_seconds=60,
                scrape_seconds=scrape,
            )
        )
        share, _gap = self._client.answered()
        if share != 1:
            raise AssertionError(f"nothing was refused, but {share} answered")
        # Labels, and what is said of the answer, can be written; values are read as numbers.
        texts = [[entry["metric"] for entry in found], self._client.take_warnings()]
        json.dumps(texts, ensure_ascii=False).encode()
        return len(found)

    def collect(self, body: bytes) -> int:
        """Collect where the names are well; give the number of samples. Errors: CollectorError."""
        self._adapter.body, self._adapter.names_too = body, False
        collected = self._collector.collect(WINDOW)
        inside = collected.samples["sampled_at"].between(WINDOW.start, WINDOW.end)
        if not inside.all():
            raise AssertionError("a sample outside of the window")
        return len(collected.samples)
