"""Schemas of OpenAI's requests, error responses, and the conversion of messages and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from mochi_stub.handlers import Stub
from mochi_stub.http import Headers, HttpResponse
from mochi_stub.json_encoding import JsonObject
from mochi_stub.models import Model
from mochi_stub.prompt import Message, ToolCall
from mochi_stub.providers import provider_pipeline as pipeline
from mochi_stub.providers.body_validation import (
    Check,
    Location,
    Schema,
    integer,
    schema,
    string_or,
    tagged,
)
from mochi_stub.providers.provider_pipeline import Tools, choose_tools
from mochi_stub.reply import Failure, HttpError

_RATE_LIMITS = (
    (b"x-ratelimit-limit-requests", b"60"),
    (b"x-ratelimit-remaining-requests", b"0"),
    (b"x-ratelimit-reset-requests", b"1s"),
)
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}


def error_response(failure: Failure, *_: object, **details: Any) -> HttpResponse:
    body = {"error": failure_error(failure, **details)}
    headers = pipeline.headers_of(failure)
    if failure.status == 429 and not _has_rate_limits(headers):
        headers = (*_RATE_LIMITS, *headers)
    return pipeline.json_response(body, failure.status, headers)


def _has_rate_limits(headers: Headers) -> bool:
    return any(name.startswith(b"x-ratelimit-") for name, _ in headers)


def failure_error(failure: Failure, **details: Any) -> JsonObject:
    """Return the error object for a response body or a stream event."""
    if failure.status == 429:
        kind = "requests"
    elif failure.status >= 500:
        kind = "server_error"
    else:
        kind = "invalid_request_error"
    return {
        "message": failure.message,
        "type": kind,
        "param": None,
        "code": _CODES.get(failure.status),
        **details,
    }


def find_model(stub: Stub, name: str | None, capability: str) -> Model:
    """Return the model with this name. If it is None, return the first listed model with the
    capability.

    The named model may lack the capability. Raises HttpError for no model.
    """
    if name is None:
        for model in pipeline.list_models(stub):
            if model.has_capability(capability):
                return model
        raise HttpError(400, "you must provide a model parameter")
    missing = HttpError(404, f"The model `{name}` does not exist or you do not have access to it.")
    return pipeline.find_model(stub.models, name, missing)


TEXT = {"text!": str}
_PARTS = {
    "text": TEXT,
    "image_url": {"image_url!": {"url!": str}},
    "input_audio": {"input_audio!": dict},
    "file": {"file!": dict},
    "refusal": {"refusal!": str},
}
_CONTENT = string_or([tagged("type", _PARTS)])
_FUNCTION = {"name!": str, "description": str, "parameters": dict, "strict": bool}
_CALLS = {
    "function": {"id": str, "function!": {"name!": str, "arguments": str}},
    "custom": {"id": str, "custom!": {"name!": str, "input!": str}},
}
_MESSAGE = {
    "system": {"content!": _CONTENT},
    "assistant": {
        "content": _CONTENT,
        "reasoning": str,
        "reasoning_content": str,
        "tool_calls": [tagged("type", _CALLS, default="function")],
    },
    "user": {"content!": _CONTENT},
    "function": {"content": _CONTENT, "name!": str},
    "tool": {"content!": _CONTENT, "tool_call_id!": str},
    "developer": {"content!": _CONTENT},
}
_FORMAT = {
    "text": {},
    "json_object": {},
    "json_schema": {"json_schema!": {"name!": str, "schema": dict}},
}
NAMED = {"name!": str}
ALLOWED = {
    "mode!": ("auto", "required"),
    "tools!": [{"type!": str, "name": str, "function": NAMED}],
}
EFFORT = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_COMMON = {
    "stream": bool,
    "stream_options": {"include_usage": bool},
    "temperature": float,
    "top_p": float,
    "frequency_penalty": float,
    "presence_penalty": float,
    "seed": float,
    "stop": string_or([str]),
    "n": integer(1, 128),
}


def tool_choice(function: Any, allowed: Any) -> Check:
    """Build the check of the field `tool_choice`.

    Choices of tools that OpenAI runs itself are not checked.
    """
    check_mode = schema(("none", "auto", "required"))
    check_object = tagged("type", {"function": function, "allowed_tools": allowed}, others=dict)

    def check(value: Any, location: Location) -> Any:
        if isinstance(value, str):
            return check_mode(value, location)
        return check_object(value, location)

    return check


CHAT = schema(
    {
        "model": str,
        "messages!": [tagged("role", _MESSAGE), ...],
        "tools": [tagged("type", {"function": {"function!": _FUNCTION}, "custom": dict})],
        "tool_choice": tool_choice({"function!": NAMED}, {"allowed_tools!": ALLOWED}),
        "max_tokens": integer(1),
        "max_completion_tokens": integer(1),
        "response_format": tagged("type", _FORMAT),
        "reasoning_effort": EFFORT,
        "logprobs": bool,
        "top_logprobs": integer(0, 20),
        **_COMMON,
    }
)


def _prompts(value: Any, location: Location) -> Any:
    """Validate a prompt: a text, an array of token ids, an array of texts, or an array of token
    arrays.
    """
    first = None
    if isinstance(value, list) and value:
        first = value[0]
    tokens = [integer(0)]
    items: Schema
    if isinstance(first, int):
        items = tokens
    elif isinstance(first, list):
        items = [tokens, ...]
    else:
        items = [str, ...]
    check = string_or(items)
    return check(value, location)


COMPLETION = schema(
    {
        "model": str,
        "prompt": _prompts,
        "echo": bool,
        "max_tokens": integer(0),
        "logprobs": integer(0, 5),
        **_COMMON,
    }
)
EMBEDDING = schema(
    {
        "model": str,
        "input!": _prompts,
        "encoding_format": ("float", "base64"),
        "dimensions": integer(1),
    }
)


def texts(value: Any) -> list[str]:
    """Convert a prompt to a list of texts.

    An array of token IDs becomes a text that contains the IDs as numbers.
    """
    if isinstance(value, str):
        return [value]
    if all(isinstance(item, int) for item in value):
        return [_text_of_tokens(value)]
    found = []
    for item in value:
        text = item
        if not isinstance(item, str):
            text = _text_of_tokens(item)
        found.append(text)
    return found


def _text_of_tokens(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))


_ROLES = {"developer": "system", "function": "tool"}


def to_message(message: JsonObject) -> Message:
    content, images = text_and_images(message.get("content", ""))
    calls = []
    for entry in message.get("tool_calls", ()):
        call = _tool_call(entry)
        calls.append(call)
    role: str = message["role"]
    thinking = message.get("reasoning_content") or message.get("reasoning", "")
    return Message(
        role=_ROLES.get(role, role),
        content=content,
        thinking=thinking,
        images=images,
        tool_calls=tuple(calls),
        tool_name=message.get("name", ""),
        tool_call_id=message.get("tool_call_id", ""),
    )


def _tool_call(entry: JsonObject) -> ToolCall:
    """Return a call of an earlier message. The argument of a custom tool is its `input`."""
    call_id = entry.get("id")
    if entry["type"] == "custom":
        custom = entry["custom"]
        return ToolCall(custom["name"], {"input": custom["input"]}, call_id)
    function = entry["function"]
    parsed = arguments(function.get("arguments", ""))
    return ToolCall(function["name"], parsed, call_id)


def text_and_images(content: Any) -> tuple[str, int]:
    """Return the text of a message, with a line for each part, and the number of its images."""
    if isinstance(content, str):
        return content, 0
    lines = []
    images = 0
    for part in content:
        text = part.get("text") or part.get("refusal")
        if text:
            lines.append(text)
        if part["type"] in ("image_url", "input_image"):
            images += 1
    return "\n".join(lines), images


def arguments(text: str) -> JsonObject:
    """Parse the arguments of a tool call.

    Text that is not a JSON object becomes `{"arguments": text}`.
    """
    if not text:
        return {}
    unparsed = {"arguments": text}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return unparsed
    if isinstance(value, dict):
        return value
    return unparsed


def reply_format(kind: str | None, json_schema: JsonObject) -> Any:
    """Return the requested reply format: a JSON schema, `"json"` or None."""
    if kind == "json_schema":
        return json_schema.get("schema", {})
    if kind == "json_object":
        return "json"
    return None


def thinking(effort: str | None, summary: str | None = None) -> bool | str | None:
    """Return the value of `Prompt.requested_thinking`.

    A request without an effort enables thinking if it wants a summary of it.
    """
    if effort == "none":
        return False
    if effort:
        return effort
    if summary:
        return True
    return None


def chat_model(stub: Stub, body: JsonObject, endpoint: str) -> Model:
    """Return the requested model, or the first one for text generation.

    Raises HttpError if it does not exist, or does not support text generation or requested tools.
    """
    model = find_model(stub, body.get("model"), "completion")
    if not model.has_capability("completion"):
        kind = "completion" if endpoint == "v1/completions" else "chat"
        message = f"This is not a {kind} model and thus not supported in the {endpoint} endpoint."
        raise HttpError(404, message, param="model", code=None)
    if body.get("tools") and not model.has_capability("tools"):
        raise HttpError(
            400,
            "tools is not supported in this model.",
            param="tools",
            code="unsupported_parameter",
        )
    return model


def select_tools(body: JsonObject, tools: Sequence[JsonObject]) -> tuple[Tools, Tools]:
    """Return the tools that the model may call, and the tools of which it must call one.

    `tools` are the tools of the request in the format of chat completions.

    A choice of tools other than functions requires no call. If `allowed_tools` lists only such
    tools, both are empty. Raises HttpError if the choice names a function that the request does not
    offer, or requires a call although the request has no tools.
    """
    choice = body.get("tool_choice")
    if not isinstance(choice, Mapping):
        types = [tool["type"] for tool in body.get("tools", ())]
        others = [kind for kind in types if kind != "function"]
        return choose_tools(tools, choice or "auto", others=others)
    kind = choice["type"]
    if kind not in ("function", "allowed_tools"):
        return choose_tools(tools, kind)
    nested = choice.get(kind, {})  # only in chat completions
    details = {**choice, **nested}
    if kind == "function":
        return choose_tools(tools, kind, [details["name"]])
    names = []
    for tool in details["tools"]:
        if tool["type"] == "function":
            function = tool.get("function", tool)
            names.append(function.get("name"))
    if not names:
        return (), ()
    _, allowed = choose_tools(tools, "required", names)
    if details["mode"] == "required":
        return allowed, allowed
    return allowed, ()
