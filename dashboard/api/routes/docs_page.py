"""The schema, and the page /api/v1/docs of it, without a script or a foreign request."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined


def add_docs_page(api: FastAPI, let_in: Callable[[Request], object]) -> None:
    """Add schema and page, each made once. They name no person and no job."""

    @cache
    def schema(root: str) -> bytes:
        servers = {"servers": [{"url": root}]} if root else {}
        document = api.openapi() | servers
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @cache
    def page() -> str:
        return docs_html(api.openapi())

    @api.get("/openapi.json", include_in_schema=False, dependencies=[Depends(let_in)])
    def openapi(request: Request) -> Response:
        root = str(request.scope.get("root_path", ""))
        return Response(schema(root), media_type="application/json")

    @api.get(
        "/docs",
        include_in_schema=False,
        response_class=HTMLResponse,
        dependencies=[Depends(let_in)],
    )
    def docs() -> str:
        return page()


def docs_html(schema: Mapping[str, Any]) -> str:
    """Return an OpenAPI schema as a page."""
    environment = Environment(
        loader=PackageLoader("dashboard.api.routes", ""), autoescape=True, undefined=StrictUndefined
    )
    operations = [
        _operation(schema, path, method, operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]
    info = schema["info"]
    return environment.get_template("docs.html.j2").render(
        title=info["title"],
        version=info["version"],
        summary=info["summary"],
        operations=operations,
    )


def _operation(
    schema: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]
) -> dict[str, Any]:
    parameters = [
        {"name": entry["name"], "required": entry["required"], "schema": entry["schema"]}
        | {"about": entry.get("description", "")}
        for entry in operation.get("parameters", ())
    ]
    tables = [("parameters", parameters)]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if body:
        tables.append(("body", _fields(schema, body["schema"])))
    good = next(answer for code, answer in operation["responses"].items() if code.startswith("2"))
    answer = good.get("content", {}).get("application/json", {}).get("schema", {})
    tables.append(("answer", _fields(schema, answer)))
    data = " -H 'Content-Type: application/json' -d '{…}'" if body else ""
    way = "" if method == "get" else f" -X {method.upper()}"
    return {
        "anchor": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "summary": operation["summary"],
        "about": operation.get("description", operation["summary"]),
        "tables": [
            {"title": title, "rows": [_row(row) for row in rows]} for title, rows in tables if rows
        ],
        "example": (
            f'curl -s{way} -H "Authorization: Bearer $TOKEN"{data} https://HOST/api/v1{path}'
        ),
    }


def _fields(schema: Mapping[str, Any], of: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of an object of the schema, none of what is no object of its own."""
    if "$ref" in of:
        of = schema["components"]["schemas"][of["$ref"].rpartition("/")[2]]
    needed = of.get("required", ())
    return [
        {"name": name, "required": name in needed, "schema": field}
        | {"about": field.get("description", "")}
        for name, field in of.get("properties", {}).items()
    ]


def _row(parameter: Mapping[str, Any]) -> dict[str, Any]:
    return {name: parameter[name] for name in ("name", "required", "about")} | {
        "takes": _takes(parameter["schema"])
    }


def _takes(field: Mapping[str, Any]) -> str:
    """Return in words what a field takes."""
    if choices := field.get("anyOf"):
        return " or ".join(_takes(choice) for choice in choices)
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    words = [str(field.get("format", field.get("type", "anything")))]
    if "enum" in field:
        words.append(f"of {', '.join(map(str, field['enum']))}")
    if "items" in field:
        words.append(f"of {_takes(field['items'])}")
    limits = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "maxLength": "length <="}
    words += [f"{sign} {field[name]}" for name, sign in limits.items() if name in field]
    if "default" in field and field["default"] is not None:
        words.append(f"(default {json.dumps(field['default'])})")
    return " ".join(words)
