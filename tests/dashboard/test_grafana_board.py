"""The board for Grafana's Infinity source asks what the API has, and shows what rows have."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from beds.api_clients import LOCAL, clients, two_owners

from dashboard.accounting.savings.daily_savings import SavedSum

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana" / "infinity"
BOARD = json.loads((FOLDER / "findings.json").read_text(encoding="utf-8"))
TARGETS = [target for panel in BOARD["panels"] for target in panel["targets"]]


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The OpenAPI schema."""
    with (
        two_owners(tmp_path_factory.mktemp("board")) as store,
        clients(store, LOCAL) as client,
    ):
        return dict(client().get("/api/v1/openapi.json").json())


@pytest.mark.parametrize("target", TARGETS, ids=[entry["url"] for entry in TARGETS])
def test_each_address_is_one_of_the_api(target: dict[str, Any], schema: dict[str, Any]) -> None:
    """With parameters that it takes, and columns that its rows have."""
    address = urlsplit(target["url"])
    path = address.path.removeprefix("/api/v1")
    assert (address.scheme, address.netloc, path in schema["paths"]) == ("", "", True)
    operation = schema["paths"][path]["get"]
    known = {entry["name"] for entry in operation.get("parameters", [])}
    assert {name for name, _value in parse_qsl(address.query)} <= known
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    if "$ref" in answer:
        page = schema["components"]["schemas"][answer["$ref"].rpartition("/")[2]]
        row = page["properties"]["items"]["items"]["$ref"].rpartition("/")[2]
        columns = set(schema["components"]["schemas"][row]["properties"])
        assert target["root_selector"] == "items"
    else:
        columns = {field.name for field in fields(SavedSum)}
    wanted = {column["selector"].partition(".")[0] for column in target["columns"]}
    assert wanted <= columns


def test_the_token_is_no_part_of_the_files() -> None:
    """It comes from the environment, and is sent to one host alone."""
    (source,) = yaml.safe_load((FOLDER / "datasource.yml").read_text(encoding="utf-8"))[
        "datasources"
    ]
    assert source["secureJsonData"] == {"bearerToken": "$TRIMTAB_TOKEN"}
    assert source["jsonData"]["allowedHosts"] == [source["url"]]
    assert {panel["datasource"]["type"] for panel in BOARD["panels"]} == {source["type"]}
