"""The OpenAPI document, made from the operations themselves: what is documented is what is routed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from deniable import __version__
from deniable.server.bodies import schema
from deniable.server.messages import STATUS
from deniable.server.operations import Operation

REQUEST_ID = {
    "name": "X-Request-Id",
    "in": "header",
    "description": "An id of your own for this question: under the same id it is never charged twice.",
    "schema": {"type": "string", "maxLength": 200, "pattern": "^[!-~]*$"},
}
REFUSAL = {
    "type": "object",
    "required": ["error", "happened", "expected", "remedy", "charged", "message"],
    "properties": {
        "error": {"type": "string", "description": "The code of the refusal.", "enum": sorted(STATUS)},
        "happened": {"type": "string"},
        "expected": {"type": "string"},
        "remedy": {"type": "string"},
        "charged": {"type": "boolean", "description": "Whether something was charged."},
        "message": {"type": "string", "description": "All of it in one paragraph."},
        "line": {"type": "integer"},
        "column": {"type": "integer"},
    },
}


def document(operations: Iterable[Operation], title: str) -> dict[str, Any]:
    """The document of some operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": __version__,
            "description": "Differentially private answers. Every refusal has the shape `Refusal`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Refusal": REFUSAL},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_path(operation.path), *_query(operation), *([REQUEST_ID] if operation.charges else [])],
        "responses": _responses(operation),
        "security": [] if operation.public else [{"token": []}],
    }
    if operation.body is not None:
        rules = schema(operation.body)  # type: ignore[arg-type]  # a class is hashable
        content = {"application/json": {"schema": rules}}
        shown["requestBody"] = {"required": True, "content": content}
    return shown


def _path(path: str) -> list[dict[str, Any]]:
    rules = {"type": "string", "minLength": 1, "maxLength": 200}
    return [{"name": name, "in": "path", "required": True, "schema": rules} for name in re.findall(r"{(\w+)}", path)]


def _query(operation: Operation) -> list[dict[str, Any]]:
    return [{"name": name, "in": "query", "schema": dict(rules)} for name, rules in operation.query.items()]


def _responses(operation: Operation) -> dict[str, Any]:
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    content: dict[str, Any] = {form: {} if form != "application/json" else {"schema": {}} for form in operation.forms}
    found: dict[str, Any] = {str(operation.status): {"description": "Done.", "content": content}}
    for code in sorted(set(STATUS.values())):
        found[str(code)] = {"description": "Refused.", "content": refusal}
    return found
