"""Ollama's API with the bytes of the real server: routes, handlers that run a model, and encoders
of replies.

The checks of a request have the same order as in Ollama.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

from mochi_stub.handlers import ANY, Generation, Routes, Stub
from mochi_stub.http import HttpResponse, Request
from mochi_stub.json_encoding import dumps, go_dumps, go_text, number, quoted, timestamp
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.prompt import Operation, Prompt, ToolCall, count_tokens, counted_text
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
from mochi_stub.providers.ollama.request_schema import checked, effective_options, to_prompt
from mochi_stub.recorded_reply import RecordedFormat, ReplyBuilder, get, line_frame, listed
from mochi_stub.replies import NANOSECONDS_PER_PROMPT_TOKEN, SeededIds, normalised
from mochi_stub.replies.chunks import Piece, pieces, planned_end, token_logprobs
from mochi_stub.reply import Durations, Failure, HttpError, Logprob, Reasoning, Text

STREAM_ERROR = b"application/json"
NOT_DONE = '"done":false'
INPUT_TOO_LONG = "the input length exceeds the context length"
NO_IMAGES = "Multimodal data provided, but model does not support multimodal requests."
NO_EMBEDDINGS = "This server does not support embeddings. Start it with `--embeddings`"


async def generate(
    operation: Operation, stub: Stub, request: Request, body: dict[str, Any]
) -> HttpResponse | Generation:
    """Handle `POST /api/chat` (operation `chat`) or `POST /api/generate` (operation `generate`)."""
    is_chat = operation == "chat"
    if not 0 <= body.get("top_logprobs", 0) <= 20:
        raise HttpError(400, "top_logprobs must be between 0 and 20")
    model = local_model(stub, body.get("model", ""), if_empty=None if is_chat else not_found(""))
    if body.get("raw") and any(body.get(key) for key in ("template", "system", "context")):
        raise HttpError(400, "raw mode does not support template, system, or context")
    ids = stub.seeded_ids(request.body)
    is_empty = not body.get("messages" if is_chat else "prompt")
    content = {"message": {"role": "assistant", "content": ""}} if is_chat else {"response": ""}
    loaded = {
        "model": body["model"],
        "created_at": timestamp(ids.start),
        **content,
        "done": True,
        "done_reason": "load",
    }
    if is_empty and body.get("keep_alive") == 0:
        stub.scheduler.unload(model)
        return json_response({**loaded, "done_reason": "unload"})
    _check_capabilities(body, model, operation)
    options = effective_options(model, body.get("options", {}))
    _check_remote_limit(model, options)
    load = LoadRequest(
        model, options, body.get("keep_alive"), body.get("shift", model.shifts_context)
    )
    lease = await stub.load(load)
    if is_empty:
        return json_response(loaded)
    prompt = to_prompt(body, operation, model, options, request.body)
    try:
        done = _evaluate(stub, lease, body, prompt)
    except pipeline.RefusedPrompt as error:
        if not prompt.stream:
            raise
        # llama-server refuses the prompt after Ollama has started the stream.
        message = go_dumps({"error": error.failure.message}).encode()
        return HttpResponse(error.failure.status, message, STREAM_ERROR, has_length=False)
    generation = done.generation(ReplyLines(done, ids, body, lease.load_duration))
    return generation._replace(error_content_type=STREAM_ERROR) if prompt.stream else generation


def _check_capabilities(body: Mapping[str, Any], model: Model, operation: Operation) -> None:
    name = body["model"]
    if body.get("think") and not model.has_capability("thinking"):
        raise HttpError(400, f"{quoted(name)} does not support thinking")
    if not model.has_capability("completion"):
        raise HttpError(400, f"{quoted(name)} does not support {operation}")
    for field, capability in (("tools", "tools"), ("suffix", "insert")):
        if body.get(field) and not model.has_capability(capability):
            raise HttpError(400, f"{full_name(model.name)} does not support {capability}")


def _check_remote_limit(model: Model, options: Mapping[str, Any]) -> None:
    largest = model.remote.max_num_predict if model.remote else None
    if largest is not None and options.get("num_predict", -1) > largest:
        raise HttpError(400, f"num_predict must be at most {largest}")


def _evaluate(
    stub: Stub, lease: Lease, body: Mapping[str, Any], prompt: Prompt
) -> pipeline.EvaluatedPrompt:
    has_images = any(message.images for message in prompt.messages)
    form = prompt.format
    _require("vision", lease.request.model, has_images, pipeline.RefusedPrompt(400, NO_IMAGES))
    if form not in (None, "json") and not isinstance(form, dict):
        message = (
            f'invalid format: {quoted(dumps(form))}; expected "json" or a valid JSON Schema object'
        )
        raise pipeline.RefusedPrompt(500, message)
    return pipeline.evaluate_prompt(
        stub,
        lease,
        prompt,
        truncate=body.get("truncate", True),
        context_tokens=len(body.get("context", ())),
    )


async def embed(stub: Stub, _request: Request, body: dict[str, Any]) -> HttpResponse:
    """Handle `POST /api/embed`: return a vector of unit length for each input."""
    field = body.get("input")
    inputs = field if isinstance(field, list) else [] if field in (None, "") else [field]
    if not all(isinstance(item, str) for item in inputs):
        raise HttpError(400, "invalid input type")
    lease = await _load(stub, body, if_empty=not_found(""))
    model, room = lease.request.model, int(lease.context * lease.request.model.chars_per_token)
    if not body.get("truncate", True) and any(len(item) > room for item in inputs):
        raise HttpError(400, INPUT_TOO_LONG)
    _require("embedding", model, inputs, HttpError(501, NO_EMBEDDINGS))
    name = body.get("model", "")
    dimensions = max(0, body.get("dimensions", 0)) or None
    arrays = []
    tokens = 0
    for item in inputs:
        vector, count = pipeline.embed_text(stub, model, item[:room], name)
        digits = [number(round(value, 8)) for value in normalised(vector[:dimensions])]
        arrays.append(f"[{','.join(digits)}]")
        tokens += max(count, 1)
    total = lease.load_duration + tokens * NANOSECONDS_PER_PROMPT_TOKEN
    counters = (
        f',"total_duration":{total},"load_duration":{lease.load_duration},'
        f'"prompt_eval_count":{tokens}'
    )
    vectors = ",".join(arrays)
    answer = f'{{"model":{go_text(name)},"embeddings":[{vectors}]{counters if arrays else ""}}}'
    return HttpResponse(200, answer.encode(), JSON)


async def embeddings(stub: Stub, _request: Request, body: dict[str, Any]) -> HttpResponse:
    """Handle `POST /api/embeddings`: return one vector without normalising it."""
    lease = await _load(stub, body)
    model, prompt = lease.request.model, body.get("prompt", "")
    if len(prompt) > lease.context * model.chars_per_token:
        raise HttpError(500, INPUT_TOO_LONG)
    _require("embedding", model, prompt, HttpError(500, NO_EMBEDDINGS))
    vector: list[float] = []
    if prompt:
        vector, _ = pipeline.embed_text(stub, model, prompt, body.get("model", ""))
    digits = ",".join(map(number, vector))
    return HttpResponse(200, f'{{"embedding":[{digits}]}}'.encode(), JSON)


def _require(capability: str, model: Model, inputs: object, error: HttpError) -> None:
    if inputs and not model.has_capability(capability):
        raise error


async def _load(stub: Stub, body: Mapping[str, Any], if_empty: HttpError | None = None) -> Lease:
    name = body.get("model", "")
    not_pulled = HttpError(404, f"model {quoted(name)} not found, try pulling it first")
    model = local_model(stub, name, if_empty=if_empty, if_missing=not_pulled)
    options = effective_options(model, body.get("options", {}))
    return await stub.load(LoadRequest(model, options, body.get("keep_alive")))


@dataclass
class ReplyLines:
    """Encoder of replies for `/api/chat` and `/api/generate`. `load_duration` is in nanoseconds."""

    evaluated: pipeline.EvaluatedPrompt
    ids: SeededIds
    body: Mapping[str, Any]
    load_duration: int

    content_type = b"application/x-ndjson"

    def __post_init__(self) -> None:
        self.prompt = self.evaluated.prompt
        self.model = self.evaluated.model
        self.reply = self.evaluated.reply
        self.start = self.ids.start
        self.top_logprobs = self.body.get("top_logprobs", 0) if self.body.get("logprobs") else None
        self.is_chat = self.prompt.operation == "chat"
        content = '"message":{"role":"assistant","content":' if self.is_chat else '"response":'
        remote = "".join(
            f'"{name}":{go_text(value)},'
            for name, value in models.remote_fields(self.model).items()
        )
        self.head = f'{{"model":{go_text(self.prompt.model)},{remote}"created_at":"'
        self.before_content = f'",{content}'
        self.native = self.model.template_style == "native"
        self.calls = 0
        self.characters = 0  # characters with log probabilities so far
        self.pending_calls: list[ToolCall] = []

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join(
            [self._lines(kind, list(group)) for kind, group in groupby(pieces, itemgetter(0))]
        ).encode()

    def end(self) -> bytes:
        return self._last_line("", "", self.pending_calls, []).encode()

    def error(self, failure: Failure) -> bytes:
        return error_line(failure)

    def complete_response(self) -> HttpResponse:
        reply = self.reply
        sends_calls = self.prompt.tools or self.native or reply.sends_unoffered_calls
        calls = reply.tool_calls if sends_calls else []
        texts = []
        if self.top_logprobs is not None:
            texts = [piece for piece in pieces(reply) if piece.kind in (Reasoning, Text)]
        line = self._last_line(reply.text, reply.reasoning, calls, texts)
        return HttpResponse(200, line.rstrip().encode(), JSON)

    @cached_property
    def planned_end(self) -> int:
        return planned_end(self.reply)

    def _lines(self, kind: type, group: list[Piece]) -> str:
        if kind is ToolCall:
            return "".join([self._call(piece) for piece in group])
        head, start = self.head, self.start
        before = self.before_content + ('"","thinking":' if kind is Reasoning else "")
        after = self._after_content("", NOT_DONE)
        logprobs = (
            repeat("")
            if self.top_logprobs is None
            else [self._logprobs([piece]) for piece in group]
        )
        # without `go_dumps`, which takes five times as long for each line
        return "".join(
            [
                f"{head}{timestamp(start + due)}{before}{go_text(value)}{after}{entries}}}\n"
                for (_, value, due, _), entries in zip(group, logprobs, strict=False)
            ]
        )

    def _call(self, piece: Piece) -> str:
        if self.native:
            self.pending_calls.append(piece.value)
            return ""
        self.calls += 1
        calls = self._calls([piece.value], self.calls - 1)
        return self._line(piece.due, f'""{self._after_content(calls, NOT_DONE)}')

    def _last_line(
        self, content: str, thinking: str, calls: list[ToolCall], text_pieces: list[Piece]
    ) -> str:
        thinking_field = f',"thinking":{go_text(thinking)}' if thinking else ""
        logprobs, counters = self._logprobs(text_pieces), self._counters()
        details = f"{logprobs}{counters}" if self.is_chat else f"{self._context()}{counters}"
        done = f'"done":true,"done_reason":"{self.reply.finish}"{details}'
        after = self._after_content(self._calls(calls), done) + ("" if self.is_chat else logprobs)
        return self._line(self.planned_end, f"{go_text(content)}{thinking_field}{after}")

    def _after_content(self, calls: str, done: str) -> str:
        """Return the fields after the content.

        Tool calls are in the message of a chat, or else at the end.
        """
        return f"{calls}}},{done}" if self.is_chat else f",{done}{calls}"

    def _line(self, due: int, content: str) -> str:
        return f"{self.head}{timestamp(self.start + due)}{self.before_content}{content}}}\n"

    def _calls(self, calls: list[ToolCall], start: int = 0) -> str:
        """Return the field `tool_calls`, or an empty string if there are no calls.

        Missing IDs are generated.
        """
        items = []
        for index, call in enumerate(calls, start):
            generated_id = (
                self.ids.id(index, 32) if self.native else f"call_{self.ids.id(index, 8)}"
            )
            function = {"index": index, "name": call.name, "arguments": call.arguments}
            items.append(
                f'{{"id":{go_text(call.id or generated_id)},"function":{go_dumps(function)}}}'
            )
        return f',"tool_calls":[{",".join(items)}]' if items else ""

    def _logprobs(self, pieces: list[Piece]) -> str:
        if self.top_logprobs is None:
            return ""
        entries = []
        for piece in pieces:
            entries += token_logprobs(piece, self.characters, self.model.chars_per_token)
            self.characters += len(piece.value)
        return (
            f',"logprobs":[{",".join([_logprob(entry, self.top_logprobs) for entry in entries])}]'
            if entries
            else ""
        )

    def _counters(self) -> str:
        usage, times, seconds = self.reply.usage, self.reply.durations, self.evaluated.seconds
        cached = self.evaluated.cached_tokens
        length = pipeline.generated_characters(self.reply, go_dumps)
        prompt_tokens = max(self.evaluated.tokens, 1) if usage.input is None else usage.input
        eval_time = self.planned_end if times.eval is None else times.eval
        planned = (
            prompt_tokens * NANOSECONDS_PER_PROMPT_TOKEN
            if seconds is None
            else round(seconds * 1e9)
        )
        prompt_time = planned if times.prompt_eval is None else times.prompt_eval
        load = self.load_duration if times.load is None else times.load
        counters = {
            "total_duration": load + prompt_time + eval_time
            if times.total is None
            else times.total,
            "load_duration": load,
            "prompt_eval_count": prompt_tokens,
            "prompt_eval_cached_count": None
            if cached is None
            else str(cached),  # Ollama sends a 0, too
            "prompt_eval_duration": prompt_time,
            "eval_count": count_tokens(length, self.model.chars_per_token)
            if usage.output is None
            else usage.output,
            "eval_duration": eval_time,
        }
        return "".join([f',"{key}":{value}' for key, value in counters.items() if value])

    def _context(self) -> str:
        """Return the field `context`.

        By default, it contains one token for each character of the conversation.
        """
        if self.prompt.raw:
            return ""
        tokens = self.reply.context
        if tokens is None:
            tokens = (
                *self.body.get("context", ()),
                *map(ord, counted_text(self.prompt) + self.reply.text),
            )
        return f',"context":[{",".join(map(str, tokens))}]' if tokens else ""


def _logprob(entry: Logprob, top: int) -> str:
    top_entries = ",".join(f"{{{_token(token, logprob)}}}" for token, logprob in entry.top[:top])
    return (
        f"{{{_token(entry.token, entry.logprob)}"
        + (f',"top_logprobs":[{top_entries}]' if top_entries else "")
        + "}"
    )


def _token(token: str, logprob: float) -> str:
    encoded = ",".join(map(str, token.encode(errors="replace")))
    return f'"token":{go_text(token)},"logprob":{go_dumps(logprob)}' + (
        f',"bytes":[{encoded}]' if encoded else ""
    )


def _read_recorded(line: Any, builder: ReplyBuilder) -> None:
    message = get(line, "message") or line
    builder.add(Reasoning, get(message, "thinking"))
    builder.add(Text, get(message, "content"))
    builder.add(Text, get(line, "response"))
    for call in listed(message, "tool_calls"):
        builder.call(len(builder.calls), get(call, "function"), get(call, "id"))
    if get(line, "done"):
        builder.end(get(line, "done_reason"), line)
        durations = {
            name: get(line, f"{name}_duration") for name in ("total", "load", "prompt_eval", "eval")
        }
        builder.durations = Durations(
            **{name: value for name, value in durations.items() if isinstance(value, int)}
        )


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
    "/api/show": {"POST": checked("ShowRequest", schema.SHOW, models.show)},
    "/api/chat": {"POST": checked("ChatRequest", schema.CHAT, partial(generate, "chat"))},
    "/api/generate": {
        "POST": checked("GenerateRequest", schema.GENERATE, partial(generate, "generate"))
    },
    "/api/embed": {"POST": checked("EmbedRequest", schema.EMBED, embed)},
    "/api/embeddings": {"POST": checked("EmbeddingRequest", schema.EMBEDDINGS, embeddings)},
    "/api/pull": {"POST": checked("PullRequest", schema.PULL, models.pull)},
    "/api/push": {"POST": NO_FILES},
    "/api/create": {"POST": checked("CreateRequest", schema.create_fields, models.create)},
    "/api/copy": {"POST": checked("CopyRequest", schema.COPY, models.copy)},
    "/api/delete": {"DELETE": checked("DeleteRequest", schema.DELETE, models.delete)},
    "/api/blobs/*": {ANY: NO_FILES},
}
_RECORDED = {"/api/chat": _LINES, "/api/generate": _LINES}
API = pipeline.Api(("", "/ollama"), _ROUTES, models.error_response, recorded=_RECORDED)
