"""The OpenAPI document: what FastAPI makes of the routes, with the schemas of events, the tags and the API key."""

from collections import ChainMap
from typing import Any

from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from mochi_server.models.common import ErrorEnvelope
from mochi_server.models.events import CHAT_EVENTS, COMPARE_EVENTS, REFERENCE
from mochi_server.models.import_export import SessionImport
from mochi_server.models.messages import SHOWN, StoredMessage
from mochi_server.models.openai_responses import OpenAIErrorEnvelope

TAGS = {
    "chat": "Turns: send a message, listen to the answer, approve of tools, stop.",
    "sessions": "Conversations, their settings, messages and summaries.",
    "models": "What Ollama has, and up to three models side by side.",
    "OpenAI": "The same turns for clients of OpenAI's API. Errors have its form here.",
    "tools": "Functions that models may call.",
    "agents": "Models with a prompt and tools of their own, which models call as one tool.",
    "system prompts": "Prompt files.",
    "health": "Whether the server serves.",
}
"""In the order of `/docs`: what is used most comes first."""

_DESCRIPTION = """
Sessions, streaming, tools with approval, agents, and an honest context window.

**Streams** are server-sent events. The schema of a `text/event-stream` is that of each event: `event` tells them
apart, and `data` is JSON of the schema named there. Skip unknown events; there may be more of them one day.

**Errors** all have one envelope, `{"error": {"code", "message", "details"}}`.
"""
_SECURITY = {"type": "http", "scheme": "bearer", "description": "An API key, where the server has any."}


def document(app: FastAPI) -> dict[str, Any]:
    """Return the document, always in the same order."""
    made = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.description,
        description=_DESCRIPTION.strip(),
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    components = made["components"]
    # Routes refer to messages and errors by name. Like FastAPI, omit defaults of null.
    kinds = (StoredMessage, ErrorEnvelope, OpenAIErrorEnvelope)
    _, models = models_json_schema([(each, "serialization") for each in kinds], ref_template=REFERENCE + "{model}")
    referred = jsonable_encoder(models["$defs"], exclude_none=True)
    named = (CHAT_EVENTS.schemas(), COMPARE_EVENTS.schemas(), SessionImport.schemas(), referred)
    components["schemas"] = dict(sorted(ChainMap(*named, _with_messages(components["schemas"])).items()))
    components["securitySchemes"] = {"apiKey": _SECURITY}
    made["security"] = [{}, {"apiKey": []}]
    for operation in [operation for path in made["paths"].values() for operation in path.values()]:
        operation["summary"] = operation["summary"].capitalize().replace("openai", "OpenAI")
    return made


def _with_messages(schema: Any) -> Any:
    """Replace each placeholder for the schema of messages by a reference to it."""
    if schema == SHOWN:
        return {"$ref": REFERENCE + StoredMessage.__name__}
    if isinstance(schema, dict):
        return {key: _with_messages(value) for key, value in schema.items()}
    return [_with_messages(value) for value in schema] if isinstance(schema, list) else schema
