"""From a checked request to its reply, for the wires of hosted providers: find the model, ask it, count the tokens.

It knows no wire. Ollama's wire has only the headers of a failure from here: it has a scheduler before the model and
other rules for names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeAlias

from mochi_stub.answer import Encoder, Generation, Request, Stub
from mochi_stub.catalogue import Model
from mochi_stub.embedding import embed, normalised
from mochi_stub.jsontext import dumps
from mochi_stub.limits import limited
from mochi_stub.plan import Plan
from mochi_stub.prompt import Message, Prompt, ToolCall, count_tokens, prompt_tokens
from mochi_stub.reply import Failure, Reasoning, Reply, Text, ToolCalls, joined

DEFAULT_TAG = ":latest"
ARGUMENT_PIECE = 16
RETRY_AFTER = "1"

Block: TypeAlias = "Reasoning | Text | ToolCall"


@dataclass(frozen=True)
class Subject:
    """What is to be written: the reply, to which prompt, by which model, and what it costs."""

    model: Model
    prompt: Prompt
    reply: Reply
    usage: Counts
    plan: Plan


@dataclass(frozen=True)
class Counts:
    """Tokens. `output` has the `reasoning` in it."""

    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_creation: int


def declared(models: Sequence[Model], name: str) -> Model | None:
    """The model of that name, with or without the tag that Ollama's clients put behind it."""
    for wanted in (name, name.removesuffix(DEFAULT_TAG), name + DEFAULT_TAG):
        for model in models:
            if model.name == wanted:
                return model
    return None


def listed(models: Iterable[Model]) -> list[Model]:
    """The models that a list shows; those whose name begins with `_` are there to be inherited from."""
    return [model for model in models if not model.name.startswith("_")]


def asked(stub: Stub, model: Model, prompt: Prompt, request: Request) -> Subject:
    """What the model makes of the prompt. Ids and moments come from the model's name and the request's body."""
    prompt = completed(prompt, model, request.body)
    reply = limited(stub.resolve(prompt), prompt.options, model.chars_per_token)
    plan = stub.plan(prompt.model.encode(errors="replace") + request.body)
    return Subject(model, prompt, reply, counted(reply, prompt, model), plan)


def completed(prompt: Prompt, model: Model, request: bytes = b"") -> Prompt:
    """The prompt with the model's own system message and parameters, where it has none of its own."""
    messages = prompt.messages
    if model.system and not any(message.role == "system" for message in messages):
        messages = (Message("system", model.system), *messages)
    return replace(prompt, messages=messages, options={**model.parameters, **prompt.options}, request=request)


def played(subject: Subject, encoder: Encoder) -> Generation:
    """The reply as that encoder writes it."""
    noted = {"model": subject.prompt.model, "prompt_tokens": subject.usage.input}
    return Generation(subject.reply, encoder, subject.prompt.stream, noted)


def counted(reply: Reply, prompt: Prompt, model: Model) -> Counts:
    """The tokens that the reply gives, else those that are counted."""
    given, per_token = reply.usage, model.chars_per_token
    thought = count_tokens(len(reply.reasoning), per_token)
    return Counts(
        input=prompt_tokens(prompt, per_token) if given.input is None else given.input,
        output=count_tokens(_produced(reply), per_token) if given.output is None else given.output,
        reasoning=thought if given.reasoning is None else given.reasoning,
        cache_read=given.cache_read or 0,
        cache_creation=given.cache_creation or 0,
    )


def blocks(reply: Reply) -> list[Block]:
    """The contents of a reply in order, what follows its like joined with it, nothing empty."""
    found: list[Block] = []
    contents = [part for part in reply.parts if isinstance(part, (Reasoning, Text, ToolCalls))]
    for kind, run in groupby(contents, type):
        if kind is ToolCalls:
            found += [call for part in run if isinstance(part, ToolCalls) for call in part.calls]
        elif text := "".join(joined(part.content) for part in run if isinstance(part, (Reasoning, Text))):
            found.append(Reasoning(text) if kind is Reasoning else Text(text))
    return found


def argument_pieces(call: ToolCall) -> list[str]:
    """The arguments of a call as JSON, in the pieces in which they are streamed."""
    whole = dumps(call.arguments)
    return [whole[at : at + ARGUMENT_PIECE] for at in range(0, len(whole), ARGUMENT_PIECE)]


def embedded(stub: Stub, model: Model, text: str, dimensions: int | None) -> tuple[Sequence[float], int]:
    """The vector of a text at unit length, and the text's tokens. Raises Failed where the model fails."""
    reply = stub.resolve(Prompt(model.name, "embed", (Message("user", text),)))
    for part in reply.parts:
        if isinstance(part, Failure):
            raise Failed(part)
    vector = embed(text, model.embedding_length) if reply.embedding is None else list(reply.embedding)
    tokens = count_tokens(len(text), model.chars_per_token) if reply.usage.input is None else reply.usage.input
    return normalised(vector[:dimensions] if dimensions else vector), tokens


class Failed(Exception):
    """The model failed before there was anything to send."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


def headers_of(failure: Failure) -> tuple[tuple[bytes, bytes], ...]:
    """The headers of a failure; one that asks for patience says for how long."""
    given = {name.lower(): value for name, value in failure.headers}
    if failure.status == 429:
        given.setdefault("retry-after", RETRY_AFTER)
    return tuple(
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in given.items()
    )


def _produced(reply: Reply) -> int:
    """The characters that the model wrote: thinking, text, and its calls as name and JSON."""
    calls = sum(len(call.name) + len(dumps(call.arguments)) for call in reply.tool_calls)
    return len(reply.reasoning) + len(reply.text) + calls
