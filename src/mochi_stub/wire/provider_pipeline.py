"""From a validated request to its reply, for hosted providers: find the model, generate the reply, count tokens.

Ollama's wire shares the errors and the embeddings. It has its own rules for names, and a scheduler before the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple, TypeAlias

from mochi_stub.http.http_result import Encoder, Generation, Handler, HttpResponse, Request, Result, Routes, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.prompt import Message, Prompt, ToolCall, count_tokens, prompt_tokens
from mochi_stub.replies.chunks import Piece
from mochi_stub.replies.embedding import embed, normalised
from mochi_stub.replies.seeded_ids import SeededIds
from mochi_stub.replies.truncation import apply_stop_conditions
from mochi_stub.reply import Failure, Reasoning, Reply, Text, ToolCalls, joined
from mochi_stub.wire.body_validation import Check, Problem, read, snake_case
from mochi_stub.wire.json_encoding import dumps

DEFAULT_TAG = ":latest"
ARGUMENT_PIECE = 16
RETRY_AFTER = "1"
JSON = b"application/json"
EVENTS = b"text/event-stream; charset=utf-8"

Headers: TypeAlias = "tuple[tuple[bytes, bytes], ...]"


class HttpError(Exception):
    """A request that ends with an error. `details` are fields of the error that only some providers have."""

    def __init__(self, status: int, message: str, headers: tuple[tuple[str, str], ...] = (), **details: Any) -> None:
        super().__init__(status, message)
        self.failure = Failure(message, status, headers)
        self.details = details


def with_checked_body(check: Check, handler: Callable[[Stub, Request, dict[str, Any]], Result]) -> Handler:
    """Return the handler of a request that passes it the checked body."""
    return lambda stub, request: handler(stub, request, read(request.body, check))


def with_refusals(
    routes: Routes, others: Mapping[str, Handler], refusal: Callable[[HttpError | Problem, Stub, Request], HttpResponse]
) -> Routes:
    """Return the routes with refusals turned into answers. `others` handle all other methods of a path."""

    def answering(handler: Handler) -> Handler:
        def answer(stub: Stub, request: Request) -> Result:
            try:
                return handler(stub, request)
            except (HttpError, Problem) as error:
                return refusal(error, stub, request)

        return answer

    return {
        path: {method: answering(handler) for method, handler in {**others, **methods}.items()}
        for path, methods in routes.items()
    }


@dataclass(frozen=True)
class GenerationContext:
    """Everything that an encoder writes: the reply, the prompt, the model, the tokens, the IDs and times."""

    model: Model
    prompt: Prompt
    reply: Reply
    usage: Counts
    plan: SeededIds


class Counts(NamedTuple):
    """Token counts. `output` includes the `reasoning`."""

    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_creation: int


def find_declared(models: Sequence[Model], name: str, missing: HttpError) -> Model:
    """Return the model of that name, with or without the tag that Ollama's clients append. Raises `missing`."""
    for wanted in (name, name.removesuffix(DEFAULT_TAG), name + DEFAULT_TAG):
        for model in models:
            if model.name == wanted:
                return model
    raise missing


def list_models(models: Iterable[Model]) -> list[Model]:
    """Return the models that a list shows. Models whose name begins with `_` are only inherited from."""
    return [model for model in models if not model.name.startswith("_")]


def build_context(stub: Stub, model: Model, prompt: Prompt, request: Request) -> GenerationContext:
    """Generate the reply to the prompt. IDs and times are derived from the model's name and the request's body."""
    prompt = with_defaults(prompt, model, request.body)
    reply = apply_stop_conditions(stub.resolve(prompt), prompt.options, model.chars_per_token)
    plan = stub.seeded_ids(prompt.model.encode(errors="replace") + request.body)
    return GenerationContext(model, prompt, reply, count_usage(reply, prompt, model), plan)


def with_defaults(prompt: Prompt, model: Model, request: bytes = b"") -> Prompt:
    """Return the prompt with the model's own system message and parameters where the request has none."""
    messages = prompt.messages
    if model.system and not any(message.role == "system" for message in messages):
        messages = (Message("system", model.system), *messages)
    return replace(prompt, messages=messages, options={**model.parameters, **prompt.options}, request=request)


_SAME_NAMES = ("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty")
_OPTIONS = {
    **{name: name for name in _SAME_NAMES},
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens"), "num_predict"),
    "stop_sequences": "stop",
}


def options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling options among the fields of a request, under Ollama's names. The last token limit wins."""
    found = {_OPTIONS.get(snake_case(name), ""): value for name, value in given.items()}
    if stop := given.get("stop"):
        found["stop"] = [stop] if isinstance(stop, str) else stop
    return {name: value for name, value in found.items() if name}


def start_generation(context: GenerationContext, encoder: Encoder) -> Generation:
    """Return the reply as that encoder writes it."""
    noted = {"model": context.prompt.model, "prompt_tokens": context.usage.input}
    return Generation(context.reply, encoder, context.prompt.stream, noted)


def count_usage(reply: Reply, prompt: Prompt, model: Model) -> Counts:
    """Return the token counts of the reply. Counts that the reply does not state are derived from its length."""
    given, per_token = reply.usage, model.chars_per_token
    thought = count_tokens(len(reply.reasoning), per_token)
    return Counts(
        input=prompt_tokens(prompt, per_token) if given.input is None else given.input,
        output=count_tokens(generated_characters(reply), per_token) if given.output is None else given.output,
        reasoning=thought if given.reasoning is None else given.reasoning,
        cache_read=given.cache_read or 0,
        cache_creation=given.cache_creation or 0,
    )


def generated_characters(reply: Reply, encode: Callable[[Any], str] = dumps) -> int:
    """Return the number of characters that the model wrote: thinking, text, and its calls as name and JSON."""
    calls = sum(len(call.name) + len(encode(call.arguments)) for call in reply.tool_calls)
    return len(reply.reasoning) + len(reply.text) + calls


def blocks(reply: Reply) -> list[Piece]:
    """Return the contents of a reply in order. Neighbours of one kind are joined, empty contents are left out."""
    found: list[Piece] = []
    contents = [part for part in reply.parts if isinstance(part, (Reasoning, Text, ToolCalls))]
    for kind, run in groupby(contents, type):
        parts = list(run)
        found += [Piece(ToolCall, call, 0) for part in parts if isinstance(part, ToolCalls) for call in part.calls]
        text = "".join(joined(part.content) for part in parts if isinstance(part, (Reasoning, Text)))
        found += [Piece(kind, text, 0)] if text else []
    return found


def argument_pieces(call: ToolCall) -> list[str]:
    """Return the arguments of a call as JSON, in the pieces in which they are streamed."""
    whole = dumps(call.arguments)
    return [whole[at : at + ARGUMENT_PIECE] for at in range(0, len(whole), ARGUMENT_PIECE)]


def embed_text(stub: Stub, model: Model, name: str, text: str) -> tuple[list[float], int]:
    """Return the vector of a text as the model of that name makes it, and the tokens of the text.

    Raises:
        Refused: The model fails.
    """
    reply = stub.resolve(Prompt(name, "embed", (Message("user", text),)))
    for part in reply.parts:
        if isinstance(part, Failure):
            raise HttpError(part.status, part.message, part.headers)
    vector = embed(text, model.embedding_length) if reply.embedding is None else list(reply.embedding)
    tokens = count_tokens(len(text), model.chars_per_token) if reply.usage.input is None else reply.usage.input
    return vector, tokens


def shorten_vector(vector: list[float], dimensions: int | None) -> list[float]:
    """Return the vector at unit length, cut to `dimensions` numbers."""
    return normalised(vector[:dimensions] if dimensions else vector)


def function_tool(**fields: Any) -> dict[str, Any]:
    """Return a tool in the form of chat completions, with those fields that are not None."""
    return {"type": "function", "function": {name: value for name, value in fields.items() if value is not None}}


def headers_of(failure: Failure) -> Headers:
    """Return the headers of a failure, with `retry-after` on a 429."""
    given = {name.lower(): value for name, value in failure.headers}
    if failure.status == 429:
        given.setdefault("retry-after", RETRY_AFTER)
    return tuple(
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in given.items()
    )


def json_answer(value: Any, status: int = 200, headers: Headers = (), content_type: bytes = JSON) -> HttpResponse:
    return HttpResponse(status, dumps(value).encode(), content_type, headers)
