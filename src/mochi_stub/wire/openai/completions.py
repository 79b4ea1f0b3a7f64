"""`/v1/chat/completions` and `/v1/completions`: the requests, and the replies as chunks or as one object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.http.http_result import HttpResponse, Request, Result, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.replies.chunks import Piece
from mochi_stub.replies.seeded_ids import ALPHANUMERIC
from mochi_stub.reply import Choice, Failure, Part, Reasoning, Reply, Text, ToolCalls
from mochi_stub.wire import provider_pipeline as pipeline
from mochi_stub.wire.json_encoding import dumps, event
from mochi_stub.wire.openai.errors import failure_answer, failure_error
from mochi_stub.wire.openai.request_schema import chat_model, message_of, reply_format, texts

NO_PROMPT = "<|endoftext|>"


class ChunkEncoder:
    """Base of the encoders of chat and text completions: a stream of chunks that ends with `[DONE]`.

    `facts` are the fields that begin every chunk. `usage` is sent last if the request has `include_usage`.
    """

    content_type = pipeline.EVENTS

    def __init__(self, facts: dict[str, Any], usage: dict[str, Any], body: Mapping[str, Any]) -> None:
        self.facts, self.usage = facts, usage
        self.wants_usage = body.get("stream_options", {}).get("include_usage", False)
        self.head = f'data: {dumps(facts)[:-1]},"choices":'
        self.tail = ',"usage":null}\n\n' if self.wants_usage else "}\n\n"

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([self.piece(piece) for piece in pieces]).encode()

    def end(self) -> bytes:
        usage = f'{self.head}[],"usage":{dumps(self.usage)}}}\n\n' if self.wants_usage else ""
        return f"{self.finish()}{usage}data: [DONE]\n\n".encode()

    def error(self, failure: Failure) -> bytes:
        return event({"error": failure_error(failure)}).encode()

    def refusal(self, failure: Failure, **_: bool) -> HttpResponse:
        return failure_answer(failure)

    def piece(self, piece: Piece) -> str:
        """Return the chunks of one piece."""
        raise NotImplementedError

    def finish(self) -> str:
        """Return the chunks with the finish reasons."""
        raise NotImplementedError


def chat(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """POST /v1/chat/completions"""
    model = chat_model(stub, body, "v1/chat/completions")
    context = pipeline.build_context(stub, model, _chat_prompt(body, model), request)
    return pipeline.start_generation(context, ChatChunks(context, body))


def _chat_prompt(body: Mapping[str, Any], model: Model) -> Prompt:
    effort = body.get("reasoning_effort")
    wanted = body.get("response_format", {})
    return Prompt(
        model=body["model"],
        messages=tuple(map(message_of, body["messages"])),
        tools=tuple(body.get("tools", ())) if body.get("tool_choice") != "none" else (),
        think=effort,
        thinks=model.can("thinking") and effort != "none",
        format=reply_format(wanted.get("type"), wanted.get("json_schema", {})),
        options=pipeline.options(body),
        stream=body.get("stream", False),
        choices=True,
    )


class ChatChunks(ChunkEncoder):
    """Encoder of a chat. All `n` choices have the same content, except in a reply that has choices of its own."""

    def __init__(self, context: pipeline.GenerationContext, body: Mapping[str, Any]) -> None:
        reply, self.plan = context.reply, context.plan
        scripted = _by_choice(reply)
        self.replies = scripted or dict.fromkeys(range(body.get("n", 1)), reply)
        self.finishing = (0,) if scripted else tuple(self.replies)
        has_called = reply.finish == "stop" and reply.tool_calls and not scripted
        self.reason = "tool_calls" if has_called else reply.finish
        self.choices = self.finishing
        created = self.plan.start // 10**9
        facts = {
            "id": f"gen-{created}-{self.plan.id(0, 20, ALPHANUMERIC)}",
            "object": "chat.completion.chunk",
            "model": context.prompt.model,
            "created": created,
        }
        super().__init__(facts, _usage(context.usage, len(self.finishing)), body)
        self.lone: str | None = None
        """Text before the content of a choice that is alone and has its role: most of a long stream."""
        self.after = f'}},"finish_reason":null}}]{self.tail}'
        self.greeted: set[int] = set()
        self.calls = 0
        self.calls_of_choice = 0

    def finish(self) -> str:
        return "".join([self._delta(index, "{}", f'"{self.reason}"') for index in self.finishing])

    def whole(self) -> HttpResponse:
        choices = [
            {"index": index, "message": self._message(reply), "logprobs": None, "finish_reason": self.reason}
            for index, reply in self.replies.items()
        ]
        return pipeline.json_answer(
            {**self.facts, "object": "chat.completion", "choices": choices, "usage": self.usage}
        )

    def piece(self, piece: Piece) -> str:
        kind = piece.kind
        if kind is Text and self.lone is not None:
            return f"{self.lone}{dumps(piece.value)}{self.after}"
        if kind is Choice:
            self.choices, self.calls_of_choice, self.lone = (piece.value.index,), 0, None
            return ""
        if kind is ToolCall:
            return self._call(piece.value)
        shown = dumps(piece.value)
        delta = f'"reasoning":{shown},"reasoning_content":{shown}' if kind is Reasoning else f'"content":{shown}'
        chunks = "".join([self._delta(index, f"{{{self._role(index)}{delta}}}") for index in self.choices])
        if len(self.choices) == 1:
            self.lone = f'{self.head}[{{"index":{self.choices[0]},"delta":{{"content":'
        return chunks

    def _call(self, call: ToolCall) -> str:
        """Return the name in one chunk and the arguments in pieces."""
        place = self.calls_of_choice
        entry = {"index": place, "id": self._call_id(call), "type": "function"}
        first = dumps([{**entry, "function": {"name": call.name, "arguments": ""}}])
        rest = [dumps([{"index": place, "function": {"arguments": piece}}]) for piece in pipeline.argument_pieces(call)]
        self.calls_of_choice += 1
        return "".join(
            [
                self._delta(index, f'{{{self._role(index)}"tool_calls":{shown}}}')
                for index in self.choices
                for shown in (first, *rest)
            ]
        )

    def _message(self, reply: Reply) -> dict[str, Any]:
        calls = [
            {
                "id": self._call_id(call),
                "type": "function",
                "function": {"name": call.name, "arguments": dumps(call.arguments)},
            }
            for call in reply.tool_calls
        ]
        thought = {"reasoning": reply.reasoning, "reasoning_content": reply.reasoning} if reply.reasoning else {}
        return {
            "role": "assistant",
            "content": reply.text or (None if calls else ""),
            "refusal": None,
            **thought,
            **({"tool_calls": calls} if calls else {}),
        }

    def _call_id(self, call: ToolCall) -> str:
        self.calls += 1
        return call.id or f"call_{self.plan.id(self.calls, 24, ALPHANUMERIC)}"

    def _role(self, index: int) -> str:
        """Return the role on the first chunk of a choice."""
        if index in self.greeted:
            return ""
        self.greeted.add(index)
        return '"role":"assistant",'

    def _delta(self, index: int, delta: str, reason: str = "null") -> str:
        return f'{self.head}[{{"index":{index},"delta":{delta},"finish_reason":{reason}}}]{self.tail}'


def _by_choice(reply: Reply) -> dict[int, Reply]:
    """Return the reply of each choice; empty if the reply has no choices."""
    found: dict[int, list[Part]] = {}
    parts: list[Part] = []
    for part in reply.parts:
        if isinstance(part, Choice):
            parts = found[part.index] = []
        else:
            parts.append(part)
    return {index: Reply(parts) for index, parts in found.items()}


def completions(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """POST /v1/completions"""
    model = chat_model(stub, body, "v1/completions")
    n = body.get("n", 1)
    prompts = [text for text in texts(body.get("prompt", NO_PROMPT)) for _ in range(n)]
    contexts = [pipeline.build_context(stub, model, _prompt(body, text), request) for text in prompts]
    parts = [part for index, one in enumerate(contexts) for part in _choice(index, one, body.get("echo", False))]
    first = contexts[0]
    whole = replace(first, reply=replace(first.reply, parts=parts), usage=_total(contexts, n))
    return pipeline.start_generation(whole, CompletionChunks(whole, [one.reply.finish for one in contexts], body))


def _prompt(body: Mapping[str, Any], text: str) -> Prompt:
    return Prompt(
        model=body["model"],
        operation="generate",
        messages=(Message("user", text),),
        thinks=False,
        options=pipeline.options(body),
        stream=body.get("stream", False),
    )


def _choice(index: int, context: pipeline.GenerationContext, echo: bool) -> list[Part]:
    """Return a reply as one choice of several. This endpoint has neither reasoning nor calls."""
    echoed = [Text(context.prompt.user_text)] if echo else []
    parts = [part for part in context.reply.parts if not isinstance(part, (Reasoning, ToolCalls))]
    return [*([Choice(index)] if index else []), *echoed, *parts]


def _total(contexts: list[pipeline.GenerationContext], n: int) -> pipeline.Counts:
    """Return the tokens of all choices. A prompt counts once, however many choices it has."""
    total = pipeline.Counts(*map(sum, zip(*(context.usage for context in contexts[::n]), strict=True)))
    output = sum(context.usage.output for context in contexts)
    return total._replace(output=output, reasoning=sum(context.usage.reasoning for context in contexts))


class CompletionChunks(ChunkEncoder):
    """Encoder of text completions: the choices one after the other."""

    def __init__(self, context: pipeline.GenerationContext, reasons: list[str], body: Mapping[str, Any]) -> None:
        facts = {
            "id": f"cmpl-{context.plan.id(0, 24, ALPHANUMERIC)}",
            "object": "text_completion",
            "created": context.plan.start // 10**9,
            "model": context.prompt.model,
        }
        super().__init__(facts, _usage(context.usage), body)
        self.reply, self.reasons, self.choice = context.reply, reasons, 0

    def piece(self, piece: Piece) -> str:
        if piece.kind is Choice:
            self.choice = piece.value.index
            return ""
        return self._line(self.choice, dumps(piece.value), "null")

    def finish(self) -> str:
        return "".join([self._line(index, '""', f'"{reason}"') for index, reason in enumerate(self.reasons)])

    def whole(self) -> HttpResponse:
        replies = _by_choice(Reply([Choice(0), *self.reply.parts]))
        choices = [
            {"text": reply.text, "index": index, "logprobs": None, "finish_reason": self.reasons[index]}
            for index, reply in replies.items()
        ]
        return pipeline.json_answer({**self.facts, "choices": choices, "usage": self.usage})

    def _line(self, index: int, text: str, reason: str) -> str:
        return f'{self.head}[{{"text":{text},"index":{index},"logprobs":null,"finish_reason":{reason}}}]{self.tail}'


def _usage(counts: pipeline.Counts, choices: int = 1) -> dict[str, Any]:
    """Return the usage of a chat or text completion. Every choice generates the output once."""
    output = counts.output * choices
    return {
        "prompt_tokens": counts.input,
        "completion_tokens": output,
        "total_tokens": counts.input + output,
        "prompt_tokens_details": {"cached_tokens": counts.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": counts.reasoning * choices,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
