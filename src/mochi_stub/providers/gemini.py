"""Gemini's API: routes below the API version, schemas of requests, error responses and the encoder
of replies.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from mochi_stub.handlers import ANY, Result, Routes, Stub
from mochi_stub.http import HttpResponse, Request
from mochi_stub.json_encoding import JsonObject, dumps, dumps_line
from mochi_stub.models import Model
from mochi_stub.prompt import Message, Prompt, ToolCall, prompt_tokens
from mochi_stub.providers import provider_pipeline as pipeline
from mochi_stub.providers.body_validation import Check, ValidationError, integer, read, schema
from mochi_stub.recorded_reply import RecordedFormat, ReplyBuilder, event_frame, get, listed
from mochi_stub.replies import SeededIds
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Failure, HttpError, Reasoning, Text

_PART = {
    "text": str,
    "thought": bool,
    "inlineData": dict,
    "fileData": dict,
    "functionCall": {"id": str, "name!": str, "args": dict},
    "functionResponse": {"id": str, "name!": str, "response!": dict},
}
_SIZES = (
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
)
"""Keywords of a schema whose values can be texts, because they are 64-bit integers."""
_CONTENT = {"role": str, "parts": [_PART]}
_DECLARATION = {"name!": str, "description": str, "parameters": dict, "parametersJsonSchema": dict}
_CONFIG = {
    "temperature": float,
    "topP": float,
    "topK": float,
    "seed": float,
    "presencePenalty": float,
    "frequencyPenalty": float,
    "maxOutputTokens": integer(1),
    "stopSequences": [str],
    "responseMimeType": str,
    "responseSchema": dict,
    "responseJsonSchema": object,
    "thinkingConfig": {
        "includeThoughts": bool,
        "thinkingBudget": integer(-1),
        "thinkingLevel": str,
    },
}
_GENERATE = {
    "systemInstruction": _CONTENT,
    "tools": [{"functionDeclarations": [_DECLARATION]}],
    "toolConfig": {"functionCallingConfig": {"mode": str, "allowedFunctionNames": [str]}},
    "generationConfig": _CONFIG,
}
GENERATE = schema({"contents!": [_CONTENT, ...], **_GENERATE})
COUNT = schema({"contents": [_CONTENT, ...], **_GENERATE, "generateContentRequest": GENERATE})
_EMBED = {
    "model": str,
    "content!": _CONTENT,
    "outputDimensionality": integer(1),
    "embedContentConfig": {"outputDimensionality": integer(1)},
}
EMBED = schema(_EMBED)
BATCH = schema({"requests!": [_EMBED, ...]})


def to_prompt(body: JsonObject, name: str, model: Model, *, stream: bool) -> Prompt:
    """Convert a request body to a prompt.

    Raises HttpError if the request has tools that the model does not support.
    """
    functions = _functions(body)
    if functions and not model.has_capability("tools"):
        raise HttpError(400, f"Function calling is not enabled for models/{name}")
    calling = body.get("toolConfig", {}).get("functionCallingConfig", {})
    mode = calling.get("mode", "").lower()
    names = calling.get("allowedFunctionNames") or None
    tools, required_tools = pipeline.choose_tools(functions, mode, names)
    system = content_text(body.get("systemInstruction", {}))
    messages = [Message("system", system)] if system else []
    for content in body["contents"]:
        messages += _messages(content)
    config = body.get("generationConfig", {})
    return Prompt(
        model=name,
        messages=tuple(messages),
        tools=tools,
        required_tools=required_tools,
        requested_thinking=_thinking(config.get("thinkingConfig", {})),
        format=_reply_format(config),
        plain_text=config.get("responseMimeType") == "text/x.enum",
        options=pipeline.sampling_options(config),
        stream=stream,
    )


def _functions(body: JsonObject) -> list[JsonObject]:
    functions = []
    for tool in body.get("tools", ()):
        for declaration in tool.get("functionDeclarations", ()):
            description = declaration.get("description") or None
            parameters = declaration.get("parametersJsonSchema")
            if not parameters:
                parameters = json_schema(declaration.get("parameters")) or None
            function = pipeline.function_tool(declaration["name"], description, parameters)
            functions.append(function)
    return functions


def _thinking(config: JsonObject) -> bool | None:
    if "thinkingBudget" in config:
        return bool(config["thinkingBudget"] != 0)
    if "thinkingLevel" in config or config.get("includeThoughts"):
        return True
    return None


def _reply_format(config: JsonObject) -> Any:
    if "responseSchema" in config:
        return json_schema(config["responseSchema"])
    if "responseJsonSchema" in config:
        return config["responseJsonSchema"]
    if config.get("responseMimeType") == "application/json":
        return "json"
    return None


def json_schema(schema: Any) -> Any:
    """Convert a schema of Gemini to a JSON schema.

    In Gemini, type names are in capitals, sizes are texts, and keywords can be in snake case.
    `nullable` and `propertyOrdering` are left out. Defaults and examples stay as they are.
    """
    if isinstance(schema, list):
        return [json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    converted: JsonObject = {}
    for field, value in schema.items():
        name = _camel_case(field)
        if name == "type" and isinstance(value, str):
            converted[name] = value.lower()
        elif name in _SIZES and isinstance(value, str) and value.isdecimal():
            converted[name] = int(value)
        elif name == "properties" and isinstance(value, dict):
            converted[name] = {key: json_schema(item) for key, item in value.items()}
        elif name in ("default", "example"):
            converted[name] = value
        elif name not in ("nullable", "propertyOrdering"):
            converted[name] = json_schema(value)
    return converted


def _camel_case(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda letter: letter[1].upper(), name)


def _messages(content: JsonObject) -> list[Message]:
    """Return a message for each result of a function, then one for the other parts.

    Content without results always has the latter, which is empty if there are no parts.
    """
    results = []
    others = []
    for part in content.get("parts", ()):
        result = part.get("functionResponse")
        if result:
            results.append(_result_message(result))
        else:
            others.append(part)
    if results and not others:
        return results
    thinking = ""
    images = 0
    calls = []
    for part in others:
        if part.get("thought"):
            thinking += part.get("text", "")
        if "inlineData" in part or "fileData" in part:
            images += 1
        if "functionCall" in part:
            found = part["functionCall"]
            call = ToolCall(found["name"], found.get("args", {}), found.get("id"))
            calls.append(call)
    role = content.get("role", "user")
    if role == "model":
        role = "assistant"
    message = Message(
        role,
        content=content_text(content),
        thinking=thinking,
        images=images,
        tool_calls=tuple(calls),
    )
    return [*results, message]


def _result_message(result: JsonObject) -> Message:
    response = result["response"]
    text = dumps(response)
    values = list(response.values())
    if len(values) == 1 and isinstance(values[0], str):
        text = values[0]  # without quotes
    call_id = result.get("id", "")
    return Message("tool", text, tool_name=result["name"], tool_call_id=call_id)


def content_text(content: JsonObject) -> str:
    """Return the text of a `Content` object, with a line for each part.

    Parts with thoughts are omitted.
    """
    lines = []
    for part in content.get("parts", ()):
        if "text" in part and not part.get("thought"):
            lines.append(part["text"])
    return "\n".join(lines)


_refuse_unknown_path = pipeline.refuse(
    404, "The requested URL {path} was not found on this server."
)
_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
JSON = b"application/json; charset=UTF-8"
json_response = partial(pipeline.json_response, content_type=JSON)

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "INVALID_ARGUMENT",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_STREAM = ":streamGenerateContent"
_LIST_MODELS = "Call ListModels to see the list of available models and their supported methods."


def _list_models(stub: Stub, _request: Request) -> Result:
    """Handle `GET models`: return all models in one page."""
    models = pipeline.list_models(stub)
    page = {"models": list(map(_model_object, models))}
    return json_response(page)


def _show_model(stub: Stub, request: Request) -> Result:
    """Handle `GET models/{model}`. Raises HttpError (404) for an unknown model."""
    version, name = _version_and_name(request)
    missing = HttpError(404, f"Model is not found: models/{name} for api version {version}")
    found = pipeline.find_model(stub.models, name, missing)
    return json_response(_model_object(found))


def _act(stub: Stub, request: Request) -> Result:
    """Handle `POST models/{model}:{action}`.

    Raises HttpError for an unknown action or model, for a model that cannot generate text but
    should, and for an invalid body. Any model counts tokens and returns embeddings.
    """
    version, name_and_action = _version_and_name(request)
    name, _, action = name_and_action.rpartition(":")
    if action not in _ACTIONS:
        return _refuse_unknown_path(stub, request)
    _, check, handler = _ACTIONS[action]
    problem = (
        f"models/{name} is not found for API version {version}, or is not supported for {action}."
    )
    missing = HttpError(404, f"{problem} {_LIST_MODELS}")
    model = pipeline.find_model(stub.models, name, missing)
    if handler is generate and not model.has_capability("completion"):
        raise missing
    body = read(request.body, check)
    return handler(stub, request, model, name, body)


def generate(stub: Stub, request: Request, model: Model, name: str, body: JsonObject) -> Result:
    """Handle `POST models/{model}:generateContent` and `:streamGenerateContent`."""
    is_stream = request.path.endswith(_STREAM)
    prompt = to_prompt(body, name, model, stream=is_stream)
    encoder = partial(Candidates, request, body)
    return pipeline.generate(stub, model, prompt, request, encoder=encoder)


def _count(_stub: Stub, _request: Request, model: Model, name: str, body: JsonObject) -> Result:
    """Handle `POST models/{model}:countTokens`. The request can be in `generateContentRequest`."""
    generate_request = body.get("generateContentRequest", body)
    if "contents" not in generate_request:
        raise ValidationError(("contents",), "a value")
    prompt = to_prompt(generate_request, name, model, stream=False)
    with_defaults = pipeline.with_defaults(prompt, model)
    tokens = prompt_tokens(with_defaults, model.chars_per_token)
    return json_response({"totalTokens": tokens})


async def _embed(
    stub: Stub, _request: Request, model: Model, name: str, body: JsonObject
) -> HttpResponse:
    """Handle `POST models/{model}:embedContent` and `:batchEmbedContents`."""
    await pipeline.load_model(stub, model)
    if "requests" not in body:
        embedding = _embedding(stub, model, name, body)
        return json_response({"embedding": embedding})
    embeddings = []
    for index, item in enumerate(body["requests"]):
        embedding = _embedding(stub, model, name, item, index)
        embeddings.append(embedding)
    return json_response({"embeddings": embeddings})


def _embedding(
    stub: Stub, model: Model, name: str, item: JsonObject, index: int = 0
) -> dict[str, list[float]]:
    dimensions = item.get("outputDimensionality")
    config = item.get("embedContentConfig", {})
    if "outputDimensionality" in config:
        dimensions = config["outputDimensionality"]
    text = content_text(item["content"])
    vector, _ = pipeline.embed_text(stub, model, text, name, index)
    return {"values": pipeline.shortened_vector(vector, dimensions)}


_ACTIONS: dict[
    str, tuple[str, Check, Callable[[Stub, Request, Model, str, JsonObject], Result]]
] = {
    "generateContent": ("completion", GENERATE, generate),
    "streamGenerateContent": ("completion", GENERATE, generate),
    "countTokens": ("completion", COUNT, _count),
    "embedContent": ("embedding", EMBED, _embed),
    "batchEmbedContents": ("embedding", BATCH, _embed),
}
"""For each action on a model: the capability that its list entry requires, the schema of the body,
and the handler.
"""


def _version_and_name(request: Request) -> tuple[str, str]:
    before, _, name = request.path.partition("/models/")
    version = before.removeprefix("/")
    return version, name.removeprefix("models/")


def _model_object(model: Model) -> JsonObject:
    actions = []
    for action, (capability, _, _) in _ACTIONS.items():
        if model.has_capability(capability):
            actions.append(action)
    fields = {
        "name": f"models/{model.name}",
        "version": "001",
        "displayName": model.name,
        "description": f"The stub's model {model.name}",
        "inputTokenLimit": model.context_length,
        "outputTokenLimit": model.context_length,
        "supportedGenerationMethods": actions,
    }
    if model.has_capability("thinking"):
        fields["thinking"] = True
    return fields


def error_response(
    failure: Failure, _ids: SeededIds, request: Request, **_details: object
) -> HttpResponse:
    """Return the response to a failure. For a stream that is a JSON array, the body is an array."""
    body: Any = error_body(failure)
    is_stream = request.method == "POST" and request.path.endswith(_STREAM)
    if is_stream and request.query.get("alt") != "sse":
        body = [body]
    return json_response(body, failure.status, pipeline.headers_of(failure))


def error_body(failure: Failure) -> JsonObject:
    """Return the error object for a response body or a stream.

    For status 429, it contains the delay before a retry.
    """
    default = "FAILED_PRECONDITION"
    if failure.status >= 500:
        default = "INTERNAL"
    error: JsonObject = {
        "code": failure.status,
        "message": failure.message,
        "status": _STATUSES.get(failure.status, default),
    }
    if failure.status == 429:
        headers = dict(pipeline.headers_of(failure))
        seconds = headers[b"retry-after"].decode("latin-1")
        error["details"] = [
            {
                "@type": "type.googleapis.com/google.rpc.RetryInfo",
                "retryDelay": f"{seconds}s",
            }
        ]
    return {"error": error}


class Candidates(pipeline.EventEncoder):
    """Encoder of a reply.

    A stream consists of server-sent events if the request asks for them, or is a JSON array.
    """

    def __init__(
        self, request: Request, body: JsonObject, evaluated: pipeline.EvaluatedPrompt
    ) -> None:
        self.evaluated = evaluated
        self.ids = evaluated.ids
        self.hidden: type | None = Reasoning  # kind of pieces that are not sent
        thinking = body.get("generationConfig", {}).get("thinkingConfig", {})
        if thinking.get("includeThoughts"):
            self.hidden = None
        self.content_type = JSON
        self.sends_events = request.query.get("alt") == "sse"
        if self.sends_events:
            self.content_type = b"text/event-stream"
        self.calls = 0
        self.has_sent = False
        self.common_fields = {
            "modelVersion": evaluated.prompt.model,
            "responseId": self.ids.id(0, 22),
        }

    def piece(self, piece: Piece) -> str:
        if piece.kind is self.hidden:
            return ""
        part = self._part(piece)
        return self._framed(self._response([part]))

    def end(self) -> bytes:
        last = self._last_response([])
        return self._ended(last)

    def error(self, failure: Failure) -> bytes:
        return self._ended(error_body(failure))

    def _ended(self, last: JsonObject) -> bytes:
        ending = self._framed(last)
        if not self.sends_events:
            ending += "]"
        return ending.encode()

    def complete_response(self) -> HttpResponse:
        parts = []
        for piece in pipeline.blocks(self.evaluated.reply):
            if piece.kind is not self.hidden:
                parts.append(self._part(piece))
        return json_response(self._last_response(parts))

    def _framed(self, response: JsonObject) -> str:
        if self.sends_events:
            return f"data: {dumps_line(response)}\r\n\r\n"
        before = ",\r\n" if self.has_sent else "["
        self.has_sent = True
        return f"{before}{dumps(response)}"

    def _response(self, parts: list[JsonObject]) -> JsonObject:
        content = {"parts": parts, "role": "model"}
        candidate = {"content": content, "index": 0}
        return {"candidates": [candidate], **self.common_fields}

    def _last_response(self, parts: list[JsonObject]) -> JsonObject:
        """Return a response with the finish reason and the token counts. Without parts, it has an
        empty text.
        """
        content = {"parts": parts or [{"text": ""}], "role": "model"}
        finish_reason = _FINISH[self.evaluated.reply.finish]
        candidate = {"content": content, "finishReason": finish_reason, "index": 0}
        return {
            "candidates": [candidate],
            "usageMetadata": self._usage(),
            **self.common_fields,
        }

    def _usage(self) -> dict[str, int]:
        counts = self.evaluated.usage
        # Unlike in Gemini's API, the output includes the reasoning, as docs/stub/wires.md says.
        usage = {"promptTokenCount": counts.input, "candidatesTokenCount": counts.output}
        if counts.reasoning:
            usage["thoughtsTokenCount"] = counts.reasoning
        usage["totalTokenCount"] = counts.input + counts.output
        return usage

    def _part(self, piece: Piece) -> JsonObject:
        value = piece.value
        if piece.kind is ToolCall:
            self.calls += 1
            generated_id = self.ids.id(self.calls, 8)
            call = {
                "id": value.id or generated_id,
                "name": value.name,
                "args": value.arguments,
            }
            return {"functionCall": call}
        if piece.kind is Reasoning:
            return {"text": value, "thought": True}
        return {"text": value}


def _read_recorded(body: Any, builder: ReplyBuilder) -> None:
    """Add the parts and the outcome of a recorded response, or of one event, to `builder`."""
    candidate = get(body, "candidates", 0)
    for part in listed(candidate, "content", "parts"):
        kind = Reasoning if get(part, "thought") else Text
        builder.add(kind, get(part, "text"))
        call = get(part, "functionCall")
        if call is not None:
            index = len(builder.calls)
            builder.add_call_part(index, call, get(call, "id"))
    usage = get(body, "usageMetadata")
    builder.set_outcome(get(candidate, "finishReason"), usage)
    text_tokens = get(usage, "candidatesTokenCount")
    thinking_tokens = get(usage, "thoughtsTokenCount")
    if isinstance(text_tokens, int) and isinstance(thinking_tokens, int):
        builder.usage["output"] = text_tokens + thinking_tokens


_ROUTES: Routes = {
    "/models": {"GET": _list_models},
    "/models/*": {"GET": _show_model, "POST": _act},
    "/*": {ANY: _refuse_unknown_path},
}
_refuse_method = pipeline.refuse(
    405, "The request method {method} is inappropriate for the URL {path}."
)
_EVENTS = RecordedFormat(_read_recorded, partial(event_frame, named=False, end="\r\n\r\n"))
_RECORDED = {":generateContent": _EVENTS, _STREAM: _EVENTS}
_MARKS = frozenset({"x-goog-api-key", "x-goog-api-client", "key"})
API = pipeline.Api(
    ("/v1", "/v1beta", "/v1alpha"),
    _ROUTES,
    error_response,
    wrong_method=_refuse_method,
    recorded=_RECORDED,
    client_marks=_MARKS,
)
