"""Shared steps from a request to its reply: validate the body, find and load the model, get the reply, count tokens.

Ollama's API has its own rules for model names and load options, so its handlers use only a part of this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from mochi_stub.handlers import Encoder, Generation, Handler, Result, Routes, ScheduledResult, Stub
from mochi_stub.http import Headers, HttpResponse, Request
from mochi_stub.json_encoding import dumps
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.prompt import Message, Prompt, ToolCall, count_tokens
from mochi_stub.providers.body_validation import Check, read, snake_case
from mochi_stub.providers.prompt_evaluation import EvaluatedPrompt, evaluate_prompt
from mochi_stub.replies import embed, normalised
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Failure, HttpError, Reasoning, Reply, Text, ToolCalls, joined

ARGUMENT_PIECE = 16
JSON = b"application/json"
EVENTS = b"text/event-stream; charset=utf-8"
Tools: TypeAlias = "tuple[Mapping[str, Any], ...]"


class Api(NamedTuple):
    """API of one provider. Its paths begin with one of the prefixes.

    The arguments of `error_response` are a failure, IDs for the response, the request, and the details of an HttpError
    as keywords. `wrong_method` handles the HTTP methods for which a route has no handler.
    """

    prefixes: tuple[str, ...]
    routes: Routes
    error_response: Callable[..., HttpResponse]
    wrong_method: Handler


class EventEncoder:
    """Base class of encoders that encode one piece after the other. `start` returns earlier events."""

    content_type = EVENTS

    def start(self) -> str:
        return ""

    def piece(self, piece: Piece) -> str:
        raise NotImplementedError

    def chunk(self, pieces: list[Piece]) -> bytes:
        return (self.start() + "".join([self.piece(piece) for piece in pieces])).encode()


def checked(check: Check, handler: Callable[[Stub, Request, dict[str, Any]], Result]) -> Handler:
    """Return a handler that validates the request body and passes it to `handler`."""
    return lambda stub, request: handler(stub, request, read(request.body, check))


def read_query(request: Request, check: Check) -> dict[str, Any]:
    """Return the checked parameters of the query that are not empty. The texts of integers become numbers."""
    integers = re.compile(r"-?[0-9]{1,18}")
    fields = {name: int(text) if integers.fullmatch(text) else text for name, text in request.query.items() if text}
    query: dict[str, Any] = check(fields, ())
    return query


def refuse(status: int, message: str, **details: Any) -> Handler:
    """Return a handler that raises HttpError. The message can contain the placeholders `{method}` and `{path}`."""

    def handler(_stub: Stub, request: Request) -> Result:
        raise HttpError(status, message.format(method=request.method, path=request.path), **details)

    return handler


def usual_load(model: Model) -> LoadRequest:
    """Return the load settings for a request of an API that has no load options."""
    return LoadRequest(model, model.parameters, shift=model.shifts_context)


def find_declared(models: Iterable[Model], name: str, missing: HttpError) -> Model:
    """Return the model with this name, with or without the tag `:latest`. Raises `missing` for an unknown name."""
    by_name = {model.name: model for model in models}
    for candidate in (name, name.removesuffix(":latest"), f"{name}:latest"):
        if candidate in by_name:
            return by_name[candidate]
    raise missing


def list_models(stub: Stub) -> list[Model]:
    """Return the models that clients can list. Models whose names begin with `_` exist only for inheritance."""
    return [model for model in stub.models if not model.name.startswith("_")]


def generate(
    stub: Stub, model: Model, prompt: Prompt, request: Request, encoder: Callable[[EvaluatedPrompt], Encoder]
) -> ScheduledResult:
    """Return a result that loads the model and sends the reply to `prompt`. `encoder` creates the reply's encoder."""
    load = usual_load(model)

    def build_result(lease: Lease) -> Generation:
        evaluated = evaluate_prompt(stub, load, lease, with_defaults(prompt, model, request.body))
        return evaluated.generation(encoder(evaluated), evaluated.reply, prompt_tokens=evaluated.usage.input)

    return ScheduledResult(load, build_result)


def with_defaults(prompt: Prompt, model: Model, request: bytes = b"") -> Prompt:
    """Add the model's system message, parameters and thinking to a prompt, unless the request overrides them."""
    messages, thinks = prompt.messages, model.has_capability("thinking") and prompt.think is not False
    if model.system and not any(message.role == "system" for message in messages):
        messages = (Message("system", model.system), *messages)
    options = {**model.parameters, **prompt.options}
    return replace(prompt, messages=messages, thinks=thinks, options=options, request=request)


_SAME_NAMES = ("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty")
_OPTIONS = {
    **{name: name for name in _SAME_NAMES},
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens"), "num_predict"),
    "stop_sequences": "stop",
}


def options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling options of a request under Ollama's names.

    If the request has several fields that limit the tokens, the last of these fields applies.
    """
    found = {_OPTIONS.get(snake_case(name), ""): value for name, value in fields.items()}
    if stop := fields.get("stop"):
        found["stop"] = [stop] if isinstance(stop, str) else stop
    return {name: value for name, value in found.items() if name}


def blocks(reply: Reply) -> list[Piece]:
    """Return the contents of a reply in order. Adjacent texts of one kind are joined, and empty texts are omitted."""
    found: list[Piece] = []
    contents = [part for part in reply.parts if isinstance(part, (Reasoning, Text, ToolCalls))]
    for kind, group in groupby(contents, type):
        parts = list(group)
        found += [Piece(ToolCall, call, 0) for part in parts if isinstance(part, ToolCalls) for call in part.calls]
        text = "".join(joined(part.content) for part in parts if isinstance(part, (Reasoning, Text)))
        found += [Piece(kind, text, 0)] if text else []
    return found


def argument_pieces(call: ToolCall) -> list[str]:
    """Return the arguments of a tool call as JSON, split into pieces for streaming."""
    encoded = dumps(call.arguments)
    return [encoded[start : start + ARGUMENT_PIECE] for start in range(0, len(encoded), ARGUMENT_PIECE)]


def embed_text(stub: Stub, model: Model, text: str, name: str = "") -> tuple[list[float], int]:
    """Return the embedding of a text and its token count. `name` is the requested name of the model, if it differs.

    Raises HttpError if the configured reply is a failure.
    """
    reply = stub.resolve(Prompt(name or model.name, "embed", (Message("user", text),)))
    for part in reply.parts:
        if isinstance(part, Failure):
            raise HttpError(part.status, part.message, part.headers)
    vector = embed(text, model.embedding_length) if reply.embedding is None else list(reply.embedding)
    tokens = count_tokens(len(text), model.chars_per_token) if reply.usage.input is None else reply.usage.input
    return vector, tokens


def shorten_vector(vector: list[float], dimensions: int | None) -> list[float]:
    """Return the first `dimensions` values of a vector (default: all values), scaled to unit length."""
    return normalised(vector[:dimensions] if dimensions else vector)


def choose_tools(
    tools: Iterable[Mapping[str, Any]], required: bool, names: Iterable[str] | None = None
) -> tuple[Tools, Tools]:
    """Return the tools that the model may call, and the tools of which it must call one if `required` is true.

    `names` limits the required tools. Raises HttpError if the request does not offer a tool that it requires.
    """
    tools = tuple(tools)
    if not required:
        return tools, ()
    by_name = {tool["function"]["name"]: tool for tool in tools if tool["type"] == "function"}
    names = list(by_name if names is None else names)
    missing = [name for name in names if name not in by_name]
    if missing or not names:
        unknown = f"it offers no function {missing[0]}" if missing else "it offers no functions"
        raise HttpError(400, f"the request requires a tool call, but {unknown}", param="tool_choice")
    return tools, tuple(by_name[name] for name in names)


def function_tool(**fields: Any) -> dict[str, Any]:
    """Return a tool in the format of chat completions. Fields that are None are omitted."""
    return {"type": "function", "function": {name: value for name, value in fields.items() if value is not None}}


def headers_of(failure: Failure) -> Headers:
    """Return the response headers for a failure. Status 429 always includes the header `retry-after`."""
    headers = {name.lower(): text for name, text in failure.headers}
    if failure.status == 429:
        headers.setdefault("retry-after", "1")
    return tuple(
        (name.encode("latin-1", "replace"), text.encode("latin-1", "replace")) for name, text in headers.items()
    )


def json_response(value: Any, status: int = 200, headers: Headers = (), content_type: bytes = JSON) -> HttpResponse:
    return HttpResponse(status, dumps(value).encode(), content_type, headers)
