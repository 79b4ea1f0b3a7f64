"""`/v1/chat/completions`: the request, and the reply as chunks of a stream or as one object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mochi_stub.answer import Answer, Request, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.chunks import Piece
from mochi_stub.jsontext import dumps, event
from mochi_stub.plan import ALPHANUMERIC
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Choice, Failure, Part, Reasoning, Reply, Text
from mochi_stub.wire.asking import Subject, argument_pieces, asked, played
from mochi_stub.wire.openai.errors import failure_answer, failure_error, find_model, json_answer
from mochi_stub.wire.openai.shapes import check_chat, check_tools, messages, options
from mochi_stub.wire.openai.usage import completion_usage

EVENTS = b"text/event-stream; charset=utf-8"
DONE = "data: [DONE]\n\n"


def chat(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """POST /v1/chat/completions"""
    model = find_model(stub, body["model"])
    check_chat(model, "v1/chat/completions")
    check_tools(model, body.get("tools"))
    subject = asked(stub, model, _prompt(body, model), request)
    wanted = body.get("stream_options", {}).get("include_usage", False)
    return played(subject, ChatChunks(subject, body.get("n", 1), wanted))


def _prompt(body: Mapping[str, Any], model: Model) -> Prompt:
    effort = body.get("reasoning_effort")
    return Prompt(
        model=body["model"],
        messages=messages(body["messages"]),
        tools=tuple(body.get("tools", ())) if body.get("tool_choice") != "none" else (),
        think=effort,
        thinks=model.can("thinking") and effort != "none",
        format=_format(body.get("response_format", {})),
        options=options(body, body.get("max_completion_tokens", body.get("max_tokens"))),
        stream=body.get("stream", False),
        choices=True,
    )


def _format(wanted: Mapping[str, Any]) -> Any:
    """ "json", a schema, or None."""
    if wanted.get("type") == "json_schema":
        return wanted["json_schema"].get("schema", {})
    return "json" if wanted.get("type") == "json_object" else None


def finish_reason(reply: Reply) -> str:
    """OpenAI's own; the reply to an instruction block, which has choices, only stops."""
    return "tool_calls" if reply.finish == "stop" and reply.tool_calls and not is_scripted(reply) else reply.finish


def is_scripted(reply: Reply) -> bool:
    """Whether the reply has choices of its own, as one to an instruction block has."""
    return any(isinstance(part, Choice) for part in reply.parts)


class ChatChunks:
    """One reply. `n` choices all say the same; a reply with choices of its own has those."""

    content_type = EVENTS

    def __init__(self, subject: Subject, n: int, wants_usage: bool) -> None:
        self.subject = subject
        self.wants_usage = wants_usage
        self.finishing = (0,) if is_scripted(subject.reply) else tuple(range(n))
        self.choices: tuple[int, ...] = self.finishing
        self.created = subject.plan.start // 10**9
        self.id = f"gen-{self.created}-{subject.plan.id(0, 20, ALPHANUMERIC)}"
        self.tail = ',"usage":null}\n\n' if wants_usage else "}\n\n"
        self.head = self._head()
        self.lone: str | None = None
        """What stands before each text of a choice that is alone and has been introduced: most of a long stream."""
        self.after = f'}},"finish_reason":null}}]{self.tail}'
        self.greeted: set[int] = set()
        self.calls = 0
        self.calls_of_choice = 0

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([self._piece(piece) for piece in pieces]).encode()

    def end(self) -> bytes:
        reason = finish_reason(self.subject.reply)
        finish = "".join([self._delta(index, "{}", reason) for index in self.finishing])
        return f"{finish}{self._usage()}{DONE}".encode()

    def error(self, failure: Failure) -> bytes:
        return event({"error": failure_error(failure)}).encode()

    def refusal(self, failure: Failure, *, stream: bool) -> Answer:
        del stream  # the same either way
        return failure_answer(failure)

    def whole(self) -> Answer:
        subject = self.subject
        replies = _by_choice(subject.reply) or dict.fromkeys(self.finishing, subject.reply)
        reason = finish_reason(subject.reply)
        choices = [
            {"index": index, "message": self._message(reply), "logprobs": None, "finish_reason": reason}
            for index, reply in replies.items()
        ]
        usage = completion_usage(subject.usage, len(self.finishing))
        head = {"id": self.id, "object": "chat.completion", "model": subject.prompt.model, "created": self.created}
        return json_answer({**head, "choices": choices, "usage": usage})

    def _piece(self, piece: Piece) -> str:
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
        said = "".join([self._delta(index, f"{{{self._greeting(index)}{delta}}}") for index in self.choices])
        if len(self.choices) == 1:
            self.lone = f'{self.head}[{{"index":{self.choices[0]},"delta":{{"content":'
        return said

    def _call(self, call: ToolCall) -> str:
        """The name, then the arguments piece by piece."""
        place = self.calls_of_choice
        entry = {"index": place, "id": self._call_id(call), "type": "function"}
        first = dumps([{**entry, "function": {"name": call.name, "arguments": ""}}])
        rest = [dumps([{"index": place, "function": {"arguments": piece}}]) for piece in argument_pieces(call)]
        self.calls_of_choice += 1
        return "".join(
            [
                self._delta(index, f'{{{self._greeting(index) if at == 0 else ""}"tool_calls":{shown}}}')
                for index in self.choices
                for at, shown in enumerate([first, *rest])
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
        said = reply.text or (None if calls else "")
        thought = {"reasoning": reply.reasoning, "reasoning_content": reply.reasoning} if reply.reasoning else {}
        return {
            "role": "assistant",
            "content": said,
            "refusal": None,
            **thought,
            **({"tool_calls": calls} if calls else {}),
        }

    def _call_id(self, call: ToolCall) -> str:
        self.calls += 1
        return call.id or f"call_{self.subject.plan.id(self.calls, 24, ALPHANUMERIC)}"

    def _greeting(self, index: int) -> str:
        """Who speaks stands in the first chunk of a choice."""
        if index in self.greeted:
            return ""
        self.greeted.add(index)
        return '"role":"assistant",'

    def _delta(self, index: int, delta: str, reason: str | None = None) -> str:
        finish = f'"{reason}"' if reason else "null"
        return f'{self.head}[{{"index":{index},"delta":{delta},"finish_reason":{finish}}}]{self.tail}'

    def _usage(self) -> str:
        if not self.wants_usage:
            return ""
        return f'{self.head}[],"usage":{dumps(completion_usage(self.subject.usage, len(self.finishing)))}}}\n\n'

    def _head(self) -> str:
        return (
            f'data: {{"id":"{self.id}","object":"chat.completion.chunk","model":{dumps(self.subject.prompt.model)}'
            f',"created":{self.created},"choices":'
        )


def _by_choice(reply: Reply) -> dict[int, Reply]:
    """The reply of each choice; empty where the reply has none."""
    found: dict[int, list[Part]] = {}
    index = None
    for part in reply.parts:
        if isinstance(part, Choice):
            index = part.index
            found[index] = []
        elif index is not None:
            found[index].append(part)
    return {index: Reply(parts) for index, parts in found.items()}
