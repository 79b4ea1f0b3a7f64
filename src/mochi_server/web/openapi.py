"""OpenAPI document: FastAPI's document with the schemas of events, the tags and the API key."""

from collections import ChainMap
from typing import Any

from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from mochi_server.models.chat import CHAT_EVENTS
from mochi_server.models.common import MESSAGE_PLACEHOLDER, REFERENCE, ErrorEnvelope, StoredMessage
from mochi_server.models.models import COMPARE_EVENTS
from mochi_server.models.sessions import SessionImport
from mochi_server.web.protocol import Protocol

TAGS = {
    "chat": "Send messages, stream answers, approve tool calls and stop turns.",
    "sessions": "Create, list, change, import and export sessions: settings, messages and summaries.",
    "models": "List the chat models of Ollama and compare up to three of them.",
    "tools": "List the tools that models may call, and the latest tool calls.",
    "agents": "List the agents and their sessions. An agent is a model with its own prompt and tools.",
    "system prompts": "Read and write prompt files.",
    "health": "Check the server, and get its metrics.",
}
"""Descriptions of the tags of the native API, in the order in which `/docs` shows them."""

_DESCRIPTION = """
Sessions, streaming, tool calls with approval, agents and automatic context windows.

**Streams** are server-sent events. The body of a `text/event-stream` response is text. The schemas `ChatStreamEvent`
and `CompareStreamEvent` describe one event: `event` is its name, and `data` is JSON. Ignore events with unknown names,
because new events may be added.

**Errors** have the envelope `{"error": {"code", "message", "details"}}`, except under `/v1`.
"""
_NAMES = {"openai": "OpenAI", "ai sdk": "AI SDK", "ag ui": "AG-UI"}
_SECURITY = {"type": "http", "scheme": "bearer", "description": "API key. It is required if `MOCHI_API_KEYS` is set."}


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of an app. Its schemas are sorted by name."""
    protocols: list[Protocol] = app.state.protocols
    tags = TAGS | {str(each.router.tags[0]): each.description for each in protocols if each.description}
    openapi = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.description,
        description=_DESCRIPTION.strip(),
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in tags.items()],
    )
    components = openapi["components"]
    # Routes refer to these schemas by name. Null defaults are omitted, as in FastAPI's own schemas.
    kinds = {StoredMessage, ErrorEnvelope, *(protocol.errors.envelope for protocol in protocols)}
    _, models = models_json_schema([(model, "serialization") for model in kinds], ref_template=REFERENCE + "{model}")
    referenced = jsonable_encoder(models["$defs"], exclude_none=True)
    named = (CHAT_EVENTS.schemas(), COMPARE_EVENTS.schemas(), SessionImport.schemas(), referenced)
    components["schemas"] = dict(sorted(ChainMap(*named, _with_message_references(components["schemas"])).items()))
    components["securitySchemes"] = {"apiKey": _SECURITY}
    openapi["security"] = [{}, {"apiKey": []}]
    for operation in [operation for path in openapi["paths"].values() for operation in path.values()]:
        operation["summary"] = operation["summary"].capitalize()
        for name, written in _NAMES.items():
            operation["summary"] = operation["summary"].replace(name, written)
    return openapi


def _with_message_references(schema: Any) -> Any:
    """Return ``schema`` with each ``MESSAGE_PLACEHOLDER`` replaced by a reference to the schema `StoredMessage`."""
    if schema == MESSAGE_PLACEHOLDER:
        return {"$ref": REFERENCE + StoredMessage.__name__}
    if isinstance(schema, dict):
        return {key: _with_message_references(value) for key, value in schema.items()}
    return [_with_message_references(value) for value in schema] if isinstance(schema, list) else schema
