"""Shared steps from a request to its reply: find and load the model, truncate the prompt, get the
reply, count tokens.

As in Ollama, the oldest messages of a prompt that is too long are removed first, except system
messages. If the last message alone is too long, its text is shortened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import inf
from typing import Any, NamedTuple, TypeAlias

from mochi_stub.handlers import Encoder, Generation, Handler, Result, Routes, Stub
from mochi_stub.http import Headers, HttpResponse, Request
from mochi_stub.json_encoding import JsonObject, dumps
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.prompt import (
    IMAGE_TOKENS,
    Message,
    Prompt,
    ToolCall,
    counted_text,
    counted_text_of_message,
    prompt_tokens,
    render,
    render_message,
    to_tokens,
)
from mochi_stub.providers.body_validation import snake_case
from mochi_stub.recorded_reply import RecordedFormat
from mochi_stub.replies import SeededIds, embed, normalised
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import (
    Choice,
    Content,
    Cut,
    Failure,
    Finish,
    HttpError,
    Part,
    Reasoning,
    Reply,
    Text,
    ToolCalls,
    joined,
)

ARGUMENT_PIECE = 16
NUM_KEEP = 4
JSON = b"application/json"
EVENTS = b"text/event-stream; charset=utf-8"
Tools: TypeAlias = "tuple[Mapping[str, Any], ...]"


class Api(NamedTuple):
    """API of one provider. Its paths begin with one of the prefixes.

    Attributes:
        error_response: Function that builds the response to a failure. Its arguments are the
            failure, IDs for the response, the request, and the details of an HttpError as keywords.
        wrong_method: Handler of the HTTP methods for which a route has no handler. None means a 405
            in plain text.
        recorded: Formats of recorded responses by the ending of their path.
        client_marks: Names of headers or query parameters that only clients of this API send. They
            select the API if several APIs have the same path.
        headers: Function that returns the headers of all responses.
    """

    prefixes: tuple[str, ...]
    routes: Routes
    error_response: Callable[..., HttpResponse]
    wrong_method: Handler | None = None
    recorded: Mapping[str, RecordedFormat] = {}
    client_marks: frozenset[str] = frozenset()
    headers: Callable[[Stub, Request], Headers] = lambda _stub, _request: ()


class EventEncoder:
    """Base class of encoders that encode one piece after the other."""

    content_type = EVENTS

    def start(self) -> str:
        """Return the beginning of the stream, or "" if it was returned before."""
        return ""

    def piece(self, piece: Piece) -> str:
        raise NotImplementedError

    def chunk(self, pieces: list[Piece]) -> bytes:
        opening = self.start()
        encoded = "".join([self.piece(piece) for piece in pieces])
        return (opening + encoded).encode()


def refuse(status: int, message: str, **details: Any) -> Handler:
    """Return a handler that raises HttpError.

    The message can contain the placeholders `{method}` and `{path}`.
    """

    def handler(_stub: Stub, request: Request) -> Result:
        text = message.format(method=request.method, path=request.path)
        raise HttpError(status, text, **details)

    return handler


_TOO_LONG = (
    "the prompt is longer than the context length currently available to the model; shorten the "
    "prompt, adjust the context length in settings, or use a model with a longer context length"
)


class RefusedPrompt(HttpError):
    """Ollama's llama-server refuses the prompt."""


def _refused_length(tokens: int, context: int) -> RefusedPrompt:
    message = (
        f"request ({tokens} tokens) exceeds the available context size ({context} tokens), try "
        "increasing it"
    )
    error = {
        "code": 400,
        "message": message,
        "type": "exceed_context_size_error",
        "n_prompt_tokens": tokens,
        "n_ctx": context,
    }
    return RefusedPrompt(400, dumps({"error": error}))


class FittedPrompt(NamedTuple):
    """Prompt that fits the context.

    Attributes:
        tokens: Number of tokens in the prompt, and before it.
        dropped: Number of removed messages.
        truncated: Whether messages or texts were removed.
    """

    prompt: Prompt
    tokens: int
    dropped: int = 0
    truncated: bool = False


def fit_prompt(
    prompt: Prompt, lease: Lease, *, truncate: bool = True, before: int = 0
) -> FittedPrompt:
    """Truncate a prompt so that its tokens and `before` earlier tokens fit into the context of a
    loaded model.

    First, a chat loses its oldest messages. If that is not enough, the prompt loses its middle.
    Raises HttpError if the prompt is too long and cannot be truncated.
    """
    model = lease.request.model
    context = lease.limit
    per_token = model.chars_per_token
    is_chat = prompt.operation == "chat"
    tokens = prompt_tokens(prompt, per_token) + before
    if context is None or tokens < context:
        return FittedPrompt(prompt, tokens)
    if not truncate:
        raise _refused_length(tokens, context)
    shorter = prompt
    if is_chat:
        latest = _latest_messages(prompt, per_token, context)
        shorter = replace(prompt, messages=latest)
    tokens = prompt_tokens(shorter, per_token) + before
    dropped = len(prompt.messages) - len(shorter.messages)
    if tokens < context:
        return FittedPrompt(shorter, tokens, dropped, truncated=True)
    if is_chat and model.template_style == "native":
        raise _refused_length(tokens, context)
    if not lease.request.shift:
        raise HttpError(400, _TOO_LONG)
    keep = _kept_tokens(prompt, context)
    free = (context - keep) // 2  # room for the reply: half of what follows the first `keep` tokens
    removed = tokens - (context - free)
    start = int(keep * per_token)
    length = int(removed * per_token)
    messages = _without_middle(shorter.messages, start, length)
    fitting = replace(shorter, messages=messages)
    return FittedPrompt(fitting, tokens - removed, dropped, truncated=True)


def _kept_tokens(prompt: Prompt, context: int) -> int:
    """Return how many tokens at the start of a prompt stay when the context is full."""
    requested = int(prompt.options.get("num_keep", NUM_KEEP))
    at_most = min(requested, context - 1)
    return max(0, at_most)


def _without_middle(messages: Iterable[Message], start: int, length: int) -> tuple[Message, ...]:
    """Return the messages without `length` characters of their contents, which follow the first
    `start` characters.
    """
    kept = []
    for message in messages:
        before = message.content[:start]
        rest = message.content[start:]
        after = rest[length:]
        shorter = replace(message, content=before + after)
        kept.append(shorter)
        start -= len(before)
        length -= len(rest) - len(after)
    return tuple(kept)


def _latest_messages(prompt: Prompt, chars_per_token: float, context: int) -> tuple[Message, ...]:
    """Return the latest messages of a chat, which has no earlier tokens, and all system messages.

    As in Ollama, they may fill the context. If they do, their middle is removed later.
    """
    text = counted_text(prompt)
    length = len(text)
    images = 0
    for message in prompt.messages:
        images += message.images
    latest: list[Message] = []
    for message in prompt.messages[:-1]:
        text_tokens = to_tokens(length, chars_per_token)
        image_tokens = IMAGE_TOKENS * images
        fits = text_tokens + image_tokens <= context
        if fits or message.role == "system":
            latest.append(message)
            continue
        removed = counted_text_of_message(message)
        length -= len(removed)
        images -= message.images
    return (*latest, *prompt.messages[-1:])


class _End(NamedTuple):
    """End of a choice after a number of characters."""

    characters: int
    finish: Finish
    stop_sequence: str | None = None


def apply_stop_conditions(
    reply: Reply, options: Mapping[str, Any], chars_per_token: float
) -> Reply:
    """Return the reply with each choice cut at a sequence in `stop`, which can span adjacent texts,
    or after `num_predict` tokens.

    The first choice that is cut sets the finish reason.
    """
    stops = _stop_sequences(options)
    limit = _character_limit(options, chars_per_token)
    if not stops and limit == inf:
        return reply
    parts: list[Part] = []
    ends = []
    for choice in _choices(reply.parts):
        end = _end_of(choice, stops, limit)
        if end is None:
            parts += choice
        else:
            parts += _first_characters(choice, end.characters)
            ends.append(end)
    if not ends:
        return reply
    first = ends[0]
    return replace(
        reply,
        parts=parts,
        frames=None,
        finish=first.finish,
        stop_sequence=first.stop_sequence,
    )


def _stop_sequences(options: Mapping[str, Any]) -> list[str]:
    stop = options.get("stop") or ()
    if isinstance(stop, str):
        return [stop]
    return list(filter(None, stop))


def _character_limit(options: Mapping[str, Any], chars_per_token: float) -> float:
    tokens = options.get("num_predict")
    if tokens is None or tokens < 0:
        return inf
    return int(tokens * chars_per_token)


def _choices(parts: Iterable[Part]) -> list[list[Part]]:
    """Return the parts of each choice. The first list has the parts before the first `Choice`."""
    choices: list[list[Part]] = [[]]
    for part in parts:
        if isinstance(part, Choice):
            choices.append([])
        choices[-1].append(part)
    return choices


def _end_of(parts: Iterable[Part], stops: Sequence[str], limit: float) -> _End | None:
    """Return where a choice ends, or None if no stop condition applies."""
    before = 0
    text = ""  # of adjacent parts of the same kind
    kind = None
    for part in parts:
        if isinstance(part, (Cut, Failure, ToolCalls)):
            kind = None
        if not isinstance(part, (Reasoning, Text)):
            continue
        if type(part) is not kind:
            before += len(text)
            text = ""
            kind = type(part)
        text += joined(part.content)
        at, found = _first_stop(text, stops)
        end = before + at
        if end > limit:
            return _End(int(limit), "length")
        if found is not None:
            return _End(end, "stop", found)
    return None


def _first_stop(text: str, stops: Iterable[str]) -> tuple[int, str | None]:
    """Return the position and the first stop sequence in the text, or its length and None."""
    positions = []
    for stop in stops:
        at = text.find(stop)
        if at >= 0:
            positions.append((at, stop))
    if not positions:
        return len(text), None
    return min(positions)


def _first_characters(parts: Sequence[Part], length: int) -> list[Part]:
    """Return the parts before the end of the first `length` characters of reasoning and text."""
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, (Reasoning, Text)):
            text = joined(part.content)
            if len(text) > length:
                content = _shortened(part.content, length)
                last = replace(part, content=content)
                return [*kept, last]
            length -= len(text)
        kept.append(part)
    return kept


def _shortened(content: Content, length: int) -> Content:
    if isinstance(content, str):
        return content[:length]
    kept = []
    for piece in content:
        if length <= 0:
            break
        kept.append(piece[:length])
        length -= len(piece)
    return kept


class Counts(NamedTuple):
    """Token counts of a request and its reply. `output` includes `reasoning`."""

    input: int
    output: int
    reasoning: int
    cache_read: int = 0
    cache_creation: int = 0


@dataclass(frozen=True)
class EvaluatedPrompt:
    """Prompt of `tokens` tokens that fits the context, with its reply.

    `dropped` is the number of removed messages. `evaluated_tokens` is the number of tokens that are
    not in the prompt cache. `seconds` is the simulated time of their evaluation, or None if the
    simulated machine has no `prompt_speed`.
    """

    stub: Stub
    model: Model
    prompt: Prompt
    tokens: int
    dropped: int
    truncated: bool
    reply: Reply
    evaluated_tokens: int
    seconds: float | None

    @property
    def ids(self) -> SeededIds:
        """IDs and times of the reply, derived from the model name and the request body."""
        model = self.prompt.model.encode(errors="replace")
        seed = model + self.prompt.request
        return self.stub.seeded_ids(seed)

    @property
    def cached_tokens(self) -> int | None:
        """Number of prompt tokens that a slot already had.

        None if neither the reply sets it nor the machine sets a number of slots.
        """
        if self.reply.usage.cache_read is not None:
            return self.reply.usage.cache_read
        if self.stub.scheduler.machine.parallel is None:
            return None
        return self.tokens - self.evaluated_tokens

    @cached_property
    def usage(self) -> Counts:
        """Token counts. Counts that the reply sets replace the calculated counts."""
        per_token = self.model.chars_per_token
        characters = generated_characters(self.reply)
        counts = Counts(
            input=self.tokens,
            output=to_tokens(characters, per_token),
            reasoning=to_tokens(len(self.reply.reasoning), per_token),
        )
        from_reply = {}
        for name, count in vars(self.reply.usage).items():
            if count is not None:
                from_reply[name] = count
        return counts._replace(**from_reply)

    def generation(self, encoder: Encoder, **journal_fields: Any) -> Generation:
        """Return the response that sends the reply.

        `journal_fields` are additional fields of the journal entry.
        """
        fields = {
            "model": self.prompt.model,
            "truncated": self.truncated,
            "dropped_messages": self.dropped,
            "prompt_tokens": self.tokens,
            "evaluated_tokens": self.evaluated_tokens,
            **journal_fields,
        }
        return Generation(
            reply=self.reply,
            encoder=encoder,
            stream=self.prompt.stream,
            journal_fields=fields,
            prompt_seconds=self.seconds or 0.0,
        )


def generated_characters(reply: Reply, encode: Callable[[Any], str] = dumps) -> int:
    """Count the characters of a reply: reasoning, text, and the names and JSON arguments of tool
    calls.
    """
    characters = len(reply.reasoning) + len(reply.text)
    for call in reply.tool_calls:
        characters += len(call.name)
        characters += len(encode(call.arguments))
    return characters


def evaluate_prompt(
    stub: Stub, lease: Lease, prompt: Prompt, *, truncate: bool = True, context_tokens: int = 0
) -> EvaluatedPrompt:
    """Truncate a prompt to the context of the loaded model, and return the prompt with its reply.

    Both are put into the prompt cache.
    `context_tokens` is the number of tokens of an earlier conversation, which precede the prompt.
    Raises HttpError if the prompt is too long and cannot be truncated.
    """
    model = lease.request.model
    fitted = fit_prompt(prompt, lease, truncate=truncate, before=context_tokens)
    if fitted.truncated:
        stub.scheduler.truncations += 1
    whole_reply = stub.resolve(fitted.prompt, model)
    options = _limited_options(fitted, lease)
    reply = apply_stop_conditions(whole_reply, options, model.chars_per_token)
    answer = render_message("assistant", reply.text, reply.tool_calls)
    rendered = render(fitted.prompt)
    evaluated = lease.prompt_cache.evaluate(rendered, f"\n{answer}", fitted.tokens)
    speed = stub.scheduler.machine.prompt_speed
    seconds = None
    if speed:
        seconds = evaluated / speed
    return EvaluatedPrompt(
        stub=stub,
        model=model,
        prompt=fitted.prompt,
        tokens=fitted.tokens,
        dropped=fitted.dropped,
        truncated=fitted.truncated,
        reply=reply,
        evaluated_tokens=evaluated,
        seconds=seconds,
    )


def _limited_options(fitted: FittedPrompt, lease: Lease) -> Mapping[str, Any]:
    """Return the options of a prompt. Without a context shift, the reply must fit the rest of the
    context.
    """
    options = fitted.prompt.options
    if lease.request.shift or lease.limit is None:
        return options
    room = max(lease.limit - fitted.tokens, 0)
    requested = options.get("num_predict", -1)
    if 0 <= requested < room:
        return options
    return {**options, "num_predict": room}


def always(response: HttpResponse) -> Handler:
    return lambda *_: response


async def load_model(stub: Stub, model: Model) -> Lease:
    """Load a model for a request of an API that has no load options. Raises HttpError.

    The lease is released at the end of the response.
    """
    load = LoadRequest(model, model.parameters, shift=model.shifts_context)
    return await stub.load(load)


def find_model(models: Iterable[Model], name: str, missing: HttpError) -> Model:
    """Return the model with this name, with or without the tag `:latest`.

    Raises `missing` for an unknown name.
    """
    by_name = {model.name: model for model in models}
    for candidate in (name, name.removesuffix(":latest"), f"{name}:latest"):
        if candidate in by_name:
            return by_name[candidate]
    raise missing


def list_models(stub: Stub) -> list[Model]:
    """Return the models that clients can list.

    Models whose names begin with `_` exist only for inheritance.
    """
    listed = []
    for model in stub.models:
        if not model.name.startswith("_"):
            listed.append(model)
    return listed


async def generate(
    stub: Stub,
    model: Model,
    prompt: Prompt,
    request: Request,
    encoder: Callable[[EvaluatedPrompt], Encoder],
) -> Generation:
    """Load the model and return the response that sends its reply.

    `encoder` creates the encoder of the reply. Raises HttpError if the load fails or the
    prompt does not fit the context.
    """
    lease = await load_model(stub, model)
    full_prompt = with_defaults(prompt, model, request.body)
    evaluated = evaluate_prompt(stub, lease, full_prompt)
    return evaluated.generation(encoder(evaluated), prompt_tokens=evaluated.usage.input)


def with_defaults(prompt: Prompt, model: Model, request: bytes = b"") -> Prompt:
    """Add the model's system message, parameters and thinking to a prompt, unless the request
    overrides them.
    """
    messages = prompt.messages
    has_system_message = any(message.role == "system" for message in messages)
    if model.system and not has_system_message:
        messages = (Message("system", model.system), *messages)
    can_think = model.has_capability("thinking")
    return replace(
        prompt,
        messages=messages,
        includes_reasoning=can_think and prompt.requested_thinking is not False,
        options={**model.parameters, **prompt.options},
        request=request,
    )


_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "max_tokens": "num_predict",
    "max_completion_tokens": "num_predict",
    "max_output_tokens": "num_predict",
    "stop_sequences": "stop",
}


def sampling_options(fields: JsonObject) -> JsonObject:
    """Return the sampling options of a request under Ollama's names.

    The last field that limits the tokens applies.
    """
    found = {}
    for name, value in fields.items():
        option = _OPTIONS.get(snake_case(name))
        if option is not None:
            found[option] = value
    stop = fields.get("stop")
    if isinstance(stop, str):
        stop = [stop] if stop else None
    if stop:
        found["stop"] = stop
    return found


def blocks(reply: Reply) -> list[Piece]:
    """Return the contents of a reply in order.

    Adjacent texts of one kind are joined, and empty texts are omitted.
    """
    contents = []
    for part in reply.parts:
        if isinstance(part, (Reasoning, Text, ToolCalls)):
            contents.append(part)
    found: list[Piece] = []
    for kind, parts in groupby(contents, type):
        text = ""
        for part in parts:
            if isinstance(part, ToolCalls):
                found += [Piece(ToolCall, call, 0) for call in part.calls]
            else:
                text += joined(part.content)
        if text:
            found.append(Piece(kind, text, 0))
    return found


def argument_pieces(call: ToolCall) -> list[str]:
    """Return the arguments of a tool call as JSON, split into pieces for streaming."""
    encoded = dumps(call.arguments)
    found = []
    for start in range(0, len(encoded), ARGUMENT_PIECE):
        end = start + ARGUMENT_PIECE
        found.append(encoded[start:end])
    return found


def embed_text(
    stub: Stub, model: Model, text: str, name: str, index: int = 0
) -> tuple[list[float], int]:
    """Return the embedding of a text and its token count.

    `name` is the name of the model in the request, and `index` the position of the text. Raises
    HttpError if the configured reply is a failure.
    """
    message = Message("user", text)
    prompt = Prompt(name, operation="embed", messages=(message,), index=index)
    reply = stub.resolve(prompt, model)
    for part in reply.parts:
        if isinstance(part, Failure):
            raise HttpError(part.status, part.message, part.headers)
    if reply.embedding is None:
        vector = embed(text, model.embedding_length)
    else:
        vector = list(reply.embedding)
    tokens = reply.usage.input
    if tokens is None:
        tokens = to_tokens(len(text), model.chars_per_token)
    return vector, tokens


def shortened_vector(vector: list[float], dimensions: int | None) -> list[float]:
    """Return the first `dimensions` numbers, scaled to norm 1, or the whole vector unchanged."""
    if dimensions is None:
        return vector
    return normalised(vector[:dimensions])


def choose_tools(
    tools: Iterable[JsonObject],
    mode: str,
    names: Iterable[str] | None = None,
    others: Sequence[str] = (),
) -> tuple[Tools, Tools]:
    """Return the tools that the model may call, and the tools of which it must call one.

    Both can be empty.

    `names` limits the required tools. `others` are the names of the offered tools that the stub
    never calls. A choice of them requires no call. Raises HttpError if the request does not offer a
    tool that it requires.
    """
    if mode == "none":
        return (), ()
    offered = tuple(tools)
    if mode not in ("any", "tool", "required", "function"):
        return offered, ()
    by_name = {}
    for tool in offered:
        if tool["type"] == "function":
            name = tool["function"]["name"]
            by_name[name] = tool
    if names is None:
        names = by_name
    required = []
    for name in names:
        if name in by_name:
            required.append(by_name[name])
        elif name not in others:
            raise _impossible_choice(
                f"the request selects the function {name}, but does not offer it"
            )
    if not required and not others:
        raise _impossible_choice("the request requires a tool call, but it offers no functions")
    return offered, tuple(required)


def _impossible_choice(message: str) -> HttpError:
    return HttpError(400, message, param="tool_choice")


def function_tool(
    name: str, description: str | None, parameters: Any, strict: bool | None = None
) -> JsonObject:
    """Return a tool in the format of chat completions. Fields that are None are omitted."""
    function: JsonObject = {"name": name}
    if description is not None:
        function["description"] = description
    if parameters is not None:
        function["parameters"] = parameters
    if strict is not None:
        function["strict"] = strict
    return {"type": "function", "function": function}


def headers_of(failure: Failure) -> Headers:
    """Return the response headers for a failure.

    Status 429 always includes the header `retry-after`.
    """
    headers = {}
    for name, text in failure.headers:
        headers[name.lower()] = text
    if failure.status == 429:
        headers.setdefault("retry-after", "1")
    encoded = []
    for name, text in headers.items():
        encoded_name = name.encode("latin-1", "replace")
        encoded_text = text.encode("latin-1", "replace")
        encoded.append((encoded_name, encoded_text))
    return tuple(encoded)


def json_response(
    value: Any, status: int = 200, headers: Headers = (), content_type: bytes = JSON
) -> HttpResponse:
    body = dumps(value).encode()
    return HttpResponse(status, body, content_type, headers)
