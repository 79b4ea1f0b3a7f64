"""A reply as `/api/chat` and `/api/generate` write it: lines of a stream, or one object.

The three habits (see `catalogue.Habit`) differ in where tool calls stand and what `/api/generate` makes of thinking.
"""

from __future__ import annotations

from dataclasses import dataclass

from mochi_stub.answer import Answer
from mochi_stub.catalogue import Model
from mochi_stub.chunks import Piece, pieces, planned_end
from mochi_stub.lorem import WORDS, stable_hash
from mochi_stub.plan import ALPHANUMERIC, LOAD_DURATION, NANOSECONDS_PER_PROMPT_TOKEN, Plan
from mochi_stub.prompt import Prompt, ToolCall, count_tokens, prompt_tokens, render
from mochi_stub.reply import Failure, Logprob, Reasoning, Reply, Text, joined
from mochi_stub.wire.ollama.gojson import dumps, text, timestamp

JSON = b"application/json; charset=utf-8"
STREAM_ERROR = b"application/json"
NDJSON = b"application/x-ndjson"


@dataclass(frozen=True)
class Subject:
    """What is to be written: the reply, to whom, by which model, and what the request wants to see of it.

    `top_logprobs` is None where no log probabilities are wanted.
    """

    model: Model
    prompt: Prompt
    reply: Reply
    plan: Plan
    top_logprobs: int | None = None
    context: tuple[int, ...] = ()


class _Lines:
    """What both endpoints share. The subclasses know the keys."""

    content_type = NDJSON

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.start = subject.plan.start
        self.head = f'{{"model":{text(subject.prompt.model)},"created_at":"'
        self.native = subject.model.habit == "native"
        self.calls = 0
        self.held: list[ToolCall] = []
        self.thinking = False

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([self._piece(piece) for piece in pieces]).encode()

    def end(self) -> bytes:
        seam = self._seam(opens=False, due=planned_end(self.subject.reply)) if self.thinking else ""
        return f"{seam}{self._final('', '', self.held, [])}\n".encode()

    def error(self, failure: Failure) -> bytes:
        return f'{{"error":{text(failure.message)}}}\n'.encode()

    def refusal(self, failure: Failure, *, stream: bool) -> Answer:
        body = f'{{"error":{text(failure.message)}}}'.encode()
        return Answer(failure.status, body, STREAM_ERROR if stream else JSON, declared=not stream)

    def whole(self) -> Answer:
        subject = self.subject
        calls = subject.reply.tool_calls if subject.prompt.tools or self.native else []
        logprobs = [] if subject.top_logprobs is None else [p for p in pieces(subject.reply) if p.kind is not ToolCall]
        return Answer(200, self._final(self._whole_text(), self._whole_thinking(), calls, logprobs).encode(), JSON)

    def _piece(self, piece: Piece) -> str:
        kind, value, due, _ = piece
        if kind is ToolCall:
            return self._seam_before(False, due) + self._call(value, due)
        seam = self._seam_before(kind is Reasoning, due) if self.thinking is not (kind is Reasoning) else ""
        line = self._content(value, due, thinking=kind is Reasoning, logprobs=self._logprobs([piece]))
        return seam + line if seam else line

    def _seam_before(self, thinking: bool, due: int) -> str:
        if thinking is self.thinking:
            return ""
        self.thinking = thinking
        return self._seam(opens=thinking, due=due)

    def _call(self, call: ToolCall, due: int) -> str:
        if self.native:
            self.held.append(call)
            return ""
        line = self._call_line([call], due)
        self.calls += 1
        return line

    def _calls(self, calls: list[ToolCall]) -> str:
        """`,"tool_calls":[...]`, or nothing; ids that are not given are made up."""
        if not calls:
            return ""
        items = []
        for index, call in enumerate(calls, start=self.calls):
            plan = self.subject.plan
            made_up = plan.id(index, 32, ALPHANUMERIC) if self.native else f"call_{plan.id(index, 8)}"
            function = {"index": index, "name": call.name, "arguments": call.arguments}
            items.append(f'{{"id":{text(call.id or made_up)},"function":{dumps(function)}}}')
        return f',"tool_calls":[{",".join(items)}]'

    def _logprobs(self, shown: list[Piece]) -> str:
        top = self.subject.top_logprobs
        if top is None or not shown:
            return ""
        return (
            ',"logprobs":[' + ",".join(_logprob(piece.logprob or _made_up(piece.value), top) for piece in shown) + "]"
        )

    def _counters(self) -> str:
        subject, reply = self.subject, self.subject.reply
        usage, given = reply.usage, reply.durations
        per_token = subject.model.chars_per_token
        prompted = usage.input or prompt_tokens(subject.prompt, per_token) + len(subject.context)
        evaluated = planned_end(reply) if given.eval is None else given.eval
        prompt_time = prompted * NANOSECONDS_PER_PROMPT_TOKEN if given.prompt_eval is None else given.prompt_eval
        load = LOAD_DURATION if given.load is None else given.load
        output = count_tokens(_produced(reply), per_token) if usage.output is None else usage.output
        counters = {
            "total_duration": load + prompt_time + evaluated if given.total is None else given.total,
            "load_duration": load,
            "prompt_eval_count": prompted,
            "prompt_eval_duration": prompt_time,
            "eval_count": output,
            "eval_duration": evaluated,
        }
        return "".join(f',"{key}":{value}' for key, value in counters.items() if value)

    def _ended(self) -> str:
        return f'{self.head}{timestamp(self.start + planned_end(self.subject.reply))}"'

    def _whole_text(self) -> str:
        return self.subject.reply.text

    def _whole_thinking(self) -> str:
        return self.subject.reply.reasoning

    def _seam(self, *, opens: bool, due: int) -> str:
        raise NotImplementedError

    def _content(self, value: str, due: int, *, thinking: bool, logprobs: str) -> str:
        raise NotImplementedError

    def _call_line(self, calls: list[ToolCall], due: int) -> str:
        raise NotImplementedError

    def _final(self, content: str, thinking: str, calls: list[ToolCall], logprobs: list[Piece]) -> str:
        raise NotImplementedError


class ChatLines(_Lines):
    """`/api/chat`: contents stand in `message`."""

    def _content(self, value: str, due: int, *, thinking: bool, logprobs: str) -> str:
        said = f'"","thinking":{text(value)}' if thinking else text(value)
        return (
            f'{self.head}{timestamp(self.start + due)}","message":{{"role":"assistant","content":{said}}}'
            f',"done":false{logprobs}}}\n'
        )

    def _seam(self, *, opens: bool, due: int) -> str:
        """With a format, Go-rendered models start a second generation behind the thinking, which shows."""
        if opens or self.native or self.subject.prompt.format is None:
            return ""
        return self._content("", due, thinking=False, logprobs="")

    def _call_line(self, calls: list[ToolCall], due: int) -> str:
        message = f'{{"role":"assistant","content":""{self._calls(calls)}}}'
        return f'{self.head}{timestamp(self.start + due)}","message":{message},"done":false}}\n'

    def _final(self, content: str, thinking: str, calls: list[ToolCall], logprobs: list[Piece]) -> str:
        thought = f',"thinking":{text(thinking)}' if thinking else ""
        message = f'{{"role":"assistant","content":{text(content)}{thought}{self._calls(calls)}}}'
        reason = self.subject.reply.finish
        shown = self._logprobs(logprobs)
        return f'{self._ended()},"message":{message},"done":true,"done_reason":"{reason}"{shown}{self._counters()}}}'


class GenerateLines(_Lines):
    """`/api/generate`: contents stand at the top; native models do not have their thinking taken out."""

    def _content(self, value: str, due: int, *, thinking: bool, logprobs: str) -> str:
        said = f'"","thinking":{text(value)}' if thinking and not self.native else text(value)
        return f'{self.head}{timestamp(self.start + due)}","response":{said},"done":false{logprobs}}}\n'

    def _seam(self, *, opens: bool, due: int) -> str:
        if self.subject.model.habit == "builtin":
            return ""
        shown = ("<think>",) if opens else ("</think>", "\n\n")
        values = shown if self.native else [""] * len(shown)
        return "".join(self._content(value, due, thinking=False, logprobs="") for value in values)

    def _call_line(self, calls: list[ToolCall], due: int) -> str:
        return f'{self.head}{timestamp(self.start + due)}","response":"","done":false{self._calls(calls)}}}\n'

    def _whole_text(self) -> str:
        reply = self.subject.reply
        if not self.native or not reply.reasoning:
            return reply.text
        return f"<think>{reply.reasoning}</think>\n\n{reply.text}"

    def _whole_thinking(self) -> str:
        return "" if self.native else self.subject.reply.reasoning

    def _final(self, content: str, thinking: str, calls: list[ToolCall], logprobs: list[Piece]) -> str:
        thought = f',"thinking":{text(thinking)}' if thinking else ""
        return (
            f'{self._ended()},"response":{text(content)}{thought},"done":true'
            f',"done_reason":"{self.subject.reply.finish}"{self._context()}{self._counters()}'
            f"{self._calls(calls)}{self._logprobs(logprobs)}}}"
        )

    def _context(self) -> str:
        """The conversation as tokens, which here are characters."""
        subject, given = self.subject, self.subject.reply.context
        if subject.prompt.raw:
            return ""
        said = render(subject.prompt) + subject.reply.text
        tokens = (*subject.context, *map(ord, said)) if given is None else given
        return f',"context":[{",".join(map(str, tokens))}]' if tokens else ""


def _produced(reply: Reply) -> int:
    """The characters that the model wrote: thinking, text, and its calls as name and JSON."""
    spoken = sum(len(joined(part.content)) for part in reply.parts if isinstance(part, (Reasoning, Text)))
    return spoken + sum(len(call.name) + len(dumps(call.arguments)) for call in reply.tool_calls)


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
