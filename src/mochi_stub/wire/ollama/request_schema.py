"""Decoders for the fields of Ollama's requests, and the conversion of requests to prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mochi_stub.models.catalogue import Model
from mochi_stub.prompt import Message, Operation, Prompt, ToolCall
from mochi_stub.reply import HttpError
from mochi_stub.wire.ollama.go_duration import duration
from mochi_stub.wire.ollama.go_json import quoted
from mochi_stub.wire.ollama.go_syntax import (
    BOOL,
    IMAGE,
    INT,
    MAPPING,
    STRING,
    STRINGS,
    Decoder,
    anything,
    ordered_map,
    sequence,
    struct,
)
from mochi_stub.wire.provider_pipeline import with_defaults

THINK_VALUES = '"high", "medium", "low", "max", true, or false'
THINK_LEVELS = ("low", "medium", "high", "max")


def _think(value: Any) -> bool | str:
    if isinstance(value, bool) or (isinstance(value, str) and value in THINK_LEVELS):
        return value
    if isinstance(value, str):
        raise HttpError(400, f"invalid think value: {quoted(value)} (must be {THINK_VALUES})")
    raise HttpError(400, f"think must be a boolean or string ({THINK_VALUES})")


def _property_types(value: Any) -> Any:
    return value if isinstance(value, str) else STRINGS(value)


def _property(value: Any) -> Any:
    return _PROPERTY(value)


def _parameters(value: Any) -> Any:
    """Check the parameters of a tool, and return them with their unknown fields."""
    _PARAMETERS(value)
    return value


_IMAGES = sequence("[]api.ImageData", IMAGE)
_FUNCTION_CALL = struct("api.ToolCallFunction", {"index": INT, "name": STRING, "arguments": ordered_map(anything)})
_TOOL_CALL = struct("api.ToolCall", {"id": STRING, "function": _FUNCTION_CALL})
_MESSAGE: dict[str, Decoder] = {
    **{"role": STRING, "content": STRING, "thinking": STRING, "images": _IMAGES},
    **{"tool_calls": sequence("[]api.ToolCall", _TOOL_CALL), "tool_name": STRING, "tool_call_id": STRING},
}
MESSAGES = sequence("[]api.Message", struct("api.Alias", _MESSAGE, own_unmarshaler=True))
_PROPERTY_FIELDS: dict[str, Decoder] = {
    **{"anyOf": sequence("[]api.ToolProperty", _property), "type": _property_types},
    **{"items": anything, "description": STRING, "enum": sequence("[]interface {}", anything)},
    **{"properties": ordered_map(_property), "required": STRINGS},
}
_PROPERTY = struct("api.ToolProperty", _PROPERTY_FIELDS, own_unmarshaler=True)
_PARAMETERS = struct(
    "api.ToolFunctionParameters",
    {"type": STRING, "$defs": anything, "items": anything, "required": STRINGS, "properties": ordered_map(_property)},
)
_FUNCTION = struct("api.ToolFunction", {"name": STRING, "description": STRING, "parameters": _parameters})
_TOOL = struct("api.Tool", {"type": STRING, "items": anything, "function": _FUNCTION})
_LOAD_FIELDS: dict[str, Decoder] = {"model": STRING, "keep_alive": duration, "options": MAPPING}
_COMMON_FIELDS: dict[str, Decoder] = {
    **_LOAD_FIELDS,
    **{"stream": BOOL, "format": anything, "think": _think, "truncate": BOOL, "shift": BOOL},
    **{"_debug_render_only": BOOL, "logprobs": BOOL, "top_logprobs": INT},
}
CHAT: dict[str, Decoder] = {**_COMMON_FIELDS, "messages": MESSAGES, "tools": sequence("api.Tools", _TOOL)}
GENERATE: dict[str, Decoder] = {
    **_COMMON_FIELDS,
    **{"prompt": STRING, "suffix": STRING, "system": STRING, "template": STRING},
    **{"context": sequence("[]int", INT), "raw": BOOL, "images": _IMAGES},
}
SHOW: dict[str, Decoder] = {"model": STRING, "name": STRING, "system": STRING, "verbose": BOOL, "options": MAPPING}
EMBED: dict[str, Decoder] = {**_LOAD_FIELDS, "input": anything, "truncate": BOOL, "dimensions": INT}
EMBEDDINGS: dict[str, Decoder] = {**_LOAD_FIELDS, "prompt": STRING}

_INTEGERS = (
    *("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "num_predict", "draft_num_predict"),
    *("seed", "top_k", "repeat_last_n"),
)
_FLOATS = ("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
_OPTION_TYPES: dict[str, tuple[str, set[type]]] = {
    **dict.fromkeys(_INTEGERS, ("integer", {int, float})),
    **dict.fromkeys(_FLOATS, ("float32", {int, float})),
    **{"use_mmap": ("boolean", {bool}), "stop": ("array", {list})},
}


def effective_options(model: Model, requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model's parameters, overridden by `requested`. Raises HttpError (500) for a wrong option type.

    A `num_predict` of 0 becomes -1, because both mean no limit.
    """
    overrides = {key: value for key, value in requested.items() if value is not None}
    for key, value in overrides.items():
        type_name, types = _OPTION_TYPES.get(key, ("", {type(value)}))
        if type(value) not in types:
            raise HttpError(500, f"option {quoted(key)} must be of type {type_name}")
        if key == "stop" and not all(isinstance(item, str) for item in value):
            raise HttpError(500, 'option "stop" must be of an array of strings')
    integers = {key: int(overrides[key]) for key in _INTEGERS if key in overrides}
    options = {**model.parameters, **overrides, **integers}
    return {**options, "num_predict": -1} if options.get("num_predict") == 0 else options


def to_prompt(
    body: Mapping[str, Any], operation: Operation, model: Model, options: Mapping[str, Any], request: bytes
) -> Prompt:
    """Convert the body of a request to a prompt for this model."""
    think = body.get("think")
    prompt = Prompt(
        model=body.get("model", ""),
        operation=operation,
        messages=_chat_messages(body) if operation == "chat" else _generate_messages(body),
        tools=tuple(body.get("tools", ())),
        think=think,
        thinks=model.can("thinking") and think is not False,
        format=body.get("format") or None,
        options=options,
        raw=body.get("raw", False),
        stream=body.get("stream", True),
        request=request,
    )
    return prompt if prompt.raw else with_defaults(prompt, model, request)


def _chat_messages(body: Mapping[str, Any]) -> tuple[Message, ...]:
    return tuple(
        Message(
            **{
                **message,
                "role": message.get("role", "").lower(),
                "images": len(message.get("images", ())),
                "tool_calls": tuple(map(_call, message.get("tool_calls", ()))),
            }
        )
        for message in body.get("messages", ())
    )


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function", {})
    return ToolCall(function.get("name", ""), function.get("arguments", {}), call.get("id") or None)


def _generate_messages(body: Mapping[str, Any]) -> tuple[Message, ...]:
    system = (Message("system", body["system"]),) if body.get("system") else ()
    return (*system, Message("user", body.get("prompt", ""), images=len(body.get("images", ()))))
