"""The API's own document, with names put in that exist on the server, so that fuzzing gets past "not found".

What is valid stays the same: a name stands beside the schema that admits it anyway.
"""

from typing import Any

from mochi_server import create_app
from tests.fuzz.world import BROKEN_AGENT, MESSAGES, MODELS, PROMPT, SESSIONS, TOOLS, WAITING_CALL

AGENTS = ["helper", BROKEN_AGENT]
_PATHS: dict[str, list[Any]] = {
    "session_id": [*SESSIONS],
    "message_index": [0, 1, 2, 3],
    "model_name": MODELS,
    "tool_name": TOOLS,
    "agent_name": AGENTS,
    "filename": [PROMPT],
}
"""Of parameters in the path."""
_BODIES: dict[str, dict[str, list[Any]]] = {
    "SessionCreate": {"model": MODELS, "system_prompt_source_file": [PROMPT]},
    "SessionPatch": {"model": MODELS, "summary_model": MODELS},
    "SystemPromptUpdate": {"source_file": [PROMPT]},
    "SummarizeRequest": {"model": MODELS},
    "ToolSettings": {"tools": [TOOLS, TOOLS[:1]], "tool_group": ["maths"]},
    "AgentSettings": {"enabled_agents": [["helper"], AGENTS]},
    "ChatRequest": {"message": MESSAGES},
    "CompareRequest": {"message": MESSAGES[:1], "modelIds": [MODELS, MODELS[:1], [1, "2"]]},
    "ToolDecision": {"confirmation_id": [WAITING_CALL], "arguments": [{"text": "edited"}]},
}
"""Of fields, by the schema they belong to."""


def document() -> dict[str, Any]:
    """The document, as it is fuzzed."""
    written: dict[str, Any] = create_app().openapi()
    for item in written["paths"].values():
        for operation in item.values():
            # It documents whatever stands before the routes; here each route has to name its own statuses.
            operation["responses"].pop("default", None)
            for parameter in operation.get("parameters", ()):
                _put_in(parameter, "schema", _PATHS.get(parameter["name"], []))
    for name, fields in _BODIES.items():
        properties = written["components"]["schemas"][name]["properties"]
        for field, values in fields.items():
            _put_in(properties, field, values)
    return written


def _put_in(where: dict[str, Any], name: str, values: list[Any]) -> None:
    if values:
        where[name] = {"anyOf": [{"enum": values}, where[name]]}
