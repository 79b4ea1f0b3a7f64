"""Recorded files of one request and its response each, and the conversion of these responses to replies."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, BeforeValidator, Field

from mochi_stub.journal import STUB_ROUTES, masked_query, parsed_body
from mochi_stub.json_encoding import compact_json, dumps, go_dumps
from mochi_stub.prompt import ToolCall
from mochi_stub.replies.chunks import planned_end
from mochi_stub.reply import Durations, Failure, Finish, Frames, Pace, Pause, Reasoning, Reply, Text, ToolCalls, Usage
from mochi_stub.yaml_file import ConfigError, Headers, WatchedFile, parse, plain

MILLISECOND = 1_000_000
Milliseconds: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]
ENDINGS = (".yaml", ".yml", ".json")
PREFIX = "/ollama"
_WITH_CHOICES = ("openai.chat", "openai.completions")
LOCAL_ROUTES = ("/health", STUB_ROUTES)  # requests to these routes are neither recorded nor replayed
_STREAMED = re.compile(r"/(chat|generate|completions|responses|messages)$")
_NOT_REPLAYED = {
    *(b"content-length", b"content-type", b"content-encoding", b"transfer-encoding", b"connection", b"keep-alive"),
    *(b"date", b"server", b"set-cookie", b"access-control-allow-origin", b"vary", b"alt-svc"),
}


@dataclass(frozen=True)
class RequestKey:
    """Parts of a request that identify its recording, without secrets. `body` is without the field `stream`."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    body: Any
    stream: bool

    @cached_property
    def digest(self) -> str:
        text = json.dumps([self.method, self.path, self.query, self.body, self.stream], sort_keys=True)
        return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]

    @property
    def model(self) -> str:
        in_path = re.search(r"/models/([^:/]+):\w+$", self.path)
        name = self.body.get("model", "") if isinstance(self.body, dict) else ""
        return in_path[1] if in_path else name if isinstance(name, str) else ""


def request_key(method: str, path: str, query: str, data: bytes) -> RequestKey:
    """Return the key of a request. Requests that differ only in secrets have equal keys."""
    pairs = tuple(sorted(parse_qsl(masked_query(query.encode("latin-1", "replace")), keep_blank_values=True)))
    path = path.removeprefix(PREFIX) if path.startswith(f"{PREFIX}/") else path
    parsed = parsed_body(data)
    body = data.decode(errors="replace") if parsed is None else parsed
    streamed = path.startswith("/api/")
    if _STREAMED.search(path) and isinstance(body, dict):
        streamed = bool(body.get("stream", streamed))
        body = {key: value for key, value in body.items() if key != "stream"}
    return RequestKey(method, path, pairs, body, streamed or path.endswith(":streamGenerateContent"))


@dataclass(frozen=True)
class Recording:
    """Recorded request and response.

    If the response is a stream, `body` lists the streamed objects. `timestamps` has the time of each object, in
    nanoseconds after the request. `request_path` is the path of the client's request if it differs from that in `url`.
    """

    file: Path
    method: str
    url: str
    request: Any
    status: int
    headers: Mapping[str, str]
    body: Any
    stream: bool
    timestamps: tuple[int, ...]
    request_path: str | None = None

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    @cached_property
    def request_key(self) -> RequestKey:
        body = self.request
        data = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        return request_key(self.method, unquote(self.request_path or self.path), urlsplit(self.url).query, data)

    @cached_property
    def reply(self) -> Reply:
        """Recorded response as a reply that any API can send. Its `frames` are only valid for the recorded API."""
        if self.status >= 400:
            reply = Reply([Pause(max(self.timestamps, default=0) / 1e9), self._failure()])
        elif api_of(self.path) is None:
            reply = Reply([Failure(f"the response recorded at {self.path} is not the reply of a model", 500)])
        else:
            reply = translate(self.path.rstrip("/"), self.body, self.timestamps, stream=self.stream)
        return replace(reply, frames=self.frames)

    @cached_property
    def frames(self) -> Frames:
        """Recorded response as bytes. Only white space between JSON values can differ from the original."""
        api = api_of(self.path) or self.request_path or self.path
        complete = _with_index if api in _WITH_CHOICES else lambda value: value
        values, encode = (self.body, _frame) if self.stream else ([self.body], _body)
        frames = tuple(encode(api, complete(value)) for value in values)
        kind = self.headers.get("content-type") or self._content_type(api)
        encoded = [(name.encode(), text.encode("latin-1")) for name, text in self.headers.items()]
        headers = tuple(header for header in encoded if header[0] not in _NOT_REPLAYED)
        return Frames(api, self.stream, frames, self.timestamps, self.status, kind.encode("latin-1"), headers)

    def _failure(self) -> Failure:
        error = get(self.body, "error")
        message = get(error, "message") or error or get(self.body, "message") or f"error {self.status}"
        retry = [item for item in self.headers.items() if item[0].startswith(("retry-after", "x-ratelimit"))]
        return Failure(message if isinstance(message, str) else go_dumps(message), self.status, tuple(retry))

    def _content_type(self, api: str) -> str:
        if self.stream:
            return "application/x-ndjson" if api.startswith(("ollama", "/")) else "text/event-stream"
        return {str: "text/plain; charset=utf-8", type(None): ""}.get(type(self.body), "application/json")


def recorded(path: Path) -> Recording:
    """Return the recording in a file. The file is read again only after a change. Raises ConfigError."""
    return _watched(path).current()


def recordings_below(folder: Path, excluded: Path) -> tuple[list[Recording], list[str]]:
    """Return all recordings below a folder, except files named like `excluded`, and the errors of invalid files."""
    found: list[Recording] = []
    problems: list[str] = []
    for file in sorted(folder.rglob("*")):
        if file.suffix in ENDINGS and file.name != excluded.name:
            try:
                found.append(recorded(file))
            except ConfigError as error:
                problems.append(str(error))
    return found, problems


@lru_cache(maxsize=4096)
def _watched(path: Path) -> WatchedFile[Recording]:
    return WatchedFile(path, partial(read_recording, path))


class _Request(BaseModel, defer_build=True):
    method: str = "POST"
    url: str
    path: str | None = None
    body: Annotated[Any, BeforeValidator(plain)] = None


class _Response(BaseModel, defer_build=True):
    status: Annotated[int, Field(ge=200, le=599)] = 200
    headers: Headers = Field(default_factory=dict)
    body: Annotated[Any, BeforeValidator(plain)]
    is_streaming: bool | None = None
    at_ms: list[Milliseconds] | None = None


class _Exchange(BaseModel, defer_build=True):
    duration_ms: Milliseconds = 0.0
    request: _Request
    response: _Response


def read_recording(path: Path, data: bytes) -> Recording:
    """Parse the bytes of a recorded file. Raises ConfigError."""
    document = parse(data, str(path))
    exchange = document.validate(_Exchange, document.data)
    request, response = exchange.request, exchange.response
    streams = get(request.body, "stream") is not False and isinstance(response.body, list)
    stream = streams if response.is_streaming is None else response.is_streaming
    if stream and not isinstance(response.body, list):
        raise document.error("a list of objects as the body of a stream", "response", "body")
    objects = len(response.body) if stream else 1
    times = response.at_ms or [exchange.duration_ms * (index + 1) / objects for index in range(objects)]
    if len(times) != objects:
        expected = f"{objects} times, one for each object of the body, found {len(times)}"
        raise document.error(expected, "response", "at_ms")
    timestamps = tuple(round(time * MILLISECOND) for time in times)
    received = (response.status, response.headers, response.body, stream, timestamps)
    return Recording(path, request.method, request.url, request.body, *received, request.path)


def _body(api: str, body: Any) -> bytes:
    if body is None or isinstance(body, str):
        return (body or "").encode()
    return (go_dumps if api.startswith(("ollama", "/api", "/ollama")) else dumps)(body).encode()


def _with_index(value: Any) -> Any:
    """Add the position of each choice of OpenAI's APIs as its index if it has none, because clients require it."""
    choices = get(value, "choices")
    if not isinstance(choices, list) or all("index" in choice for choice in choices if isinstance(choice, dict)):
        return value
    numbered = enumerate(choices)
    return {**value, "choices": [{"index": index, **one} if isinstance(one, dict) else one for index, one in numbered]}


def _frame(api: str, value: Any) -> bytes:
    if api.startswith(("ollama", "/")):
        return _body(api, "null" if value is None else value) + b"\n"
    text = value.replace("\n", "\ndata: ") if isinstance(value, str) else compact_json(value)
    if value == {"done": True}:
        return b"data: [DONE]\n\n" if api in _WITH_CHOICES else b""
    if api == "gemini":
        return f"data: {text}\r\n\r\n".encode()
    kind = None if api in _WITH_CHOICES else get(value, "type")
    return f"event: {kind}\ndata: {text}\n\n".encode() if kind else f"data: {text}\n\n".encode()


_FINISH: Mapping[str, Finish] = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "MAX_TOKENS"), "length"),
    **dict.fromkeys(("content_filter", "refusal", "SAFETY", "PROHIBITED_CONTENT"), "content_filter"),
}
_USAGE = {  # fields of each token count in the usage objects of all providers; dots separate nested fields
    "input": "prompt_tokens input_tokens promptTokenCount prompt_eval_count",
    "output": "completion_tokens output_tokens candidatesTokenCount eval_count",
    "reasoning": "completion_tokens_details.reasoning_tokens output_tokens_details.reasoning_tokens "
    "output_tokens_details.thinking_tokens thoughtsTokenCount",
    "cache_read": "prompt_tokens_details.cached_tokens input_tokens_details.cached_tokens "
    "cache_read_input_tokens cachedContentTokenCount",
    "cache_creation": "cache_creation_input_tokens",
}
_STATUSES = {  # HTTP statuses of errors that occur during a stream
    **dict.fromkeys(("rate_limit_exceeded", "rate_limit_error"), 429),
    **{"invalid_request_error": 400, "overloaded_error": 529},
}


def translate(path: str, body: Any, timestamps: Sequence[int], *, stream: bool) -> Reply:
    """Convert a response body to a reply. `timestamps` has the times of the streamed objects in nanoseconds."""
    _, read = next(reader for end, reader in _READERS.items() if path.endswith(end))
    builder = _ReplyBuilder(stream)
    objects = body if isinstance(body, list) else [body]  # without alt=sse, Gemini sends a list
    for time, item in zip(timestamps if stream else [0] * len(objects), objects, strict=True):
        builder.timestamp = time
        error = get(item, "error")
        if error is None:
            read(item, builder)
        else:
            builder.fail(get(error, "message") or error, error)
    return builder.reply() if stream else _spread(builder.reply(), timestamps[-1])


def api_of(path: str) -> str | None:
    """Return the API of a path, such as "ollama.chat", or None for a path of no model."""
    return next((api for end, (api, _) in _READERS.items() if path.rstrip("/").endswith(end)), None)


def get(value: Any, *path: str | int) -> Any:
    """Return the nested value at `path` in JSON data, or None if the data has no such path."""
    try:
        for step in path:
            value = value[step]
    except (LookupError, TypeError):
        return None
    return value


def _spread(reply: Reply, duration: int) -> Reply:
    length = planned_end(replace(reply, pace=Pace(characters_per_second=1)))
    if duration and not length:
        return replace(reply, parts=[*reply.parts, Pause(duration / 1e9)])
    return replace(reply, pace=Pace(characters_per_second=length / duration) if duration else None)


@dataclass
class _Call:
    id: str | None = None
    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fragments: str = ""

    def finished(self) -> ToolCall:
        arguments: Any = None if self.fragments else self.arguments
        with suppress(json.JSONDecodeError, RecursionError):
            arguments = arguments or json.loads(self.fragments)
        return ToolCall(self.name, arguments if isinstance(arguments, Mapping) else {"_raw": self.fragments}, self.id)


@dataclass
class _ReplyBuilder:
    """Builder of a reply from response objects. `timestamp` is the time of the current object in nanoseconds."""

    stream: bool
    timestamp: int = 0
    last: int = 0
    parts: list[Reasoning | Text | Pause | Failure | ToolCalls] = field(default_factory=list)
    calls: dict[Any, _Call] = field(default_factory=dict)
    finish: Finish = "stop"
    stop_sequence: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    durations: Durations = field(default_factory=Durations)

    def add(self, kind: type[Reasoning] | type[Text], text: Any) -> None:
        if isinstance(text, str) and text:
            self._wait()
            self.parts.append(kind((text,) if self.stream else text))

    def fail(self, message: Any, error: Any) -> None:
        """Add a failure. The code or the type of the recorded error object determines its HTTP status."""
        self._wait()
        code = get(error, "code")
        status = _STATUSES.get(str(code)) or _STATUSES.get(str(get(error, "type"))) or 500
        status = code if isinstance(code, int) and 400 <= code <= 599 else status
        self.parts.append(Failure(message if isinstance(message, str) else json.dumps(message), status))

    def call(self, index: Any, function: Any, id: Any = None) -> None:
        """Add an object with the name or the arguments of a tool call. The arguments can be a fragment of JSON text."""
        call, name = self.calls.setdefault(index, _Call()), get(function, "name")
        call.id = id if isinstance(id, str) and id else call.id
        call.name = name if isinstance(name, str) and name else call.name
        for arguments in (get(function, key) for key in ("arguments", "args", "input", "partial_json")):
            if isinstance(arguments, Mapping):
                call.arguments = arguments
            elif isinstance(arguments, str):
                call.fragments += arguments

    def end(self, reason: Any, usage: Any = None) -> None:
        """Store the finish reason and the token counts that a response contains."""
        self.finish = _FINISH.get(reason, self.finish) if isinstance(reason, str) else self.finish
        for name, paths in _USAGE.items():
            for path in paths.split():
                if isinstance(count := get(usage, *path.split(".")), int):
                    self.usage[name] = count

    def reply(self) -> Reply:
        self._wait()
        if self.calls:
            self.parts.append(ToolCalls([call.finished() for call in self.calls.values()]))
        reply = Reply(self.parts, self.finish, Usage(**self.usage), self.durations, stop_sequence=self.stop_sequence)
        return replace(reply, pace=Pace(characters_per_second=math.inf))

    def _wait(self) -> None:
        if self.timestamp > self.last:
            self.parts.append(Pause((self.timestamp - self.last) / 1e9))
        self.last = self.timestamp


def _listed(value: Any, *path: str) -> list[Any]:
    return found if isinstance(found := get(value, *path), list) else []


def _ollama(line: Any, builder: _ReplyBuilder) -> None:
    message = get(line, "message") or line
    builder.add(Reasoning, get(message, "thinking"))
    builder.add(Text, get(message, "content"))
    builder.add(Text, get(line, "response"))
    for call in _listed(message, "tool_calls"):
        builder.call(len(builder.calls), get(call, "function"), get(call, "id"))
    if get(line, "done"):
        builder.end(get(line, "done_reason"), line)
        durations = {name: get(line, f"{name}_duration") for name in ("total", "load", "prompt_eval", "eval")}
        builder.durations = Durations(**{name: value for name, value in durations.items() if isinstance(value, int)})


def _openai(body: Any, builder: _ReplyBuilder) -> None:
    builder.end(None, get(body, "usage"))
    for choice in _listed(body, "choices"):
        if get(choice, "index") not in (None, 0):
            continue
        message = get(choice, "delta") or get(choice, "message")
        builder.add(Reasoning, get(message, "reasoning_content") or get(message, "reasoning"))
        builder.add(Text, get(message, "content"))
        builder.add(Text, get(choice, "text"))
        for position, call in enumerate(_listed(message, "tool_calls")):
            index = get(call, "index")
            builder.call(position if index is None else index, get(call, "function"), get(call, "id"))
        builder.end(get(choice, "finish_reason"))


def _response(body: Any, builder: _ReplyBuilder) -> None:
    kind, whole = get(body, "type"), get(body, "response")
    if kind is None:
        for item in _listed(body, "output"):
            for summary in _listed(item, "summary"):
                builder.add(Reasoning, get(summary, "text"))
            for content in _listed(item, "content"):
                part = Reasoning if get(content, "type") == "reasoning_text" else Text
                builder.add(part, get(content, "text") or get(content, "refusal"))
            _response_call(item, builder)
        builder.end(get(body, "incomplete_details", "reason"), get(body, "usage"))
    elif kind == "response.function_call_arguments.delta":
        builder.call(get(body, "item_id"), {"arguments": get(body, "delta")})
    elif kind == "response.output_item.added":
        _response_call(get(body, "item"), builder)
    elif kind in ("response.completed", "response.incomplete"):
        builder.end(get(whole, "incomplete_details", "reason"), get(whole, "usage"))
    elif kind in ("error", "response.failed"):
        error = get(whole, "error") or body
        builder.fail(get(error, "message") or "the response failed", error)
    elif str(kind).endswith("text.delta"):
        builder.add(Reasoning if "reasoning" in kind else Text, get(body, "delta"))


def _response_call(item: Any, builder: _ReplyBuilder) -> None:
    if get(item, "type") == "function_call":
        builder.call(get(item, "id"), item, get(item, "call_id"))


def _anthropic(body: Any, builder: _ReplyBuilder) -> None:
    delta, streamed = get(body, "delta"), get(body, "index")
    blocks = [(streamed, get(body, "content_block")), *enumerate(_listed(body, "content")), (streamed, delta)]
    for index, block in blocks:
        builder.add(Text, get(block, "text"))
        builder.add(Reasoning, get(block, "thinking"))
        if get(block, "type") in ("tool_use", "input_json_delta"):
            builder.call(index, block, get(block, "id"))
    builder.stop_sequence = get(delta, "stop_sequence") or get(body, "stop_sequence") or builder.stop_sequence
    usage = get(body, "usage") or get(body, "message", "usage")
    builder.end(get(delta, "stop_reason") or get(body, "stop_reason"), usage)


def _gemini(body: Any, builder: _ReplyBuilder) -> None:
    candidate = get(body, "candidates", 0)
    for part in _listed(candidate, "content", "parts"):
        builder.add(Reasoning if get(part, "thought") else Text, get(part, "text"))
        call = get(part, "functionCall")
        if call is not None:
            builder.call(len(builder.calls), call, get(call, "id"))
    usage = get(body, "usageMetadata")
    builder.end(get(candidate, "finishReason"), usage)
    counts = get(usage, "candidatesTokenCount"), get(usage, "thoughtsTokenCount")
    if all(isinstance(count, int) for count in counts):
        builder.usage["output"] = sum(counts)


_READERS: Mapping[str, tuple[str, Callable[[Any, _ReplyBuilder], None]]] = {  # API and reader by path ending
    "/api/chat": ("ollama.chat", _ollama),
    "/api/generate": ("ollama.generate", _ollama),
    "/chat/completions": ("openai.chat", _openai),
    "/completions": ("openai.completions", _openai),
    "/responses": ("openai.responses", _response),
    "/messages": ("anthropic", _anthropic),
    ":generateContent": ("gemini", _gemini),
    ":streamGenerateContent": ("gemini", _gemini),
}
