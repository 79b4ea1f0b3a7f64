"""Ollama's API with the bytes of the real server: routes, handlers that run a model, and encoders
of replies.

The checks of a request have the same order as in Ollama.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any

from mochi_stub.handlers import ANY, Generation, Routes, Stub
from mochi_stub.http import HttpResponse, Request
from mochi_stub.json_encoding import JsonObject, dumps, go_dumps, go_text, number, quoted, timestamp
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.prompt import Operation, Prompt, ToolCall, counted_text, to_tokens
from mochi_stub.providers import provider_pipeline as pipeline
from mochi_stub.providers.ollama import models
from mochi_stub.providers.ollama import request_schema as schema
from mochi_stub.providers.ollama.models import (
    JSON,
    error_line,
    full_name,
    json_response,
    local_model,
    not_found,
)
from mochi_stub.providers.ollama.request_schema import (
    effective_options,
    to_prompt,
    with_checked_body,
)
from mochi_stub.recorded_reply import RecordedFormat, ReplyBuilder, get, line_frame, listed
from mochi_stub.replies import NANOSECONDS_PER_PROMPT_TOKEN, SeededIds, normalised
from mochi_stub.replies.chunks import Piece, pieces, planned_end, token_logprobs
from mochi_stub.reply import Durations, Failure, HttpError, Logprob, Reasoning, Text

_STREAM_ERROR_TYPE = b"application/json"
NOT_DONE = '"done":false'
INPUT_TOO_LONG = "the input length exceeds the context length"
NO_IMAGES = "Multimodal data provided, but model does not support multimodal requests."
NO_EMBEDDINGS = "This server does not support embeddings. Start it with `--embeddings`"


async def generate(
    operation: Operation, stub: Stub, request: Request, body: JsonObject
) -> HttpResponse | Generation:
    """Handle `POST /api/chat` (operation `chat`) or `POST /api/generate` (operation `generate`)."""
    if not 0 <= body.get("top_logprobs", 0) <= 20:
        raise HttpError(400, "top_logprobs must be between 0 and 20")
    if operation == "chat":
        model = local_model(stub, body.get("model", ""))
        is_empty = not body.get("messages")
    else:
        model = local_model(stub, body.get("model", ""), if_empty=not_found(""))
        is_empty = not body.get("prompt")
    if body.get("raw"):
        _check_raw(body)
    ids = stub.seeded_ids(request.body)
    if is_empty and body.get("keep_alive") == 0:
        stub.scheduler.unload(model)
        return _empty_reply(body["model"], ids, operation, "unload")
    _check_capabilities(body, model, operation)
    options = effective_options(model, body.get("options", {}))
    _check_remote_limit(model, options)
    load = LoadRequest(
        model,
        options,
        keep_alive=body.get("keep_alive"),
        shift=body.get("shift", model.shifts_context),
    )
    lease = await stub.load(load)
    if is_empty:
        return _empty_reply(body["model"], ids, operation, "load")
    prompt = to_prompt(body, operation, model, options, request=request.body)
    try:
        evaluated = _evaluate(stub, lease, body, prompt)
    except pipeline.RefusedPrompt as error:
        if not prompt.stream:
            raise
        # llama-server refuses the prompt after Ollama has started the stream.
        failure = error.failure
        message = go_dumps({"error": failure.message}).encode()
        return HttpResponse(failure.status, message, _STREAM_ERROR_TYPE, has_length=False)
    encoder = ReplyLines(evaluated, ids, body, load_duration=lease.load_duration)
    generation = evaluated.generation(encoder)
    if not prompt.stream:
        return generation
    return generation._replace(error_content_type=_STREAM_ERROR_TYPE)


def _check_raw(body: JsonObject) -> None:
    for field in ("template", "system", "context"):
        if body.get(field):
            raise HttpError(400, "raw mode does not support template, system, or context")


def _empty_reply(model: str, ids: SeededIds, operation: Operation, reason: str) -> HttpResponse:
    """Return the response to a request that only loads or unloads the model."""
    fields: JsonObject = {"model": model, "created_at": timestamp(ids.start)}
    if operation == "chat":
        fields["message"] = {"role": "assistant", "content": ""}
    else:
        fields["response"] = ""
    return json_response({**fields, "done": True, "done_reason": reason})


def _check_capabilities(body: JsonObject, model: Model, operation: Operation) -> None:
    name = quoted(body["model"])
    if body.get("think") and not model.has_capability("thinking"):
        raise HttpError(400, f"{name} does not support thinking")
    if not model.has_capability("completion"):
        raise HttpError(400, f"{name} does not support {operation}")
    required = []
    if body.get("tools"):
        required.append("tools")
    if body.get("suffix"):
        required.append("insert")
    for capability in required:
        if not model.has_capability(capability):
            raise HttpError(400, f"{full_name(model.name)} does not support {capability}")


def _check_remote_limit(model: Model, options: JsonObject) -> None:
    if model.remote is None or model.remote.max_num_predict is None:
        return
    largest = model.remote.max_num_predict
    if options.get("num_predict", -1) > largest:
        raise HttpError(400, f"num_predict must be at most {largest}")


def _evaluate(
    stub: Stub, lease: Lease, body: JsonObject, prompt: Prompt
) -> pipeline.EvaluatedPrompt:
    model = lease.request.model
    has_images = any(message.images for message in prompt.messages)
    if has_images and not model.has_capability("vision"):
        raise pipeline.RefusedPrompt(400, NO_IMAGES)
    if prompt.format not in (None, "json") and not isinstance(prompt.format, dict):
        found = quoted(dumps(prompt.format))
        message = f'invalid format: {found}; expected "json" or a valid JSON Schema object'
        raise pipeline.RefusedPrompt(500, message)
    earlier_tokens = body.get("context", ())
    return pipeline.evaluate_prompt(
        stub,
        lease,
        prompt,
        truncate=body.get("truncate", True),
        context_tokens=len(earlier_tokens),
    )


async def embed(stub: Stub, _request: Request, body: JsonObject) -> HttpResponse:
    """Handle `POST /api/embed`: return a vector of unit length for each input."""
    inputs = _inputs(body)
    lease = await _load(stub, body, if_empty=not_found(""))
    model = lease.request.model
    room = int(lease.context * model.chars_per_token)
    longest = max(map(len, inputs), default=0)
    if longest > room and not body.get("truncate", True):
        raise HttpError(400, INPUT_TOO_LONG)
    if inputs and not model.has_capability("embedding"):
        raise HttpError(501, NO_EMBEDDINGS)
    name = body.get("model", "")
    dimensions = max(0, body.get("dimensions", 0)) or None
    arrays = []
    tokens = 0
    for index, item in enumerate(inputs):
        vector, count = pipeline.embed_text(stub, model, item[:room], name, index)
        unit_vector = normalised(vector[:dimensions])
        arrays.append(_rounded(unit_vector))
        tokens += max(count, 1)
    answer = f'{{"model":{go_text(name)},"embeddings":{_array(arrays)}'
    if arrays:
        load_time = lease.load_duration
        total_time = load_time + tokens * NANOSECONDS_PER_PROMPT_TOKEN
        answer += f',"total_duration":{total_time},"load_duration":{load_time}'
        answer += f',"prompt_eval_count":{tokens}'
    answer += "}"
    return HttpResponse(200, answer.encode(), JSON)


def _rounded(vector: Iterable[float]) -> str:
    """Return a JSON array of the numbers with eight decimal places."""
    digits = []
    for value in vector:
        rounded = round(value, 8)
        digits.append(number(rounded))
    return _array(digits)


def _inputs(body: JsonObject) -> list[str]:
    inputs = body.get("input")
    if inputs in (None, ""):
        return []
    if not isinstance(inputs, list):
        inputs = [inputs]
    for item in inputs:
        if not isinstance(item, str):
            raise HttpError(400, "invalid input type")
    return inputs


def _array(items: Iterable[str]) -> str:
    """Return a JSON array of encoded items."""
    joined = ",".join(items)
    return f"[{joined}]"


async def embeddings(stub: Stub, _request: Request, body: JsonObject) -> HttpResponse:
    """Handle `POST /api/embeddings`: return one vector without normalising it."""
    lease = await _load(stub, body)
    model = lease.request.model
    prompt = body.get("prompt", "")
    if len(prompt) > lease.context * model.chars_per_token:
        raise HttpError(500, INPUT_TOO_LONG)
    if prompt and not model.has_capability("embedding"):
        raise HttpError(500, NO_EMBEDDINGS)
    vector: list[float] = []
    if prompt:
        name = body.get("model", "")
        vector, _ = pipeline.embed_text(stub, model, prompt, name)
    digits = map(number, vector)
    answer = f'{{"embedding":{_array(digits)}}}'
    return HttpResponse(200, answer.encode(), JSON)


async def _load(stub: Stub, body: JsonObject, if_empty: HttpError | None = None) -> Lease:
    """Load the model of a request for embeddings.

    Raises ``HttpError``: ``if_empty`` is for a request without a model.
    """
    name = body.get("model", "")
    not_pulled = HttpError(404, f"model {quoted(name)} not found, try pulling it first")
    model = local_model(stub, name, if_empty=if_empty, if_missing=not_pulled)
    requested = body.get("options", {})
    options = effective_options(model, requested)
    keep_alive = body.get("keep_alive")
    return await stub.load(LoadRequest(model, options, keep_alive))


@dataclass
class ReplyLines:
    """Encoder of replies for `/api/chat` and `/api/generate`. `load_duration` is in nanoseconds."""

    evaluated: pipeline.EvaluatedPrompt
    ids: SeededIds
    body: JsonObject
    load_duration: int

    content_type = b"application/x-ndjson"

    def __post_init__(self) -> None:
        self.prompt = self.evaluated.prompt
        self.model = self.evaluated.model
        self.reply = self.evaluated.reply
        self.start = self.ids.start
        self.top_logprobs: int | None = None
        if self.body.get("logprobs"):
            self.top_logprobs = self.body.get("top_logprobs", 0)
        self.is_chat = self.prompt.operation == "chat"
        content = '"response":'
        if self.is_chat:
            content = '"message":{"role":"assistant","content":'
        self.before_content = f'",{content}'
        remote = ""
        for name, value in models.remote_fields(self.model).items():
            remote += f'"{name}":{go_text(value)},'
        model_name = go_text(self.prompt.model)
        self.head = f'{{"model":{model_name},{remote}"created_at":"'
        self.native = self.model.template_style == "native"
        self.calls = 0
        self.characters = 0  # characters with log probabilities so far
        self.pending_calls: list[ToolCall] = []

    def chunk(self, pieces: list[Piece]) -> bytes:
        lines = ""
        for kind, group in groupby(pieces, _kind_of):
            lines += self._lines(kind, list(group))
        return lines.encode()

    def end(self) -> bytes:
        return self._last_line("", "", self.pending_calls, []).encode()

    def error(self, failure: Failure) -> bytes:
        return error_line(failure)

    def complete_response(self) -> HttpResponse:
        reply = self.reply
        calls = []
        if self.prompt.tools or self.native or reply.sends_unoffered_calls:
            calls = reply.tool_calls
        texts = []
        if self.top_logprobs is not None:
            for piece in pieces(reply):
                if piece.kind in (Reasoning, Text):
                    texts.append(piece)
        line = self._last_line(reply.text, reply.reasoning, calls, texts)
        return HttpResponse(200, line.rstrip().encode(), JSON)

    @cached_property
    def planned_end(self) -> int:
        return planned_end(self.reply)

    def _lines(self, kind: type, group: list[Piece]) -> str:
        if kind is ToolCall:
            calls = [self._call(piece) for piece in group]
            return "".join(calls)
        head = self.head
        start = self.start
        before = self.before_content
        if kind is Reasoning:
            before += '"","thinking":'
        after = self._after_content("", NOT_DONE)
        logprobs = ""
        lines = []
        # without `go_dumps`, which takes five times as long for each line
        for piece in group:
            if self.top_logprobs is not None:
                logprobs = self._logprobs([piece])
            time = timestamp(start + piece.due)
            lines.append(f"{head}{time}{before}{go_text(piece.value)}{after}{logprobs}}}\n")
        return "".join(lines)

    def _call(self, piece: Piece) -> str:
        """Return the line of a tool call.

        A native template sends all its calls in the last line, so the call waits for `end`.
        """
        if self.native:
            self.pending_calls.append(piece.value)
            return ""
        calls = self._calls([piece.value], self.calls)
        self.calls += 1
        after = self._after_content(calls, NOT_DONE)
        return self._line(piece.due, f'""{after}')

    def _last_line(
        self, content: str, thinking: str, calls: list[ToolCall], text_pieces: list[Piece]
    ) -> str:
        thinking_field = ""
        if thinking:
            thinking_field = f',"thinking":{go_text(thinking)}'
        logprobs = self._logprobs(text_pieces)
        counters = self._counters()
        done = f'"done":true,"done_reason":"{self.reply.finish}"'
        tool_calls = self._calls(calls)
        if self.is_chat:
            after = self._after_content(tool_calls, f"{done}{logprobs}{counters}")
        else:
            context = self._context()
            after = self._after_content(tool_calls, f"{done}{context}{counters}")
            after += logprobs
        return self._line(self.planned_end, f"{go_text(content)}{thinking_field}{after}")

    def _after_content(self, calls: str, done: str) -> str:
        """Return the fields after the content.

        Tool calls are in the message of a chat, or else at the end.
        """
        if self.is_chat:
            return f"{calls}}},{done}"
        return f",{done}{calls}"

    def _line(self, due: int, content: str) -> str:
        time = timestamp(self.start + due)
        return f"{self.head}{time}{self.before_content}{content}}}\n"

    def _calls(self, calls: list[ToolCall], start: int = 0) -> str:
        """Return the field `tool_calls`, or an empty string if there are no calls.

        Missing IDs are generated.
        """
        if not calls:
            return ""
        items = []
        for index, call in enumerate(calls, start):
            call_id = call.id or self._generated_id(index)
            function = {"index": index, "name": call.name, "arguments": call.arguments}
            item = {"id": call_id, "function": function}
            items.append(go_dumps(item))
        return f',"tool_calls":{_array(items)}'

    def _generated_id(self, index: int) -> str:
        if self.native:
            return self.ids.id(index, 32)
        return f"call_{self.ids.id(index, 8)}"

    def _logprobs(self, pieces: list[Piece]) -> str:
        if self.top_logprobs is None:
            return ""
        per_token = self.model.chars_per_token
        entries = []
        for piece in pieces:
            for entry in token_logprobs(piece, self.characters, per_token):
                encoded = _logprob(entry, self.top_logprobs)
                entries.append(encoded)
            self.characters += len(piece.value)
        if not entries:
            return ""
        return f',"logprobs":{_array(entries)}'

    def _counters(self) -> str:
        usage = self.reply.usage
        times = self.reply.durations
        prompt_tokens = _first_set(usage.input, max(self.evaluated.tokens, 1))
        prompt_time = prompt_tokens * NANOSECONDS_PER_PROMPT_TOKEN
        seconds = self.evaluated.seconds
        if seconds is not None:
            prompt_time = round(seconds * 1e9)
        prompt_time = _first_set(times.prompt_eval, prompt_time)
        load_time = _first_set(times.load, self.load_duration)
        eval_time = _first_set(times.eval, self.planned_end)
        total_time = load_time + prompt_time + eval_time
        length = pipeline.generated_characters(self.reply, go_dumps)
        reply_tokens = to_tokens(length, self.model.chars_per_token)
        counters: dict[str, int | str] = {
            "total_duration": _first_set(times.total, total_time),
            "load_duration": load_time,
            "prompt_eval_count": prompt_tokens,
        }
        cached = self.evaluated.cached_tokens
        if cached is not None:
            counters["prompt_eval_cached_count"] = str(cached)  # Ollama sends a 0, too
        counters["prompt_eval_duration"] = prompt_time
        counters["eval_count"] = _first_set(usage.output, reply_tokens)
        counters["eval_duration"] = eval_time
        fields = ""
        for name, value in counters.items():
            if value:
                fields += f',"{name}":{value}'
        return fields

    def _context(self) -> str:
        """Return the field `context`.

        By default, it contains one token for each character of the conversation.
        """
        if self.prompt.raw:
            return ""
        tokens = self.reply.context
        if tokens is None:
            earlier = self.body.get("context", ())
            conversation = counted_text(self.prompt) + self.reply.text
            tokens = (*earlier, *map(ord, conversation))
        if not tokens:
            return ""
        digits = map(str, tokens)
        return f',"context":{_array(digits)}'


def _kind_of(piece: Piece) -> type:
    return piece.kind


def _first_set(configured: int | None, default: int) -> int:
    if configured is None:
        return default
    return configured


def _logprob(entry: Logprob, top: int) -> str:
    fields = _token_fields(entry.token, entry.logprob)
    alternatives = []
    for token, logprob in entry.top[:top]:
        alternative = _token_fields(token, logprob)
        alternatives.append(f"{{{alternative}}}")
    if alternatives:
        fields += f',"top_logprobs":{_array(alternatives)}'
    return f"{{{fields}}}"


def _token_fields(token: str, logprob: float) -> str:
    fields = f'"token":{go_text(token)},"logprob":{go_dumps(logprob)}'
    encoded = token.encode(errors="replace")
    if encoded:
        digits = map(str, encoded)
        fields += f',"bytes":{_array(digits)}'
    return fields


def _read_recorded(line: Any, builder: ReplyBuilder) -> None:
    """Add a line of a recorded reply to the reply that is built."""
    message = get(line, "message") or line
    builder.add(Reasoning, get(message, "thinking"))
    builder.add(Text, get(message, "content"))
    builder.add(Text, get(line, "response"))
    for call in listed(message, "tool_calls"):
        index = len(builder.calls)
        function = get(call, "function")
        builder.add_call_part(index, function, get(call, "id"))
    if get(line, "done"):
        builder.set_outcome(get(line, "done_reason"), line)
        builder.durations = _durations(line)


def _durations(line: Any) -> Durations:
    durations = {}
    for name in ("total", "load", "prompt_eval", "eval"):
        value = get(line, f"{name}_duration")
        if isinstance(value, int):
            durations[name] = value
    return Durations(**durations)


_RUNNING = pipeline.always(HttpResponse(200, b"Ollama is running", b"text/plain; charset=utf-8"))
_VERSION = pipeline.always(json_response({"version": "0.33.3"}))
NO_FILES = pipeline.always(
    json_response({"error": "mochi-stub stores no files and pushes no models"}, 400)
)

_LINES = RecordedFormat(_read_recorded, line_frame, "application/x-ndjson", go_dumps)
_ROUTES: Routes = {
    "/": {"HEAD": _RUNNING, "GET": _RUNNING},
    "/api/version": {"HEAD": _VERSION, "GET": _VERSION},
    "/api/tags": {"HEAD": models.tags, "GET": models.tags},
    "/api/ps": {"GET": models.ps},
    "/api/show": {"POST": with_checked_body("ShowRequest", schema.SHOW, models.show)},
    "/api/chat": {"POST": with_checked_body("ChatRequest", schema.CHAT, partial(generate, "chat"))},
    "/api/generate": {
        "POST": with_checked_body("GenerateRequest", schema.GENERATE, partial(generate, "generate"))
    },
    "/api/embed": {"POST": with_checked_body("EmbedRequest", schema.EMBED, embed)},
    "/api/embeddings": {
        "POST": with_checked_body("EmbeddingRequest", schema.EMBEDDINGS, embeddings)
    },
    "/api/pull": {"POST": with_checked_body("PullRequest", schema.PULL, models.pull)},
    "/api/push": {"POST": NO_FILES},
    "/api/create": {
        "POST": with_checked_body("CreateRequest", schema.create_fields, models.create)
    },
    "/api/copy": {"POST": with_checked_body("CopyRequest", schema.COPY, models.copy)},
    "/api/delete": {"DELETE": with_checked_body("DeleteRequest", schema.DELETE, models.delete)},
    "/api/blobs/*": {ANY: NO_FILES},
}
_RECORDED = {"/api/chat": _LINES, "/api/generate": _LINES}
API = pipeline.Api(("", "/ollama"), _ROUTES, models.error_response, recorded=_RECORDED)
