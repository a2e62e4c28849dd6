"""`trimtab mcp`: an assistant asks, by the Model Context Protocol on stdin and stdout."""

import argparse
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from dashboard.api.app import build_api
from dashboard.api.unix_socket import local_world
from dashboard.cli.terminal.context import decision_service_of, open_store_or_holder, settings_of
from dashboard.common.replay_clock import as_of_text, present
from dashboard.mcp.server import ApiAnswers, address_of, answer_of
from dashboard.mcp.tools import Answer, build_server
from data.base.errors import TrimtabError
from data.base.extras import require_extra
from data.store.handles.remote_store import ServedStore


def serve_mcp(options: argparse.Namespace) -> int:
    """Answer an assistant until it closes stdin. Errors: SettingsError without the library."""
    require_extra("mcp", "`trimtab mcp` speaks a protocol of others")
    build_server(StoreAnswers(options)).run("stdio")
    return 0


class StoreAnswers:
    """Answers for resources of the store, which is open only while one is read."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options

    def __call__(self, resource: str, parameters: Mapping[str, Any], rows: int) -> Answer:
        """Return the answer of a resource. Errors: ToolError with the words for people."""
        from mcp.server.mcpserver.exceptions import ToolError

        try:
            with open_store_or_holder(settings_of(self._options).settings.store.url) as store:
                if isinstance(store, ServedStore):
                    path, query = address_of(resource, parameters, rows)
                    content = store.holder.ask("GET", f"/api/v1/{path}?{query}")
                    answer = answer_of(json.loads(content), rows)
                else:
                    service = decision_service_of(self._options, store)
                    world = local_world(store, service, partial(present, store.reader))
                    answer = ApiAnswers(build_api(world))(resource, parameters, rows)
                if (recording := store.reader.recording()) is not None:
                    answer["note"] = f"{as_of_text(recording)}."
        except TrimtabError as error:
            raise ToolError(str(error)) from error
        return answer
