"""What Ollama's requests may contain, and their conversion to a prompt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mochi_stub.catalogue import Model
from mochi_stub.prompt import Message, Operation, Prompt, ToolCall
from mochi_stub.wire.ollama.gojson import dumps, quoted
from mochi_stub.wire.ollama.gotypes import (
    BOOL,
    INT,
    STRING,
    Mismatches,
    Read,
    anything,
    image,
    mapping,
    parse_duration,
    sequence,
    struct,
)
from mochi_stub.wire.provider_pipeline import Refused

THINK_VALUES = '"high", "medium", "low", "max", true, or false'
LEVELS = ("low", "medium", "high", "max")


def think_value(value: Any, _path: str, _wrong: Mismatches) -> bool | str:
    if isinstance(value, bool) or (isinstance(value, str) and value in LEVELS):
        return value
    if isinstance(value, str):
        raise Refused(400, f"invalid think value: {quoted(value)} (must be {THINK_VALUES})")
    raise Refused(400, f"think must be a boolean or string ({THINK_VALUES})")


def keep_alive(value: Any, _path: str, _wrong: Mismatches) -> float:
    """Return seconds. A negative value means for ever."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        found = {bool: "bool", dict: "map[string]interface {}"}.get(type(value), "[]interface {}")
        raise Refused(400, f"Unsupported type: '{found}'")
    seconds = parse_duration(value) if isinstance(value, str) else float(value)
    return math.inf if seconds < 0 else seconds


def arguments(value: Any, _path: str, _wrong: Mismatches) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(400, "Value looks like object, but can't find closing '}' symbol")
    return value


_FUNCTION_CALL = struct("api.ToolCallFunction", {"index": INT, "name": STRING, "arguments": arguments})
_TOOL_CALL = struct("api.ToolCall", {"id": STRING, "function": _FUNCTION_CALL})
_IMAGES = sequence("[]api.ImageData", image)
_MESSAGE = struct(
    "api.Message",
    {
        **{"role": STRING, "content": STRING, "thinking": STRING, "images": _IMAGES},
        **{"tool_calls": sequence("[]api.ToolCall", _TOOL_CALL), "tool_name": STRING, "tool_call_id": STRING},
    },
)
_FUNCTION = struct("api.ToolFunction", {"name": STRING, "description": STRING, "parameters": anything})
_TOOL = struct("api.Tool", {"type": STRING, "items": anything, "function": _FUNCTION})
_COMMON: dict[str, Read] = {
    **{"model": STRING, "stream": BOOL, "format": anything, "keep_alive": keep_alive, "options": mapping},
    **{"think": think_value, "truncate": BOOL, "shift": BOOL, "_debug_render_only": BOOL},
    **{"logprobs": BOOL, "top_logprobs": INT},
}
CHAT: dict[str, Read] = {
    **_COMMON,
    "messages": sequence("[]api.Message", _MESSAGE),
    "tools": sequence("api.Tools", _TOOL),
}
GENERATE: dict[str, Read] = {
    **_COMMON,
    **{"prompt": STRING, "suffix": STRING, "system": STRING, "template": STRING},
    **{"context": sequence("[]int", INT), "raw": BOOL, "images": _IMAGES},
}
SHOW: dict[str, Read] = {"model": STRING, "name": STRING, "system": STRING, "verbose": BOOL, "options": mapping}
EMBED: dict[str, Read] = {
    **{"model": STRING, "input": anything, "truncate": BOOL, "dimensions": INT},
    **{"keep_alive": keep_alive, "options": mapping},
}
EMBEDDINGS: dict[str, Read] = {"model": STRING, "prompt": STRING, "keep_alive": keep_alive, "options": mapping}

_INTEGERS = {
    *("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "num_predict", "draft_num_predict"),
    *("seed", "top_k", "repeat_last_n"),
}
_FLOATS = {
    *("temperature", "top_p", "min_p", "typical_p"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty"),
}


def effective_options(model: Model, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Modelfile's options with those of the request over them.

    Raises:
        Refused: A value has the wrong type. Ollama reports this as a 500.
    """
    chosen = {key: value for key, value in given.items() if value is not None}
    for key, value in chosen.items():
        problem = _option_problem(key, value)
        if problem:
            raise Refused(500, f"option {quoted(key)} must be of {problem}")
    whole = {key: int(value) for key, value in chosen.items() if key in _INTEGERS}
    return {**model.parameters, **chosen, **whole}


def _option_problem(key: str, value: Any) -> str:
    numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
    if key in _INTEGERS and not numeric:
        return "type integer"
    if key in _FLOATS and not numeric:
        return "type float32"
    if key == "use_mmap" and not isinstance(value, bool):
        return "type boolean"
    if key == "stop" and not isinstance(value, list):
        return "type array"
    return "an array of strings" if key == "stop" and not all(isinstance(item, str) for item in value) else ""


def check_format(format_: Any) -> None:
    """Raise Refused for a format that is neither "json", nor a schema, nor empty."""
    if format_ not in (None, "", "json") and not isinstance(format_, dict):
        problem = f'invalid format: {quoted(dumps(format_))}; expected "json" or a valid JSON Schema object'
        raise Refused(500, problem)


def to_prompt(
    body: Mapping[str, Any], operation: Operation, model: Model, options: Mapping[str, Any], request: bytes
) -> Prompt:
    """Return the request as a prompt for this model."""
    think = body.get("think")
    messages = _chat(body) if operation == "chat" else _generate(body)
    if model.system and not body.get("raw") and not any(message.role == "system" for message in messages):
        messages = (Message("system", model.system), *messages)
    return Prompt(
        model=body.get("model", ""),
        operation=operation,
        messages=messages,
        tools=tuple(body.get("tools", ())),
        think=think,
        thinks=model.can("thinking") and think is not False,
        format=body.get("format") or None,
        options=options,
        raw=body.get("raw", False),
        stream=body.get("stream", True),
        request=request,
    )


def _chat(body: Mapping[str, Any]) -> tuple[Message, ...]:
    return tuple(
        Message(
            role=message.get("role", "").lower(),
            content=message.get("content", ""),
            thinking=message.get("thinking", ""),
            images=len(message.get("images", ())),
            tool_calls=tuple(_call(call) for call in message.get("tool_calls", ())),
            tool_name=message.get("tool_name", ""),
            tool_call_id=message.get("tool_call_id", ""),
        )
        for message in body.get("messages", ())
    )


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function", {})
    return ToolCall(function.get("name", ""), function.get("arguments", {}), call.get("id") or None)


def _generate(body: Mapping[str, Any]) -> tuple[Message, ...]:
    system = (Message("system", body["system"]),) if body.get("system") else ()
    return (*system, Message("user", body.get("prompt", ""), images=len(body.get("images", ()))))
