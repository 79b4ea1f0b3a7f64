"""`/v1/completions`: text behind a prompt, one choice for each prompt and each of `n`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.answer import Answer, Request, Result, Stub
from mochi_stub.chunks import Piece
from mochi_stub.jsontext import dumps
from mochi_stub.plan import ALPHANUMERIC
from mochi_stub.prompt import Message, Prompt
from mochi_stub.reply import Choice, Part, Reasoning, Text, ToolCalls, joined
from mochi_stub.wire.openai.chat import ChunkEncoder, completion_usage
from mochi_stub.wire.openai.errors import find_model
from mochi_stub.wire.openai.request_schema import check_chat, texts
from mochi_stub.wire.provider_pipeline import Counts, GenerationContext, generated, json_answer, options, played

NO_PROMPT = "<|endoftext|>"


def completions(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """POST /v1/completions"""
    model = find_model(stub, body["model"])
    check_chat(model, "v1/completions")
    n = body.get("n", 1)
    prompts = [text for text in texts(body.get("prompt", NO_PROMPT)) for _ in range(n)]
    contexts = [generated(stub, model, _prompt(body, text), request) for text in prompts]
    parts = [part for index, one in enumerate(contexts) for part in _choice(index, one, body.get("echo", False))]
    first = contexts[0]
    whole = replace(first, reply=replace(first.reply, parts=parts), usage=_total(contexts, n))
    return played(whole, CompletionChunks(whole, [one.reply.finish for one in contexts], body))


def _prompt(body: Mapping[str, Any], text: str) -> Prompt:
    return Prompt(
        model=body["model"],
        operation="generate",
        messages=(Message("user", text),),
        thinks=False,
        options=options(body),
        stream=body.get("stream", False),
    )


def _choice(index: int, context: GenerationContext, echo: bool) -> list[Part]:
    """Return a reply as one choice of several. This endpoint has neither reasoning nor calls."""
    echoed = [Text(context.prompt.user_text)] if echo else []
    parts = [part for part in context.reply.parts if not isinstance(part, (Reasoning, ToolCalls))]
    return [*([Choice(index)] if index else []), *echoed, *parts]


def _total(contexts: list[GenerationContext], n: int) -> Counts:
    """Return the tokens of all choices. A prompt counts once, however many choices it has."""
    counts = [context.usage for context in contexts]
    prompts = counts[::n]
    return Counts(
        input=sum(one.input for one in prompts),
        output=sum(one.output for one in counts),
        reasoning=sum(one.reasoning for one in counts),
        cache_read=sum(one.cache_read for one in prompts),
        cache_creation=sum(one.cache_creation for one in prompts),
    )


class CompletionChunks(ChunkEncoder):
    """Encoder of text completions: the choices one after the other."""

    def __init__(self, context: GenerationContext, reasons: list[str], body: Mapping[str, Any]) -> None:
        facts = {
            "id": f"cmpl-{context.plan.id(0, 24, ALPHANUMERIC)}",
            "object": "text_completion",
            "created": context.plan.start // 10**9,
            "model": context.prompt.model,
        }
        super().__init__(facts, completion_usage(context.usage), body)
        self.reply, self.reasons, self.choice = context.reply, reasons, 0

    def piece(self, piece: Piece) -> str:
        if piece.kind is Choice:
            self.choice = piece.value.index
            return ""
        return self._line(self.choice, dumps(piece.value), "null")

    def finish(self) -> str:
        return "".join([self._line(index, '""', f'"{reason}"') for index, reason in enumerate(self.reasons)])

    def whole(self) -> Answer:
        texts = [""] * len(self.reasons)
        index = 0
        for part in self.reply.parts:
            if isinstance(part, Choice):
                index = part.index
            elif isinstance(part, Text):
                texts[index] += joined(part.content)
        choices = [
            {"text": text, "index": index, "logprobs": None, "finish_reason": self.reasons[index]}
            for index, text in enumerate(texts)
        ]
        return json_answer({**self.facts, "choices": choices, "usage": self.usage})

    def _line(self, index: int, text: str, reason: str) -> str:
        choice = f'[{{"text":{text},"index":{index},"logprobs":null,"finish_reason":{reason}}}]'
        return f"{self.head}{choice}{self.tail}"
