"""A reply as `/api/chat` and `/api/generate` write it: lines of a stream, or one object.

The three habits (see `catalogue.Habit`) differ in where tool calls are sent and how `/api/generate` treats thinking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

from mochi_stub.http.http_result import HttpResponse
from mochi_stub.models.catalogue import Model
from mochi_stub.prompt import ToolCall, count_tokens, counted_text
from mochi_stub.replies.chunks import Piece, pieces, planned_end
from mochi_stub.replies.lorem import WORDS, stable_hash
from mochi_stub.replies.seeded_ids import ALPHANUMERIC, NANOSECONDS_PER_PROMPT_TOKEN, SeededIds
from mochi_stub.replies.truncation import FittedPrompt
from mochi_stub.reply import Failure, Logprob, Reasoning, Reply, Text
from mochi_stub.wire.ollama.errors import JSON
from mochi_stub.wire.ollama.go_json import dumps, text, timestamp
from mochi_stub.wire.provider_pipeline import generated_characters, headers_of

STREAM_ERROR = b"application/json"
NDJSON = b"application/x-ndjson"


@dataclass
class ChatLines:
    """Encoder of `/api/chat`: contents are in `message`.

    `top_logprobs` is None if the request wants no log probabilities. `load_duration` and
    `prompt_duration` are in nanoseconds; a `prompt_duration` of None is derived from the length of the prompt.
    """

    model: Model
    fit: FittedPrompt
    reply: Reply
    plan: SeededIds
    body: Mapping[str, Any]
    load_duration: int
    prompt_duration: int | None = None

    content_type = NDJSON

    def __post_init__(self) -> None:
        self.prompt, self.start = self.fit.prompt, self.plan.start
        self.top_logprobs = self.body.get("top_logprobs", 0) if self.body.get("logprobs") else None
        self.head = f'{{"model":{text(self.prompt.model)},"created_at":"'
        self.native = self.model.habit == "native"
        self.thinking = False
        self.calls = 0
        self.held: list[ToolCall] = []

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([self._run(kind, list(run)) for kind, run in groupby(pieces, itemgetter(0))]).encode()

    def end(self) -> bytes:
        return f"{self._turn(False, self.planned_end)}{self._final('', '', self.held, [])}\n".encode()

    def error(self, failure: Failure) -> bytes:
        return f'{{"error":{text(failure.message)}}}\n'.encode()

    def refusal(self, failure: Failure, *, stream: bool) -> HttpResponse:
        kind = STREAM_ERROR if stream else JSON
        return HttpResponse(
            failure.status, self.error(failure).rstrip(), kind, headers_of(failure), declared=not stream
        )

    def whole(self) -> HttpResponse:
        """Return the one object. Without tools in the request only calls of the last line count, unless scripted."""
        reply = self.reply
        calls = reply.tool_calls if self.prompt.tools or self.native or reply.unasked else []
        wanted = self.top_logprobs is not None
        shown = [piece for piece in pieces(reply) if piece.kind in (Reasoning, Text)] if wanted else []
        return HttpResponse(200, self._final(*self._whole_contents(), calls, shown).encode(), JSON)

    @cached_property
    def planned_end(self) -> int:
        return planned_end(self.reply)

    def _run(self, kind: type, run: list[Piece]) -> str:
        """Return pieces of one kind, one line each."""
        turn = self._turn(kind is Reasoning, run[0].due)
        if kind is ToolCall:
            return turn + "".join([self._call(piece.value, piece.due) for piece in run])
        before, after = self._frame(thinking=kind is Reasoning)
        if self.top_logprobs is not None:
            lines = [
                self._line(piece.due, before + text(piece.value), after + self._logprobs([piece])) for piece in run
            ]
        else:  # the hot path: one line is all that happens for a piece
            head, start = self.head, self.start
            lines = [f"{head}{timestamp(start + due)}{before}{text(value)}{after}}}\n" for _, value, due, _ in run]
        return turn + "".join(lines)

    def _line(self, due: int, *fields: str) -> str:
        return f"{self.head}{timestamp(self.start + due)}{''.join(fields)}}}\n"

    def _turn(self, thinking: bool, due: int) -> str:
        """Return what a change between thinking and answering looks like."""
        if thinking is self.thinking:
            return ""
        self.thinking = thinking
        before, after = self._frame(thinking=False)
        return "".join(self._line(due, before, text(shown), after) for shown in self._seam(opens=thinking))

    def _call(self, call: ToolCall, due: int) -> str:
        if self.native:
            self.held.append(call)
            return ""
        line = self._line(due, self._call_fields([call]))
        self.calls += 1
        return line

    def _calls(self, calls: list[ToolCall]) -> str:
        """Return `,"tool_calls":[...]`, or nothing. Missing IDs are generated."""
        if not calls:
            return ""
        items = []
        for index, call in enumerate(calls, start=self.calls):
            made_up = self.plan.id(index, 32, ALPHANUMERIC) if self.native else f"call_{self.plan.id(index, 8)}"
            function = {"index": index, "name": call.name, "arguments": call.arguments}
            items.append(f'{{"id":{text(call.id or made_up)},"function":{dumps(function)}}}')
        return f',"tool_calls":[{",".join(items)}]'

    def _logprobs(self, shown: list[Piece]) -> str:
        top = self.top_logprobs
        if top is None or not shown:
            return ""
        entries = [_logprob(piece.logprob or _made_up(piece.value), top) for piece in shown]
        return f',"logprobs":[{",".join(entries)}]'

    def _counters(self) -> str:
        usage, given = self.reply.usage, self.reply.durations
        written = generated_characters(self.reply, dumps)
        prompted = self.fit.tokens if usage.input is None else usage.input
        evaluated = self.planned_end if given.eval is None else given.eval
        planned = prompted * NANOSECONDS_PER_PROMPT_TOKEN if self.prompt_duration is None else self.prompt_duration
        prompt_time = planned if given.prompt_eval is None else given.prompt_eval
        load = self.load_duration if given.load is None else given.load
        counters = {
            "total_duration": load + prompt_time + evaluated if given.total is None else given.total,
            "load_duration": load,
            "prompt_eval_count": prompted,
            "prompt_eval_duration": prompt_time,
            "eval_count": count_tokens(written, self.model.chars_per_token) if usage.output is None else usage.output,
            "eval_duration": evaluated,
        }
        return "".join([f',"{key}":{value}' for key, value in counters.items() if value])

    def _ended(self) -> str:
        return f'{self.head}{timestamp(self.start + self.planned_end)}"'

    def _whole_contents(self) -> tuple[str, str]:
        """Return the text and the thinking of the one object."""
        return self.reply.text, self.reply.reasoning

    def _frame(self, *, thinking: bool) -> tuple[str, str]:
        """Return the text before and after a piece of content on its line."""
        key = '"content":"","thinking":' if thinking else '"content":'
        return f'","message":{{"role":"assistant",{key}', '},"done":false'

    def _seam(self, *, opens: bool) -> tuple[str, ...]:
        """Return the contents that are sent where thinking begins or ends.

        With a format, Go-rendered models start a second generation behind the thinking.
        """
        return () if opens or self.native or self.prompt.format is None else ("",)

    def _call_fields(self, calls: list[ToolCall]) -> str:
        return f'","message":{{"role":"assistant","content":""{self._calls(calls)}}},"done":false'

    def _final(self, content: str, thinking: str, calls: list[ToolCall], logprobs: list[Piece]) -> str:
        thought = f',"thinking":{text(thinking)}' if thinking else ""
        message = f'{{"role":"assistant","content":{text(content)}{thought}{self._calls(calls)}}}'
        reason, shown = self.reply.finish, self._logprobs(logprobs)
        return f'{self._ended()},"message":{message},"done":true,"done_reason":"{reason}"{shown}{self._counters()}}}'


class GenerateLines(ChatLines):
    """Encoder of `/api/generate`: contents are at the top. The thinking of native models is not separated."""

    def _frame(self, *, thinking: bool) -> tuple[str, str]:
        key = '"response":"","thinking":' if thinking and not self.native else '"response":'
        return f'",{key}', ',"done":false'

    def _seam(self, *, opens: bool) -> tuple[str, ...]:
        """Return tags, or the empty contents that their removal leaves."""
        if self.model.habit == "builtin":
            return ()
        tags = ("<think>",) if opens else ("</think>", "\n\n")
        return tags if self.native else ("",) * len(tags)

    def _call_fields(self, calls: list[ToolCall]) -> str:
        return f'","response":"","done":false{self._calls(calls)}'

    def _whole_contents(self) -> tuple[str, str]:
        content, thinking = super()._whole_contents()
        if not self.native:
            return content, thinking
        return f"<think>{thinking}</think>\n\n{content}" if thinking else content, ""

    def _final(self, content: str, thinking: str, calls: list[ToolCall], logprobs: list[Piece]) -> str:
        thought = f',"thinking":{text(thinking)}' if thinking else ""
        return (
            f'{self._ended()},"response":{text(content)}{thought},"done":true'
            f',"done_reason":"{self.reply.finish}"{self._context()}{self._counters()}'
            f"{self._calls(calls)}{self._logprobs(logprobs)}}}"
        )

    def _context(self) -> str:
        """Return the conversation as tokens, which are characters here."""
        if self.prompt.raw:
            return ""
        given = self.reply.context
        tokens = (
            (*self.body.get("context", ()), *map(ord, counted_text(self.prompt) + self.reply.text))
            if given is None
            else given
        )
        return f',"context":[{",".join(map(str, tokens))}]' if tokens else ""


def _logprob(entry: Logprob, top: int) -> str:
    rivals = ",".join(f"{{{_token(token, logprob)}}}" for token, logprob in entry.top[:top])
    return f"{{{_token(entry.token, entry.logprob)}" + (f',"top_logprobs":[{rivals}]' if rivals else "") + "}"


def _token(token: str, logprob: float) -> str:
    encoded = ",".join(map(str, token.encode()))
    return f'"token":{text(token)},"logprob":{dumps(logprob)}' + (f',"bytes":[{encoded}]' if encoded else "")


def _made_up(token: str) -> Logprob:
    first = -(1 + stable_hash(token) % 999) / 1000
    rivals = [(WORDS[index], first - index - 1) for index in range(19)]
    return Logprob(token, first, ((token, first), *rivals))
