"""`/v1/completions`: text behind a prompt, one choice for each prompt and each of `n`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.answer import Answer, Request, Result, Stub
from mochi_stub.chunks import Piece
from mochi_stub.jsontext import dumps, event
from mochi_stub.plan import ALPHANUMERIC
from mochi_stub.prompt import Message, Prompt
from mochi_stub.reply import Choice, Failure, Finish, Part, Reasoning, Text, ToolCalls, joined
from mochi_stub.wire.asking import Counts, Subject, asked, played
from mochi_stub.wire.openai.chat import DONE, EVENTS
from mochi_stub.wire.openai.errors import failure_answer, failure_error, find_model, json_answer
from mochi_stub.wire.openai.shapes import check_chat, options, texts
from mochi_stub.wire.openai.usage import completion_usage

NO_PROMPT = "<|endoftext|>"


def completions(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """POST /v1/completions"""
    model = find_model(stub, body["model"])
    check_chat(model, "v1/completions")
    each = body.get("n", 1)
    prompts = [text for text in texts(body.get("prompt", NO_PROMPT)) for _ in range(each)]
    subjects = [asked(stub, model, _prompt(body, text), request) for text in prompts]
    whole = _together(subjects, each, echo=body.get("echo", False))
    wanted = body.get("stream_options", {}).get("include_usage", False)
    return played(whole, CompletionChunks(whole, [subject.reply.finish for subject in subjects], wanted))


def _prompt(body: Mapping[str, Any], text: str) -> Prompt:
    return Prompt(
        model=body["model"],
        operation="generate",
        messages=(Message("user", text),),
        thinks=False,
        options=options(body, body.get("max_tokens")),
        stream=body.get("stream", False),
    )


def _together(subjects: list[Subject], each: int, *, echo: bool) -> Subject:
    """The replies as the choices of one, `each` to a prompt; what they cost is summed up."""
    parts = [part for index, subject in enumerate(subjects) for part in _choice(index, subject, echo)]
    first = subjects[0]
    return replace(first, reply=replace(first.reply, parts=parts), usage=_total(subjects, each))


def _choice(index: int, subject: Subject, echo: bool) -> list[Part]:
    """A reply as one choice of several; this endpoint has neither reasoning nor calls."""
    echoed = [Text(subject.prompt.user_text)] if echo else []
    parts = [part for part in subject.reply.parts if not isinstance(part, (Reasoning, ToolCalls))]
    return [*([Choice(index)] if index else []), *echoed, *parts]


class CompletionChunks:
    """The choices one after the other."""

    content_type = EVENTS

    def __init__(self, subject: Subject, reasons: list[Finish], wants_usage: bool) -> None:
        self.reasons = reasons
        self.reply = subject.reply
        self.usage = completion_usage(subject.usage)
        self.wants_usage = wants_usage
        plan = subject.plan
        self.facts = {
            "id": f"cmpl-{plan.id(0, 24, ALPHANUMERIC)}",
            "object": "text_completion",
            "created": plan.start // 10**9,
            "model": subject.prompt.model,
        }
        self.head = f'data: {dumps(self.facts)[:-1]},"choices":'
        self.tail = ',"usage":null}\n\n' if wants_usage else "}\n\n"
        self.choice = 0

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([self._piece(piece) for piece in pieces]).encode()

    def end(self) -> bytes:
        finish = "".join([self._line(index, '""', f'"{reason}"') for index, reason in enumerate(self.reasons)])
        usage = f'{self.head}[],"usage":{dumps(self.usage)}}}\n\n' if self.wants_usage else ""
        return f"{finish}{usage}{DONE}".encode()

    def error(self, failure: Failure) -> bytes:
        return event({"error": failure_error(failure)}).encode()

    def refusal(self, failure: Failure, *, stream: bool) -> Answer:
        del stream  # the same either way
        return failure_answer(failure)

    def whole(self) -> Answer:
        said = [""] * len(self.reasons)
        index = 0
        for part in self.reply.parts:
            if isinstance(part, Choice):
                index = part.index
            elif isinstance(part, Text):
                said[index] += joined(part.content)
        choices = [
            {"text": text, "index": index, "logprobs": None, "finish_reason": self.reasons[index]}
            for index, text in enumerate(said)
        ]
        return json_answer({**self.facts, "choices": choices, "usage": self.usage})

    def _piece(self, piece: Piece) -> str:
        if piece.kind is Choice:
            self.choice = piece.value.index
            return ""
        return self._line(self.choice, dumps(piece.value), "null")

    def _line(self, index: int, text: str, reason: str) -> str:
        choice = f'[{{"text":{text},"index":{index},"logprobs":null,"finish_reason":{reason}}}]'
        return f"{self.head}{choice}{self.tail}"


def _total(subjects: list[Subject], each: int) -> Counts:
    """What all choices cost; a prompt counts once, however many choices it has."""
    counts = [subject.usage for subject in subjects]
    prompts = counts[::each]
    return Counts(
        input=sum(one.input for one in prompts),
        output=sum(one.output for one in counts),
        reasoning=sum(one.reasoning for one in counts),
        cache_read=sum(one.cache_read for one in prompts),
        cache_creation=sum(one.cache_creation for one in prompts),
    )
