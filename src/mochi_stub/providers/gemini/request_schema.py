"""Schemas of Gemini's requests, and the conversion of requests to prompts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from mochi_stub.json_encoding import dumps
from mochi_stub.models.catalogue import Model
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.providers.body_validation import Location, ValidationError, array, integer, number, schema
from mochi_stub.providers.provider_pipeline import function_tool, options
from mochi_stub.reply import HttpError

Tools: TypeAlias = "tuple[dict[str, Any], ...]"
_PART_DATA = {
    "text": str,
    "inlineData": dict,
    "fileData": dict,
    "functionCall": {"id": str, "name!": str, "args": dict},
    "functionResponse": {"id": str, "name!": str, "response!": dict},
    "executableCode": dict,
    "codeExecutionResult": dict,
}
_PART_FIELDS = schema({**_PART_DATA, "thought": bool, "thoughtSignature": str})


def _part(value: Any, location: Location) -> Any:
    part = _PART_FIELDS(value, location)
    if not part.keys() & _PART_DATA.keys():
        raise ValidationError((*location, "data"), "a value")
    return part


def _enum(*values: str) -> tuple[str, ...]:
    """Return the values of an enum, which Gemini reads in upper and in lower case."""
    return (*values, *map(str.lower, values))


_MODES = _enum("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
_LEVELS = _enum("THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH")
_CONTENT = {"role": ("user", "model", "function", "system"), "parts": [_part]}
_DECLARATION = {"name!": str, "description": str, "parameters": dict, "parametersJsonSchema": dict}
_CONFIG = {
    "temperature": number(0, 2),
    "topP": number(0, 1),
    "topK": number(0),
    "seed": integer(-(2**31), 2**31 - 1),
    "maxOutputTokens": integer(1),
    "candidateCount": integer(1, 8),
    "stopSequences": [str],
    "presencePenalty": number(),
    "frequencyPenalty": number(),
    "responseMimeType": str,
    "responseSchema": dict,
    "responseJsonSchema": object,
    "thinkingConfig": {"includeThoughts": bool, "thinkingBudget": integer(-1), "thinkingLevel": _LEVELS},
}
_GENERATE = {
    "systemInstruction": _CONTENT,
    "tools": [{"functionDeclarations": [_DECLARATION]}],
    "toolConfig": {"functionCallingConfig": {"mode": _MODES, "allowedFunctionNames": [str]}},
    "generationConfig": _CONFIG,
}
GENERATE = schema({"contents!": array(_CONTENT, least=1), **_GENERATE})
COUNT = schema({"contents": array(_CONTENT, least=1), **_GENERATE, "generateContentRequest": GENERATE})
_EMBED = {
    "model": str,
    "content!": _CONTENT,
    "outputDimensionality": integer(1),
    "embedContentConfig": {"outputDimensionality": integer(1)},
}
EMBED = schema(_EMBED)
BATCH = schema({"requests!": array(_EMBED, least=1)})
PAGE = schema({"pageSize": integer(0), "pageToken": integer(0)})


def to_prompt(body: Mapping[str, Any], name: str, model: Model, *, stream: bool) -> Prompt:
    """Convert a request body to a prompt. Raises HttpError if the request has tools that the model does not support."""
    declarations = [item for tool in body.get("tools", ()) for item in tool.get("functionDeclarations", ())]
    if declarations and not model.has_capability("tools"):
        raise HttpError(400, f"Function calling is not enabled for models/{name}")
    config = body.get("generationConfig", {})
    think = _thinking(config.get("thinkingConfig", {}))
    tools, required_tools = _tools(body, declarations)
    system = content_text(body.get("systemInstruction", {}))
    return Prompt(
        model=name,
        messages=(
            *([Message("system", system)] if system else ()),
            *(message for content in body["contents"] for message in _messages(content)),
        ),
        tools=tools,
        required_tools=required_tools,
        think=think,
        thinks=model.has_capability("thinking") and think is not False,
        format=_format(config),
        plain_text=config.get("responseMimeType") == "text/x.enum",
        options=options(config),
        stream=stream,
    )


def _thinking(config: Mapping[str, Any]) -> bool | None:
    """Return whether the request enables thinking, or None if the request does not configure thinking."""
    if config.get("thinkingBudget") == 0:
        return False
    is_requested = config.keys() & {"thinkingBudget", "thinkingLevel"} or config.get("includeThoughts")
    return True if is_requested else None


def _tools(body: Mapping[str, Any], declarations: Iterable[Mapping[str, Any]]) -> tuple[Tools, Tools]:
    """Return the tools that the model may call, and the tools of which it must call one. Both can be empty."""
    config = body.get("toolConfig", {}).get("functionCallingConfig", {})
    mode, allowed = config.get("mode", "").upper(), config.get("allowedFunctionNames", ())
    tools = tuple(map(_function, declarations))
    if mode == "NONE":
        return (), ()
    if mode != "ANY":
        return tools, ()
    names = [tool["function"]["name"] for tool in tools]
    for name in [name for name in allowed if name not in names]:
        raise HttpError(400, f"tool_config.function_calling_config.allowed_function_names: unknown function {name}")
    if not tools:
        raise HttpError(400, "Function calling config is set without function_declarations.")
    return tools, tuple(tool for tool in tools if not allowed or tool["function"]["name"] in allowed)


def _format(config: Mapping[str, Any]) -> Any:
    """Return the requested reply format: a JSON schema, `"json"` or None."""
    if "responseSchema" in config:
        return json_schema(config["responseSchema"])
    if "responseJsonSchema" in config:
        return config["responseJsonSchema"]
    return "json" if config.get("responseMimeType") == "application/json" else None


def json_schema(schema: Any) -> Any:
    """Convert a schema of Gemini, in which type names are in capitals, to a JSON schema."""
    if isinstance(schema, list):
        return [json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    converted: dict[str, Any] = {}
    for field, value in schema.items():
        name = re.sub(r"_([a-z0-9])", lambda letter: letter[1].upper(), field)
        if name == "type" and isinstance(value, str):
            converted[name] = value.lower()
        elif name == "properties" and isinstance(value, dict):
            converted[name] = {key: json_schema(item) for key, item in value.items()}
        elif field not in ("nullable", "propertyOrdering"):
            converted[name] = json_schema(value)
    return converted


def _function(declaration: Mapping[str, Any]) -> dict[str, Any]:
    schema = declaration.get("parametersJsonSchema") or json_schema(declaration.get("parameters"))
    description = declaration.get("description") or None
    return function_tool(name=declaration["name"], description=description, parameters=schema or None)


def _messages(content: Mapping[str, Any]) -> list[Message]:
    """Convert one `Content` object to messages. Each function result becomes a separate message."""
    parts = content.get("parts", [])
    results = [_result_message(part["functionResponse"]) for part in parts if "functionResponse" in part]
    rest = [part for part in parts if "functionResponse" not in part]
    if results and not rest:
        return results
    role = content.get("role", "user")
    message = Message(
        "assistant" if role == "model" else role,
        content=content_text(content),
        thinking="".join(part.get("text", "") for part in rest if part.get("thought")),
        images=sum("inlineData" in part or "fileData" in part for part in rest),
        tool_calls=tuple(
            ToolCall(call["name"], call.get("args", {}), call.get("id"))
            for call in (part["functionCall"] for part in rest if "functionCall" in part)
        ),
    )
    return [*results, message]


def _result_message(result: Mapping[str, Any]) -> Message:
    """Convert a function result to a message.

    If the only value of the response is a string, the string becomes the content. Other responses become JSON text.
    """
    values = list(result["response"].values())
    text = values[0] if len(values) == 1 and isinstance(values[0], str) else dumps(result["response"])
    return Message("tool", text, tool_name=result["name"], tool_call_id=result.get("id", ""))


def content_text(content: Mapping[str, Any]) -> str:
    """Return the text of a `Content` object, with a line for each part. Parts with thoughts are omitted."""
    return "\n".join(part["text"] for part in content.get("parts", ()) if "text" in part and not part.get("thought"))
