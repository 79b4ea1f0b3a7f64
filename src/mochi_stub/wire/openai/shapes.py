"""What OpenAI's requests may hold, and how their messages become a prompt's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from mochi_stub.catalogue import Model
from mochi_stub.prompt import Message, ToolCall
from mochi_stub.wire.fields import (
    ByKind,
    Check,
    ListOf,
    Number,
    Object,
    OneOf,
    Tagged,
    Whole,
    anything,
    flag,
    mapping,
    string,
)
from mochi_stub.wire.openai.errors import Refused

_TEXT: Check = Object({"text": string}, ("text",))
_PARTS: Check = ListOf(
    Tagged(
        "type",
        {
            "text": _TEXT,
            "image_url": Object({"image_url": Object({"url": string}, ("url",))}, ("image_url",)),
            "input_audio": Object({"input_audio": mapping}, ("input_audio",)),
            "file": Object({"file": mapping}, ("file",)),
            "refusal": Object({"refusal": string}, ("refusal",)),
        },
    )
)
CONTENT: Check = ByKind({"string": string, "array": _PARTS})
_FUNCTION: Check = Object({"name": string, "description": string, "parameters": mapping, "strict": flag}, ("name",))
_CALL: Check = Object(
    {"id": string, "type": string, "function": Object({"name": string, "arguments": string}, ("name",))}, ("function",)
)
_ASSISTANT: dict[str, Check] = {
    "content": CONTENT,
    "reasoning": string,
    "reasoning_content": string,
    "tool_calls": ListOf(_CALL),
}
_SAID: Check = Object({"content": CONTENT}, ("content",))
_MESSAGE: Check = Tagged(
    "role",
    {
        "system": _SAID,
        "assistant": Object(_ASSISTANT),
        "user": _SAID,
        "function": Object({"content": CONTENT, "name": string}, ("name",)),
        "tool": Object({"content": CONTENT, "tool_call_id": string}, ("content", "tool_call_id")),
        "developer": _SAID,
    },
)
_FORMAT: Check = Tagged(
    "type",
    {
        "text": Object({}),
        "json_object": Object({}),
        "json_schema": Object(
            {"json_schema": Object({"name": string, "schema": mapping}, ("name",))}, ("json_schema",)
        ),
    },
)
_STOP: Check = ByKind({"string": string, "array": ListOf(string)})
EFFORT: Check = OneOf(("none", "minimal", "low", "medium", "high", "xhigh", "max"))
_STREAM: dict[str, Check] = {"stream": flag, "stream_options": Object({"include_usage": flag})}
_SAMPLING: dict[str, Check] = {
    "temperature": Number(0, 2),
    "top_p": Number(0, 1),
    "frequency_penalty": Number(-2, 2),
    "presence_penalty": Number(-2, 2),
    "seed": Whole(-(2**63)),
    "stop": _STOP,
    "n": Whole(1, 128),
}
CHAT: Check = Object(
    {
        "model": string,
        "messages": ListOf(_MESSAGE, least=1),
        "tools": ListOf(
            Tagged("type", {"function": Object({"function": _FUNCTION}, ("function",)), "custom": mapping})
        ),
        "tool_choice": anything,
        "max_tokens": Whole(1),
        "max_completion_tokens": Whole(1),
        "response_format": _FORMAT,
        "reasoning_effort": EFFORT,
        **_STREAM,
        **_SAMPLING,
    },
    ("model", "messages"),
)
_TOKENS: Check = ListOf(Whole(0))


def _prompts(value: Any, where: Any) -> Any:
    """A text, tokens, or a list of either."""
    items = value if isinstance(value, list) else []
    inner: Check = _TOKENS if items and isinstance(items[0], list) else string
    whole: Check = _TOKENS if items and isinstance(items[0], int) else ListOf(inner, least=1)
    return ByKind({"string": string, "array": whole})(value, where)


COMPLETION: Check = Object(
    {
        "model": string,
        "prompt": _prompts,
        "max_tokens": Whole(0),
        "echo": flag,
        **_STREAM,
        **_SAMPLING,
    },
    ("model",),
)
EMBEDDING: Check = Object(
    {
        "model": string,
        "input": _prompts,
        "encoding_format": OneOf(("float", "base64")),
        "dimensions": Whole(1),
    },
    ("model", "input"),
)


def texts(value: Any) -> list[str]:
    """A text, tokens, or a list of either, as a list of texts; a token shows as its number."""
    items = value if isinstance(value, list) and not all(isinstance(one, int) for one in value) else [value]
    return [one if isinstance(one, str) else " ".join(map(str, one)) for one in items]


def messages(given: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    return tuple(_message(message) for message in given)


def _message(message: Mapping[str, Any]) -> Message:
    content, images = said(message.get("content", ""))
    return Message(
        role={"developer": "system", "function": "tool"}.get(message["role"], message["role"]),
        content=content,
        thinking=message.get("reasoning_content") or message.get("reasoning", ""),
        images=images,
        tool_calls=tuple(_call(call) for call in message.get("tool_calls", ())),
        tool_name=message.get("name", ""),
        tool_call_id=message.get("tool_call_id", ""),
    )


def said(content: Any) -> tuple[str, int]:
    """The text of a message's parts, a line each, and the number of its images."""
    if isinstance(content, str):
        return content, 0
    words = [part.get("text") or part.get("refusal") for part in content]
    return "\n".join(filter(None, words)), sum(part["type"] in ("image_url", "input_image") for part in content)


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call["function"]
    return ToolCall(function["name"], arguments(function.get("arguments", "")), call.get("id"))


def arguments(text: str) -> Mapping[str, Any]:
    """The arguments that a model wrote; models write wrong JSON too, which is kept as it is."""
    try:
        value = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"arguments": text}


def options(body: Mapping[str, Any], budget: int | None) -> dict[str, Any]:
    """Sampling options under Ollama's names; `budget` is the number of tokens that may be generated."""
    names = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed")
    found = {name: body[name] for name in names if name in body}
    stop = body.get("stop")
    if stop:
        found["stop"] = [stop] if isinstance(stop, str) else stop
    return found if budget is None else {**found, "num_predict": budget}


def check_tools(model: Model, tools: object) -> None:
    """Raises Refused where the model cannot call any."""
    if tools and not model.can("tools"):
        raise Refused(400, "tools is not supported in this model.", param="tools", code="unsupported_parameter")


def check_chat(model: Model, endpoint: str) -> None:
    """Raises Refused where the model does not answer at all."""
    if not model.can("completion"):
        kind = "completion" if endpoint == "v1/completions" else "chat"
        words = f"This is not a {kind} model and thus not supported in the {endpoint} endpoint."
        raise Refused(404, words, param="model")
