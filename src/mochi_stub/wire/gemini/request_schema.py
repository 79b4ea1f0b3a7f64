"""Schemas of Gemini's requests, and their conversion to a prompt. Names are accepted in camel and in snake case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mochi_stub.models.catalogue import Model
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.wire.body_validation import (
    Problem,
    Where,
    anything,
    array,
    flag,
    mapping,
    number,
    schema,
    string,
    whole,
)
from mochi_stub.wire.json_encoding import dumps
from mochi_stub.wire.provider_pipeline import HttpError, function_tool, options

_PART_DATA = {
    "text": string,
    "inlineData": mapping,
    "fileData": mapping,
    "functionCall": {"id": string, "name!": string, "args": mapping},
    "functionResponse": {"id": string, "name!": string, "response!": mapping},
    "executableCode": mapping,
    "codeExecutionResult": mapping,
}
_PART_FIELDS = schema({**_PART_DATA, "thought": flag, "thoughtSignature": string})


def _part(value: Any, where: Where) -> Any:
    part = _PART_FIELDS(value, where)
    if not part.keys() & _PART_DATA.keys():
        raise Problem("missing", (*where, "data"))
    return part


_CONTENT = {"role": ("user", "model", "function", "system"), "parts": [_part]}
_DECLARATION = {"name!": string, "description": string, "parameters": mapping, "parametersJsonSchema": mapping}
_CONFIG = {
    "temperature": number(0, 2),
    "topP": number(0, 1),
    "topK": number(0),
    "seed": whole(-(2**31), 2**31 - 1),
    "maxOutputTokens": whole(1),
    "candidateCount": whole(1, 8),
    "stopSequences": [string],
    "presencePenalty": number(),
    "frequencyPenalty": number(),
    "responseMimeType": string,
    "responseSchema": mapping,
    "responseJsonSchema": anything,
    "thinkingConfig": {"includeThoughts": flag, "thinkingBudget": whole(-1), "thinkingLevel": string},
}
_GENERATE = {
    "systemInstruction": _CONTENT,
    "tools": [{"functionDeclarations": [_DECLARATION]}],
    "toolConfig": {"functionCallingConfig": {"mode": string}},
    "generationConfig": _CONFIG,
}
GENERATE = schema({"contents!": array(_CONTENT, least=1), **_GENERATE})
COUNT = schema({"contents": array(_CONTENT, least=1), **_GENERATE, "generateContentRequest": GENERATE})
_EMBED = {
    "model": string,
    "content!": _CONTENT,
    "outputDimensionality": whole(1),
    "embedContentConfig": {"outputDimensionality": whole(1)},
}
EMBED = schema(_EMBED)
BATCH = schema({"requests!": array(_EMBED, least=1)})


def prompt_of(body: Mapping[str, Any], name: str, model: Model, *, stream: bool) -> Prompt:
    """Return the request as a prompt for this model. Raises Refused for what the model cannot do."""
    declarations = [one for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
    if declarations and not model.can("tools"):
        raise HttpError(400, f"Function calling is not enabled for models/{name}")
    config = body.get("generationConfig", {})
    budget = config.get("thinkingConfig", {}).get("thinkingBudget")
    mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode", "")
    system = text_of(body.get("systemInstruction", {}))
    return Prompt(
        model=name,
        messages=(
            *([Message("system", system)] if system else ()),
            *(message for content in body["contents"] for message in _split(content)),
        ),
        tools=tuple(map(_function, declarations)) if mode.upper() != "NONE" else (),
        think=None if budget is None else budget != 0,
        thinks=model.can("thinking") and budget != 0,
        format=_format(config),
        options=options(config),
        stream=stream,
    )


def _format(config: Mapping[str, Any]) -> Any:
    """Return a schema, `"json"` or None."""
    if "responseSchema" in config:
        return json_schema(config["responseSchema"])
    if "responseJsonSchema" in config:
        return config["responseJsonSchema"]
    return "json" if config.get("responseMimeType") == "application/json" else None


def json_schema(schema: Any) -> Any:
    """Return a schema of Gemini's, whose types are in capitals, as a JSON schema."""
    if isinstance(schema, list):
        return [json_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for given, value in schema.items():
        name = re.sub(r"_([a-z0-9])", lambda letter: letter[1].upper(), given)
        if name == "type" and isinstance(value, str):
            found[name] = value.lower()
        elif name == "properties" and isinstance(value, dict):
            found[name] = {key: json_schema(one) for key, one in value.items()}
        elif given not in ("nullable", "propertyOrdering"):
            found[name] = json_schema(value)
    return found


def _function(declaration: Mapping[str, Any]) -> dict[str, Any]:
    schema = declaration.get("parametersJsonSchema") or json_schema(declaration.get("parameters"))
    description = declaration.get("description") or None
    return function_tool(name=declaration["name"], description=description, parameters=schema or None)


def _split(content: Mapping[str, Any]) -> list[Message]:
    """Return one content as messages, where each function result is a message of its own."""
    parts = content.get("parts", [])
    results = [_result(part["functionResponse"]) for part in parts if "functionResponse" in part]
    rest = [part for part in parts if "functionResponse" not in part]
    if results and not rest:
        return results
    role = content.get("role", "user")
    message = Message(
        "assistant" if role == "model" else role,
        content=text_of(content),
        thinking="".join(part.get("text", "") for part in rest if part.get("thought")),
        images=sum("inlineData" in part or "fileData" in part for part in rest),
        tool_calls=tuple(
            ToolCall(call["name"], call.get("args", {}), call.get("id"))
            for call in (part["functionCall"] for part in rest if "functionCall" in part)
        ),
    )
    return [*results, message]


def _result(result: Mapping[str, Any]) -> Message:
    """Return the result of a function. A single text is that text, anything else is JSON."""
    values = list(result["response"].values())
    text = values[0] if len(values) == 1 and isinstance(values[0], str) else dumps(result["response"])
    return Message("tool", text, tool_name=result["name"], tool_call_id=result.get("id", ""))


def text_of(content: Mapping[str, Any]) -> str:
    """Return the text of a content without its thoughts, a line for each part."""
    return "\n".join(part["text"] for part in content.get("parts", ()) if "text" in part and not part.get("thought"))
