"""Schemas of Ollama's requests, their error messages, and the conversion of requests to prompts."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from typing import Any

from mochi_stub.handlers import Handler, Result, Stub
from mochi_stub.http import Request
from mochi_stub.json_encoding import JsonObject, quoted
from mochi_stub.models import Model
from mochi_stub.prompt import Message, Operation, Prompt, ToolCall
from mochi_stub.providers.body_validation import (
    Check,
    Location,
    ValidationError,
    integer,
    kind_of,
    read,
    schema,
)
from mochi_stub.providers.provider_pipeline import with_defaults
from mochi_stub.reply import HttpError

_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)([^\d.]*)", re.ASCII)
_LONGEST = 2**63 / 1e9  # seconds: Go counts nanoseconds as a signed 64-bit integer
_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_THINK_VALUES = '"high", "medium", "low", "max", true, or false'
_THINK_LEVELS = ("low", "medium", "high", "max")
_NO_OBJECT = "Value looks like object, but can't find closing '}' symbol"
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_KINDS = {"boolean": "bool", "integer": "number", "decimal": "number"}
_TYPES = {"boolean": "bool", "integer": "int", "object": "map[string]interface {}"}
_OWNERS = {
    "tools": "Tool",
    "tools.function": "ToolFunction",
    "tools.function.parameters": "ToolFunctionParameters",
    "tools.function.parameters.properties": "ToolFunctionParameters",
}
"""Types that Ollama's messages name for the fields below a path.

For other paths, they name the type of the request.
"""


def _duration(value: Any, _location: Location) -> float:
    """Convert a number or a text such as "1h30m" to seconds.

    Negative durations become infinite. Raises HttpError.
    """
    match value:
        case bool():
            raise HttpError(400, "Unsupported type: 'bool'")
        case int() | float():
            return inf if value < 0 else float(value)
        case str():
            return _parsed_duration(value)
        case dict():
            raise HttpError(400, "Unsupported type: 'map[string]interface {}'")
    raise HttpError(400, "Unsupported type: '[]interface {}'")


def _parsed_duration(text: str) -> float:
    if text in ("0", "+0", "-0"):
        return 0.0
    is_negative = text.startswith("-")
    unsigned = text
    if text.startswith(("-", "+")):
        unsigned = text[1:]
    seconds = _seconds(unsigned)
    if seconds is None:
        raise HttpError(400, f"time: invalid duration {quoted(text)}")
    for _, unit in _DURATION.findall(unsigned):
        if unit not in _UNITS:
            problem = f"unknown unit {quoted(unit)}" if unit else "missing unit"
            raise HttpError(400, f"time: {problem} in duration {quoted(text)}")
    if is_negative and seconds:
        return inf
    return seconds


def _seconds(duration: str) -> float | None:
    """Return the seconds of numbers with units.

    Return None if the text has another form, or the duration is too long. Unknown units count as
    the shortest one.
    """
    matched = ""
    seconds = 0.0
    for number, unit in _DURATION.findall(duration):
        matched += f"{number}{unit}"
        seconds += float(number) * _UNITS.get(unit, _UNITS["ns"])
    if not matched or matched != duration or seconds > _LONGEST:
        return None
    return seconds


def with_checked_body(
    request_type: str, check: Check, handler: Callable[[Stub, Request, JsonObject], Result]
) -> Handler:
    """Return a handler that validates the request body, and passes the body that `check` returns
    to `handler`.

    `request_type` is Ollama's name for the type of the body. The returned handler raises HttpError
    with status 400 for a missing or invalid body.
    """

    def handle(stub: Stub, request: Request) -> Result:
        if not request.body.strip():
            raise HttpError(400, "missing request body")
        try:
            body = read(request.body, check)
        except ValidationError as error:
            message = f"json: cannot unmarshal {_mismatch(request_type, error)}"
            raise HttpError(400, message) from error
        return handler(stub, request, body)

    return handle


def _mismatch(request_type: str, error: ValidationError) -> str:
    """Describe an error as Ollama does: the found value, and the Go type that it does not fit."""
    kind = kind_of(error.found)
    expected = _TYPES.get(error.type_name, error.type_name)
    found = _KINDS.get(kind, kind)
    if expected == "int" and kind in ("integer", "decimal"):
        found = f"number {error.found}"
    steps = []
    for step in error.location:
        if isinstance(step, str):
            steps.append(step)
    if not steps:
        return f"{found} into Go value of type api.{request_type}"
    owner = request_type
    for length in range(1, len(steps)):
        parent = ".".join(steps[:length])
        owner = _OWNERS.get(parent, owner)
    path = ".".join(steps)
    return f"{found} into Go struct field {owner}.{path} of type {expected}"


def _typed_check(type_name: str, literal: Any) -> Check:
    """Build a check whose errors name the type of the value as Ollama does.

    Errors of a value inside this one keep their type.
    """
    check = schema(literal)

    def typed_check(value: Any, location: Location) -> Any:
        try:
            return check(value, location)
        except ValidationError as error:
            if error.location == location:
                error.type_name = type_name
            raise

    return typed_check


def _mapping(item: Check) -> Check:
    """Build a check for an object with values that match `item` or are null.

    The check raises HttpError if the value is not an object. An error of a value in it has the
    location of the object, because Ollama does not name the key.
    """

    def check(value: Any, location: Location) -> Any:
        if not isinstance(value, dict):
            raise HttpError(400, _NO_OBJECT)
        entries = {}
        for key, entry in value.items():
            entries[key] = None if entry is None else item(entry, location)
        return entries

    return check


def _image(value: Any, location: Location) -> Any:
    """Check base64 text without decoding it.

    Raises HttpError with the offset of the invalid character.
    """
    check = _typed_check("api.ImageData", str)
    encoded: str = check(value, location)
    text = encoded.replace("\n", "").replace("\r", "")
    if _BASE64.fullmatch(text):
        return value
    offset = len(text) // 4 * 4
    invalid = re.search("[^A-Za-z0-9+/=]", text)
    if invalid:
        offset = invalid.start()
    raise HttpError(400, f"illegal base64 data at input byte {offset}")


def _think(value: Any, _location: Location) -> bool | str:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise HttpError(400, f"think must be a boolean or string ({_THINK_VALUES})")
    if value not in _THINK_LEVELS:
        raise HttpError(400, f"invalid think value: {quoted(value)} (must be {_THINK_VALUES})")
    return value


def _property(value: Any, location: Location) -> Any:
    # `_PROPERTY` refers to this function, because it contains itself.
    return _PROPERTY(value, location)


def _parameters(value: Any, location: Location) -> Any:
    """Check the parameters of a function, and return them with their unknown keywords."""
    _PARAMETERS(value, location)
    return value


_INTEGER = integer(-(2**63))
_STRINGS = _typed_check("[]string", [str])
_IMAGES = _typed_check("[]api.ImageData", [_image])
_FUNCTION_CALL = {"name": str, "arguments": _mapping(schema(object))}
_TOOL_CALL = _typed_check(
    "api.ToolCall", {"id": str, "function": _typed_check("api.ToolCallFunction", _FUNCTION_CALL)}
)
_MESSAGE = {
    "role": str,
    "content": str,
    "thinking": str,
    "images": _IMAGES,
    "tool_name": str,
    "tool_call_id": str,
    "tool_calls": _typed_check("[]api.ToolCall", [_TOOL_CALL]),
}
_MESSAGES = _typed_check("[]api.Message", [_typed_check("api.Alias", _MESSAGE)])


def _types(value: Any, location: Location) -> Any:
    if isinstance(value, str):
        return value
    return _STRINGS(value, location)


_PROPERTY = _typed_check(
    "api.ToolProperty",
    {
        "anyOf": _typed_check("[]api.ToolProperty", [_property]),
        "description": str,
        "type": _types,
        "enum": _typed_check("[]interface {}", [object]),
        "properties": _mapping(_property),
        "required": _STRINGS,
    },
)
_PARAMETER_FIELDS = {"type": str, "required": _STRINGS, "properties": _mapping(_property)}
_PARAMETERS = _typed_check("api.ToolFunctionParameters", _PARAMETER_FIELDS)
_FUNCTION = _typed_check(
    "api.ToolFunction", {"name": str, "description": str, "parameters": _parameters}
)
_TOOL = _typed_check("api.Tool", {"type": str, "items": object, "function": _FUNCTION})
_LOAD_FIELDS = {"model": str, "keep_alive": _duration, "options": dict}
_COMMON_FIELDS = {
    **_LOAD_FIELDS,
    "stream": bool,
    "format": object,
    "think": _think,
    "truncate": bool,
    "shift": bool,
    "logprobs": bool,
    "top_logprobs": _INTEGER,
}
CHAT = schema(
    {**_COMMON_FIELDS, "messages": _MESSAGES, "tools": _typed_check("api.Tools", [_TOOL])}
)
GENERATE = schema(
    {
        **_COMMON_FIELDS,
        "prompt": str,
        "suffix": str,
        "system": str,
        "template": str,
        "context": _typed_check("[]int", [_INTEGER]),
        "raw": bool,
        "images": _IMAGES,
    }
)
SHOW = schema({"model": str, "name": str, "verbose": bool})
EMBED = schema({**_LOAD_FIELDS, "input": object, "truncate": bool, "dimensions": _INTEGER})
EMBEDDINGS = schema({**_LOAD_FIELDS, "prompt": str})
DELETE = PULL = schema({"model": str, "name": str, "stream": bool})
COPY = schema({"source": str, "destination": str})
_CREATE = schema(
    {
        "model": str,
        "name": str,
        "from": str,
        "template": str,
        "system": str,
        "stream": bool,
        "parameters": dict,
    }
)


def create_fields(value: Any, location: Location) -> Any:
    """Check the body of `create`.

    Return the known fields, and the unknown ones that are not empty, which the handler refuses.
    """
    known = _CREATE(value, location)
    unknown = {}
    for name, field in value.items():
        if field and name not in known:
            unknown[name] = field
    return {**known, **unknown}


_INTEGERS = (
    "num_ctx",
    "num_batch",
    "num_gpu",
    "main_gpu",
    "num_thread",
    "num_keep",
    "num_predict",
    "draft_num_predict",
    "seed",
    "top_k",
    "repeat_last_n",
)
_FLOATS = (
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_OPTION_TYPES: dict[str, tuple[str, set[type]]] = {
    **dict.fromkeys(_INTEGERS, ("integer", {int, float})),
    **dict.fromkeys(_FLOATS, ("float32", {int, float})),
    "use_mmap": ("boolean", {bool}),
    "stop": ("array", {list}),
}


def effective_options(model: Model, requested: JsonObject) -> JsonObject:
    """Return the model's parameters, overridden by the requested options that are not null.

    Requested values of integer options are truncated. A `num_predict` of 0 becomes -1, because both
    mean no limit.

    Raises HttpError (500) for a wrong option type.
    """
    overrides = {key: value for key, value in requested.items() if value is not None}
    for key, value in overrides.items():
        _check_option(key, value)
    for key, value in model.parameters.items():  # `create` stores parameters of any type
        is_used = key not in overrides
        if is_used and key != "stop":  # the `stop` of a model can also be a text
            _check_option(key, value)
    options = {**model.parameters, **overrides}
    for key in _INTEGERS:
        if key in overrides:
            options[key] = int(overrides[key])
    if options.get("num_predict") == 0:
        options["num_predict"] = -1
    return options


def _check_option(key: str, value: Any) -> None:
    if key not in _OPTION_TYPES:
        return
    type_name, types = _OPTION_TYPES[key]
    if type(value) not in types:
        raise HttpError(500, f"option {quoted(key)} must be of type {type_name}")
    if key != "stop":
        return
    for sequence in value:
        if not isinstance(sequence, str):
            raise HttpError(500, 'option "stop" must be of an array of strings')


def to_prompt(
    body: JsonObject,
    operation: Operation,
    model: Model,
    options: JsonObject,
    request: bytes,
) -> Prompt:
    """Convert the body of a request to a prompt for this model.

    `request` is the unparsed body. A raw prompt does not have the model's system message.
    """
    if operation == "chat":
        messages = tuple(map(_chat_message, body.get("messages", ())))
    else:
        messages = _generate_messages(body)
    think = body.get("think")
    prompt = Prompt(
        model=body.get("model", ""),
        operation=operation,
        messages=messages,
        tools=tuple(body.get("tools", ())),
        requested_thinking=think,
        includes_reasoning=model.has_capability("thinking") and think is not False,
        format=body.get("format") or None,
        options=options,
        raw=body.get("raw", False),
        stream=body.get("stream", True),
        request=request,
    )
    if prompt.raw:
        return prompt
    return with_defaults(prompt, model, request)


def _generate_messages(body: JsonObject) -> tuple[Message, ...]:
    text = body.get("prompt", "")
    images = body.get("images", ())
    user = Message("user", text, images=len(images))
    if not body.get("system"):
        return (user,)
    system = Message("system", body["system"])
    return (system, user)


def _chat_message(message: JsonObject) -> Message:
    calls = []
    for entry in message.get("tool_calls", ()):
        function = entry.get("function", {})
        name = function.get("name", "")
        arguments = function.get("arguments", {})
        call = ToolCall(name, arguments, entry.get("id") or None)
        calls.append(call)
    images = message.get("images", ())
    fields = {
        **message,
        "role": message.get("role", "").lower(),
        "images": len(images),
        "tool_calls": tuple(calls),
    }
    return Message(**fields)
