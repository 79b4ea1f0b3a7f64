"""Encoders of JSON responses, and of replies for `/api/chat` and `/api/generate` as a stream or as one object.

The template style of a model determines which line contains tool calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

from mochi_stub.http import Headers, HttpResponse
from mochi_stub.json_encoding import go_dumps, go_text, timestamp
from mochi_stub.prompt import ToolCall, count_tokens, counted_text
from mochi_stub.providers.provider_pipeline import EvaluatedPrompt, generated_characters, headers_of
from mochi_stub.replies import NANOSECONDS_PER_PROMPT_TOKEN, SeededIds
from mochi_stub.replies.chunks import Piece, pieces, planned_end, token_logprobs
from mochi_stub.reply import Failure, Logprob, Reasoning, Text

JSON = b"application/json; charset=utf-8"
STREAM_ERROR = b"application/json"
NDJSON = b"application/x-ndjson"


def json_response(value: object, status: int = 200, headers: Headers = ()) -> HttpResponse:
    return HttpResponse(status, go_dumps(value).encode(), JSON, headers)


def error_response(failure: Failure, *_: object, **_details: object) -> HttpResponse:
    return json_response({"error": failure.message}, failure.status, headers_of(failure))


def error_line(failure: Failure) -> bytes:
    return f'{{"error":{go_text(failure.message)}}}\n'.encode()


@dataclass
class ChatLines:
    """Encoder of replies for `/api/chat`. `load_duration` is in nanoseconds."""

    evaluated: EvaluatedPrompt
    ids: SeededIds
    body: Mapping[str, Any]
    load_duration: int

    content_type = NDJSON

    def __post_init__(self) -> None:
        self.prompt, self.model, self.reply = self.evaluated.prompt, self.evaluated.model, self.evaluated.reply
        self.start = self.ids.start
        self.top_logprobs = self.body.get("top_logprobs", 0) if self.body.get("logprobs") else None
        self.head = f'{{"model":{go_text(self.prompt.model)},"created_at":"'
        self.native = self.model.template_style == "native"
        self.calls = 0
        self.characters = 0  # characters with log probabilities so far
        self.pending_calls: list[ToolCall] = []

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([self._lines(kind, list(group)) for kind, group in groupby(pieces, itemgetter(0))]).encode()

    def end(self) -> bytes:
        return self._final("", "", self.pending_calls, []).encode()

    def error(self, failure: Failure) -> bytes:
        return error_line(failure)

    def complete_response(self) -> HttpResponse:
        reply = self.reply
        calls = reply.tool_calls if self.prompt.tools or self.native or reply.sends_unoffered_calls else []
        has_logprobs = self.top_logprobs is not None
        text_pieces = [piece for piece in pieces(reply) if piece.kind in (Reasoning, Text)] if has_logprobs else []
        return HttpResponse(200, self._final(reply.text, reply.reasoning, calls, text_pieces).rstrip().encode(), JSON)

    @cached_property
    def planned_end(self) -> int:
        return planned_end(self.reply)

    def _lines(self, kind: type, group: list[Piece]) -> str:
        if kind is ToolCall:
            return "".join([self._call(piece) for piece in group])
        before, after = self._frame(thinking=kind is Reasoning)
        if self.top_logprobs is not None:
            texts = [(piece, before + go_text(piece.value)) for piece in group]
            lines = [self._line(piece.due, text, after + self._logprobs([piece])) for piece, text in texts]
        else:  # hot path, therefore without `_line`
            head, start = self.head, self.start
            lines = [f"{head}{timestamp(start + due)}{before}{go_text(value)}{after}}}\n" for _, value, due, _ in group]
        return "".join(lines)

    def _line(self, due: int, *fields: str) -> str:
        return f"{self.head}{timestamp(self.start + due)}{''.join(fields)}}}\n"

    def _call(self, piece: Piece) -> str:
        if self.native:
            self.pending_calls.append(piece.value)
            return ""
        self.calls += 1
        return self._line(piece.due, self._call_fields(self._calls([piece.value], self.calls - 1)))

    def _calls(self, calls: list[ToolCall], start: int = 0) -> str:
        """Return the field `tool_calls`, or an empty string if there are no calls. Missing IDs are generated."""
        items = []
        for index, call in enumerate(calls, start):
            generated_id = self.ids.id(index, 32) if self.native else f"call_{self.ids.id(index, 8)}"
            function = {"index": index, "name": call.name, "arguments": call.arguments}
            items.append(f'{{"id":{go_text(call.id or generated_id)},"function":{go_dumps(function)}}}')
        return f',"tool_calls":[{",".join(items)}]' if items else ""

    def _logprobs(self, pieces: list[Piece]) -> str:
        top = self.top_logprobs or 0
        entries = [_logprob(entry, top) for piece in pieces for entry in self._entries(piece)]
        return f',"logprobs":[{",".join(entries)}]' if entries else ""

    def _entries(self, piece: Piece) -> list[Logprob]:
        self.characters += len(piece.value)
        return token_logprobs(piece, self.characters - len(piece.value), self.model.chars_per_token)

    def _counters(self) -> str:
        usage, times, seconds = self.reply.usage, self.reply.durations, self.evaluated.seconds
        cached = self.evaluated.cached_tokens
        length = generated_characters(self.reply, go_dumps)
        prompt_tokens = max(self.evaluated.tokens, 1) if usage.input is None else usage.input
        eval_time = self.planned_end if times.eval is None else times.eval
        planned = prompt_tokens * NANOSECONDS_PER_PROMPT_TOKEN if seconds is None else round(seconds * 1e9)
        prompt_time = planned if times.prompt_eval is None else times.prompt_eval
        load = self.load_duration if times.load is None else times.load
        counters = {
            "total_duration": load + prompt_time + eval_time if times.total is None else times.total,
            "load_duration": load,
            "prompt_eval_count": prompt_tokens,
            "prompt_eval_cached_count": None if cached is None else str(cached),  # Ollama sends a 0, too
            "prompt_eval_duration": prompt_time,
            "eval_count": count_tokens(length, self.model.chars_per_token) if usage.output is None else usage.output,
            "eval_duration": eval_time,
        }
        return "".join([f',"{key}":{value}' for key, value in counters.items() if value])

    def _frame(self, *, thinking: bool) -> tuple[str, str]:
        key = '"content":"","thinking":' if thinking else '"content":'
        return f'","message":{{"role":"assistant",{key}', '},"done":false'

    def _call_fields(self, calls: str) -> str:
        return f'","message":{{"role":"assistant","content":""{calls}}},"done":false'

    def _final(self, content: str, thinking: str, calls: list[ToolCall], logprobs: list[Piece]) -> str:
        thinking_field = f',"thinking":{go_text(thinking)}' if thinking else ""
        message = f'{{"role":"assistant","content":{go_text(content)}{thinking_field}{self._calls(calls)}}}'
        done = f',"done":true,"done_reason":"{self.reply.finish}"{self._logprobs(logprobs)}{self._counters()}'
        return self._line(self.planned_end, f'","message":{message}', done)


class GenerateLines(ChatLines):
    """Encoder of replies for `/api/generate`."""

    def _frame(self, *, thinking: bool) -> tuple[str, str]:
        key = '"response":"","thinking":' if thinking else '"response":'
        return f'",{key}', ',"done":false'

    def _call_fields(self, calls: str) -> str:
        return f'","response":"","done":false{calls}'

    def _final(self, content: str, thinking: str, calls: list[ToolCall], logprobs: list[Piece]) -> str:
        thinking_field = f',"thinking":{go_text(thinking)}' if thinking else ""
        done = f',"done":true,"done_reason":"{self.reply.finish}"{self._context()}{self._counters()}'
        response = f'","response":{go_text(content)}{thinking_field}'
        return self._line(self.planned_end, response, done, self._calls(calls), self._logprobs(logprobs))

    def _context(self) -> str:
        """Return the field `context`. By default, it contains one token for each character of the conversation."""
        if self.prompt.raw:
            return ""
        tokens = self.reply.context
        if tokens is None:
            tokens = (*self.body.get("context", ()), *map(ord, counted_text(self.prompt) + self.reply.text))
        return f',"context":[{",".join(map(str, tokens))}]' if tokens else ""


def _logprob(entry: Logprob, top: int) -> str:
    top_entries = ",".join(f"{{{_token(token, logprob)}}}" for token, logprob in entry.top[:top])
    return f"{{{_token(entry.token, entry.logprob)}" + (f',"top_logprobs":[{top_entries}]' if top_entries else "") + "}"


def _token(token: str, logprob: float) -> str:
    encoded = ",".join(map(str, token.encode(errors="replace")))
    return f'"token":{go_text(token)},"logprob":{go_dumps(logprob)}' + (f',"bytes":[{encoded}]' if encoded else "")
