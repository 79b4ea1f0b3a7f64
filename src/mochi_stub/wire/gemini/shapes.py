"""What Gemini's requests may hold, and how they become a prompt. Names may come in camel case and in snake case."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mochi_stub.catalogue import Model
from mochi_stub.jsontext import dumps
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.wire.fields import (
    Check,
    ListOf,
    Number,
    Object,
    OneOf,
    Problem,
    Where,
    Whole,
    anything,
    flag,
    mapping,
    string,
)
from mochi_stub.wire.gemini.errors import Refused


def _camel(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda found: found[1].upper(), name)


def _message(fields: Mapping[str, Check], required: tuple[str, ...] = ()) -> Check:
    return Object(fields, required, _camel)


_PART_DATA: dict[str, Check] = {
    "text": string,
    "inlineData": mapping,
    "fileData": mapping,
    "functionCall": _message({"id": string, "name": string, "args": mapping}, ("name",)),
    "functionResponse": _message({"id": string, "name": string, "response": mapping}, ("name", "response")),
    "executableCode": mapping,
    "codeExecutionResult": mapping,
}
_PART_FIELDS: Check = _message({**_PART_DATA, "thought": flag, "thoughtSignature": string})


def _part(value: Any, where: Where) -> Any:
    part = _PART_FIELDS(value, where)
    if not part.keys() & _PART_DATA.keys():
        raise Problem("missing", (*where, "data"))
    return part


_ROLE: Check = OneOf(("user", "model", "function", "system"))
CONTENT: Check = _message({"role": _ROLE, "parts": ListOf(_part)})
_DECLARATION: Check = _message(
    {"name": string, "description": string, "parameters": mapping, "parametersJsonSchema": mapping}, ("name",)
)
_CONFIG: Check = _message(
    {
        "temperature": Number(0, 2),
        "topP": Number(0, 1),
        "topK": Number(0),
        "seed": Whole(-(2**31), 2**31 - 1),
        "maxOutputTokens": Whole(1),
        "candidateCount": Whole(1, 8),
        "stopSequences": ListOf(string),
        "presencePenalty": Number(),
        "frequencyPenalty": Number(),
        "responseMimeType": string,
        "responseSchema": mapping,
        "responseJsonSchema": anything,
        "thinkingConfig": _message({"includeThoughts": flag, "thinkingBudget": Whole(-1), "thinkingLevel": string}),
    }
)
_GENERATE: dict[str, Check] = {
    "contents": ListOf(CONTENT, least=1),
    "systemInstruction": CONTENT,
    "tools": ListOf(_message({"functionDeclarations": ListOf(_DECLARATION)})),
    "toolConfig": _message({"functionCallingConfig": _message({"mode": string})}),
    "generationConfig": _CONFIG,
}
GENERATE: Check = _message(_GENERATE, ("contents",))
COUNT: Check = _message({**_GENERATE, "generateContentRequest": GENERATE})
_EMBED_CONFIG: Check = _message({"outputDimensionality": Whole(1)})
EMBED: Check = _message(
    {"model": string, "content": CONTENT, "outputDimensionality": Whole(1), "embedContentConfig": _EMBED_CONFIG},
    ("content",),
)
BATCH: Check = _message({"requests": ListOf(EMBED, least=1)}, ("requests",))


def prompt_of(body: Mapping[str, Any], name: str, model: Model, *, stream: bool) -> Prompt:
    """The request as a prompt for this model. Raises Refused for what the model cannot do."""
    declarations = [one for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", ())]
    if declarations and not model.can("tools"):
        raise Refused(400, f"Function calling is not enabled for models/{name}")
    config = body.get("generationConfig", {})
    budget = config.get("thinkingConfig", {}).get("thinkingBudget")
    mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode", "")
    system = _said(body.get("systemInstruction", {}))
    return Prompt(
        model=name,
        messages=(*((Message("system", system),) if system else ()), *_messages(body["contents"])),
        tools=tuple(map(_function, declarations)) if mode.upper() != "NONE" else (),
        think=None if budget is None else budget != 0,
        thinks=model.can("thinking") and budget != 0,
        format=_format(config),
        options=_options(config),
        stream=stream,
    )


def shows_thoughts(body: Mapping[str, Any]) -> bool:
    """Whether the request wants to see what the model thinks."""
    shown: bool = body.get("generationConfig", {}).get("thinkingConfig", {}).get("includeThoughts", False)
    return shown


def text_of(content: Mapping[str, Any]) -> str:
    """What is to be embedded."""
    return _said(content)


_OPTIONS = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "seed": "seed",
    "maxOutputTokens": "num_predict",
    "stopSequences": "stop",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}


def _options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling options under Ollama's names."""
    return {name: config[given] for given, name in _OPTIONS.items() if given in config}


def _format(config: Mapping[str, Any]) -> Any:
    """A schema, "json", or None."""
    if "responseSchema" in config:
        return json_schema(config["responseSchema"])
    if "responseJsonSchema" in config:
        return config["responseJsonSchema"]
    return "json" if config.get("responseMimeType") == "application/json" else None


def json_schema(schema: Any) -> Any:
    """Gemini's kind of schema, whose types are in capitals, as a JSON schema."""
    if isinstance(schema, list):
        return [json_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    named = {_camel(key): value for key, value in schema.items() if key not in ("nullable", "propertyOrdering")}
    return {name: _keyword(name, value) for name, value in named.items()}


def _keyword(name: str, value: Any) -> Any:
    if name == "type" and isinstance(value, str):
        return value.lower()
    if name == "properties" and isinstance(value, dict):
        return {key: json_schema(one) for key, one in value.items()}
    return json_schema(value)


def _function(declaration: Mapping[str, Any]) -> dict[str, Any]:
    """A declaration as chat completions write it."""
    schema = declaration.get("parametersJsonSchema") or json_schema(declaration.get("parameters"))
    described = {"description": declaration["description"]} if declaration.get("description") else {}
    return {
        "type": "function",
        "function": {"name": declaration["name"], **described, **({"parameters": schema} if schema else {})},
    }


def _messages(contents: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    return tuple(message for content in contents for message in _split(content))


def _split(content: Mapping[str, Any]) -> list[Message]:
    """One content; results of functions stand in the user's, and are messages of their own here."""
    parts = content.get("parts", [])
    results = [_result(part["functionResponse"]) for part in parts if "functionResponse" in part]
    rest = [part for part in parts if "functionResponse" not in part]
    if results and not rest:
        return results
    role = {"model": "assistant"}.get(content.get("role", "user"), content.get("role", "user"))
    message = Message(
        role,
        content=_said(content),
        thinking="".join(part.get("text", "") for part in rest if part.get("thought")),
        images=sum("inlineData" in part or "fileData" in part for part in rest),
        tool_calls=tuple(_call(part["functionCall"]) for part in rest if "functionCall" in part),
    )
    return [*results, message]


def _call(call: Mapping[str, Any]) -> ToolCall:
    return ToolCall(call["name"], call.get("args", {}), call.get("id"))


def _result(result: Mapping[str, Any]) -> Message:
    """What a function gave back; a single text is that text, anything else is JSON."""
    values = list(result["response"].values())
    text = values[0] if len(values) == 1 and isinstance(values[0], str) else dumps(result["response"])
    return Message("tool", text, tool_name=result["name"], tool_call_id=result.get("id", ""))


def _said(content: Mapping[str, Any]) -> str:
    return "\n".join(part["text"] for part in content.get("parts", ()) if "text" in part and not part.get("thought"))
