"""Gemini's API: routes below the API version, schemas of requests, error responses and the encoder
of replies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from mochi_stub.handlers import ANY, Result, Routes, Stub
from mochi_stub.http import HttpResponse, Request
from mochi_stub.json_encoding import compact_json, dumps
from mochi_stub.models import Model
from mochi_stub.prompt import Message, Prompt, ToolCall, prompt_tokens
from mochi_stub.providers import provider_pipeline as pipeline
from mochi_stub.providers.body_validation import Check, ValidationError, integer, read, schema
from mochi_stub.recorded_reply import RecordedFormat, ReplyBuilder, event_frame, get, listed
from mochi_stub.replies import SeededIds, normalised
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Failure, HttpError, Reasoning, Text

_PART = {
    **{"text": str, "thought": bool, "inlineData": dict, "fileData": dict},
    "functionCall": {"id": str, "name!": str, "args": dict},
    "functionResponse": {"id": str, "name!": str, "response!": dict},
}
_CONTENT = {"role": str, "parts": [_PART]}
_DECLARATION = {"name!": str, "description": str, "parameters": dict, "parametersJsonSchema": dict}
_CONFIG = {
    **dict.fromkeys(
        ("temperature", "topP", "topK", "seed", "presencePenalty", "frequencyPenalty"), float
    ),
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


def to_prompt(body: Mapping[str, Any], name: str, model: Model, *, stream: bool) -> Prompt:
    """Convert a request body to a prompt.

    Raises HttpError if the request has tools that the model does not support.
    """
    declarations: list[Mapping[str, Any]] = []
    for tool in body.get("tools", ()):
        declarations += tool.get("functionDeclarations", ())
    if declarations and not model.has_capability("tools"):
        raise HttpError(400, f"Function calling is not enabled for models/{name}")
    config = body.get("generationConfig", {})
    functions = []
    for item in declarations:
        parameters = item.get("parametersJsonSchema") or json_schema(item.get("parameters")) or None
        functions.append(
            pipeline.function_tool(item["name"], item.get("description") or None, parameters)
        )
    calling = body.get("toolConfig", {}).get("functionCallingConfig", {})
    names = calling.get("allowedFunctionNames") or None
    tools, required_tools = pipeline.choose_tools(functions, calling.get("mode", "").lower(), names)
    thinking, mime_type = config.get("thinkingConfig", {}), config.get("responseMimeType")
    configures_thinking = thinking.keys() & {"thinkingBudget", "thinkingLevel"} or thinking.get(
        "includeThoughts"
    )
    reply_format = config.get(
        "responseJsonSchema", "json" if mime_type == "application/json" else None
    )
    system = content_text(body.get("systemInstruction", {}))
    messages = [Message("system", system)] if system else []
    for content in body["contents"]:
        messages += _messages(content)
    return Prompt(
        model=name,
        messages=tuple(messages),
        tools=tools,
        required_tools=required_tools,
        think=thinking.get("thinkingBudget") != 0 if configures_thinking else None,
        format=json_schema(config["responseSchema"])
        if "responseSchema" in config
        else reply_format,
        plain_text=mime_type == "text/x.enum",
        options=pipeline.options(config),
        stream=stream,
    )


def json_schema(schema: Any) -> Any:
    """Convert a schema of Gemini, in which type names are in capitals, to a JSON schema."""
    if isinstance(schema, list):
        return [json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    converted: dict[str, Any] = {}
    for field, value in schema.items():
        name = re.sub(r"_([a-z0-9])", lambda letter: letter[1].upper(), field)
        if name == "type" and isinstance(value, str):
            converted[name] = value.lower()
        elif name == "properties" and isinstance(value, dict):
            converted[name] = {key: json_schema(item) for key, item in value.items()}
        elif field not in ("nullable", "propertyOrdering"):
            converted[name] = json_schema(value)
    return converted


def _messages(content: Mapping[str, Any]) -> list[Message]:
    results, rest = [], []
    for part in content.get("parts", ()):
        if result := part.get("functionResponse"):
            values = list(
                result["response"].values()
            )  # a single text becomes the content without quotes
            text = (
                values[0]
                if len(values) == 1 and isinstance(values[0], str)
                else dumps(result["response"])
            )
            results.append(
                Message("tool", text, tool_name=result["name"], tool_call_id=result.get("id", ""))
            )
        else:
            rest.append(part)
    if results and not rest:
        return results
    role = content.get("role", "user")
    calls = [part["functionCall"] for part in rest if "functionCall" in part]
    message = Message(
        "assistant" if role == "model" else role,
        content=content_text(content),
        thinking="".join(part.get("text", "") for part in rest if part.get("thought")),
        images=sum("inlineData" in part or "fileData" in part for part in rest),
        tool_calls=tuple(
            ToolCall(call["name"], call.get("args", {}), call.get("id")) for call in calls
        ),
    )
    return [*results, message]


def content_text(content: Mapping[str, Any]) -> str:
    """Return the text of a `Content` object, with a line for each part.

    Parts with thoughts are omitted.
    """
    return "\n".join(
        part["text"]
        for part in content.get("parts", ())
        if "text" in part and not part.get("thought")
    )


Body: TypeAlias = "dict[str, Any]"
_UNKNOWN_PATH = pipeline.refuse(404, "The requested URL {path} was not found on this server.")
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


def models(stub: Stub, _request: Request) -> Result:
    """Handle `GET models`: return all models in one page."""
    return json_response({"models": list(map(_model_object, pipeline.list_models(stub)))})


def model(stub: Stub, request: Request) -> Result:
    version, name = _version_and_name(request)
    missing = HttpError(404, f"Model is not found: models/{name} for api version {version}")
    return json_response(_model_object(pipeline.find_declared(stub.models, name, missing)))


def _verb(stub: Stub, request: Request) -> Result:
    version, name_and_verb = _version_and_name(request)
    name, _, action = name_and_verb.rpartition(":")
    if action not in _VERBS:
        return _UNKNOWN_PATH(stub, request)
    _, check, handler = _VERBS[action]
    problem = (
        f"models/{name} is not found for API version {version}, or is not supported for {action}."
    )
    missing = HttpError(404, f"{problem} {_LIST_MODELS}")
    model = pipeline.find_declared(stub.models, name.removeprefix("models/"), missing)
    if handler is generate and not model.has_capability("completion"):
        raise missing
    return handler(stub, request, model, name, read(request.body, check))


def generate(stub: Stub, request: Request, model: Model, name: str, body: Body) -> Result:
    """Handle `POST models/{model}:generateContent` and `:streamGenerateContent`."""
    prompt = to_prompt(body, name, model, stream=request.path.endswith(_STREAM))
    return pipeline.generate(stub, model, prompt, request, partial(Candidates, request, body))


def _count(_stub: Stub, _request: Request, model: Model, name: str, body: Body) -> Result:
    generate_request = body.get("generateContentRequest", body)
    if "contents" not in generate_request:
        raise ValidationError(("contents",), "a value")
    prompt = pipeline.with_defaults(to_prompt(generate_request, name, model, stream=False), model)
    return json_response({"totalTokens": prompt_tokens(prompt, model.chars_per_token)})


async def _embed(
    stub: Stub, _request: Request, model: Model, _name: str, body: Body
) -> HttpResponse:
    await pipeline.load_model(stub, model)
    if "requests" in body:
        return json_response(
            {"embeddings": [_vector(stub, model, item) for item in body["requests"]]}
        )
    return json_response({"embedding": _vector(stub, model, body)})


def _vector(stub: Stub, model: Model, item: dict[str, Any]) -> dict[str, Any]:
    dimensions = item.get("embedContentConfig", {}).get(
        "outputDimensionality", item.get("outputDimensionality")
    )
    vector, _ = pipeline.embed_text(stub, model, content_text(item["content"]))
    return {"values": normalised(vector[:dimensions])}


_VERBS: dict[str, tuple[str, Check, Callable[[Stub, Request, Model, str, Body], Result]]] = {
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
    return before.removeprefix("/"), name


def _model_object(model: Model) -> dict[str, Any]:
    verbs = [
        verb for verb, (capability, _, _) in _VERBS.items() if model.has_capability(capability)
    ]
    return {
        "name": f"models/{model.name}",
        "version": "001",
        "displayName": model.name,
        "description": f"The stub's model {model.name}",
        "inputTokenLimit": model.context_length,
        "outputTokenLimit": model.context_length,
        "supportedGenerationMethods": verbs,
        **({"thinking": True} if model.has_capability("thinking") else {}),
    }


def error_response(
    failure: Failure, _ids: SeededIds, request: Request, **_details: object
) -> HttpResponse:
    body = error_body(failure)
    is_list = (
        request.method == "POST"
        and request.path.endswith(_STREAM)
        and request.query.get("alt") != "sse"
    )
    return json_response([body] if is_list else body, failure.status, pipeline.headers_of(failure))


def error_body(failure: Failure) -> dict[str, Any]:
    """Return the error object for a response body or a stream.

    For status 429, it contains the delay before a retry.
    """
    status = _STATUSES.get(
        failure.status, "INTERNAL" if failure.status >= 500 else "FAILED_PRECONDITION"
    )
    error: dict[str, Any] = {"code": failure.status, "message": failure.message, "status": status}
    if failure.status == 429:
        delay = dict(pipeline.headers_of(failure))[b"retry-after"].decode("latin-1")
        error["details"] = [
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{delay}s"}
        ]
    return {"error": error}


class Candidates(pipeline.EventEncoder):
    """Encoder of a reply.

    A stream consists of server-sent events if the request asks for them, or is a JSON array.
    """

    def __init__(self, request: Request, body: Body, evaluated: pipeline.EvaluatedPrompt) -> None:
        self.evaluated, self.ids = evaluated, evaluated.ids
        shows_thoughts = (
            body.get("generationConfig", {}).get("thinkingConfig", {}).get("includeThoughts", False)
        )
        self.hidden = None if shows_thoughts else Reasoning
        self.events = request.query.get("alt") == "sse"
        self.content_type = b"text/event-stream" if self.events else JSON
        self.calls = 0
        self.has_sent = False
        self.common_fields = {
            "modelVersion": evaluated.prompt.model,
            "responseId": self.ids.id(0, 22),
        }

    def piece(self, piece: Piece) -> str:
        return (
            "" if piece.kind is self.hidden else self._framed(self._response([self._part(piece)]))
        )

    def end(self) -> bytes:
        return self._ended(self._response([{"text": ""}], is_last=True))

    def error(self, failure: Failure) -> bytes:
        return self._ended(error_body(failure))

    def _ended(self, last: dict[str, Any]) -> bytes:
        closing = "" if self.events else "]"
        return f"{self._framed(last)}{closing}".encode()

    def complete_response(self) -> HttpResponse:
        blocks = pipeline.blocks(self.evaluated.reply)
        parts = [self._part(piece) for piece in blocks if piece.kind is not self.hidden]
        return json_response(self._response(parts or [{"text": ""}], is_last=True))

    def _framed(self, response: dict[str, Any]) -> str:
        if self.events:
            return f"data: {compact_json(response)}\r\n\r\n"
        before = ",\r\n" if self.has_sent else "["
        self.has_sent = True
        return f"{before}{dumps(response)}"

    def _response(self, parts: list[dict[str, Any]], *, is_last: bool = False) -> dict[str, Any]:
        reason = {"finishReason": _FINISH[self.evaluated.reply.finish]} if is_last else {}
        candidate = {"content": {"parts": parts, "role": "model"}, **reason, "index": 0}
        if not is_last:
            return {"candidates": [candidate], **self.common_fields}
        counts = self.evaluated.usage
        usage = {
            "promptTokenCount": counts.input,
            "candidatesTokenCount": counts.output,
            **({"thoughtsTokenCount": counts.reasoning} if counts.reasoning else {}),
            "totalTokenCount": counts.input + counts.output,
        }
        return {"candidates": [candidate], "usageMetadata": usage, **self.common_fields}

    def _part(self, piece: Piece) -> dict[str, Any]:
        value = piece.value
        if piece.kind is ToolCall:
            self.calls += 1
            generated_id = self.ids.id(self.calls, 8)
            return {
                "functionCall": {
                    "id": value.id or generated_id,
                    "name": value.name,
                    "args": value.arguments,
                }
            }
        return {"text": value, "thought": True} if piece.kind is Reasoning else {"text": value}


def _read_recorded(body: Any, builder: ReplyBuilder) -> None:
    candidate = get(body, "candidates", 0)
    for part in listed(candidate, "content", "parts"):
        builder.add(Reasoning if get(part, "thought") else Text, get(part, "text"))
        call = get(part, "functionCall")
        if call is not None:
            builder.call(len(builder.calls), call, get(call, "id"))
    usage = get(body, "usageMetadata")
    builder.end(get(candidate, "finishReason"), usage)
    counts = get(usage, "candidatesTokenCount"), get(usage, "thoughtsTokenCount")
    if all(isinstance(count, int) for count in counts):
        builder.usage["output"] = sum(counts)


_ROUTES: Routes = {
    "/models": {"GET": models},
    "/models/*": {"GET": model, "POST": _verb},
    "/*": {ANY: _UNKNOWN_PATH},
}
_WRONG_METHOD = pipeline.refuse(
    405, "The request method {method} is inappropriate for the URL {path}."
)
_EVENTS = RecordedFormat(_read_recorded, partial(event_frame, named=False, end="\r\n\r\n"))
_RECORDED = {":generateContent": _EVENTS, _STREAM: _EVENTS}
_MARKS = frozenset({"x-goog-api-key", "x-goog-api-client", "key"})
API = pipeline.Api(
    ("/v1", "/v1beta", "/v1alpha"), _ROUTES, error_response, _WRONG_METHOD, _RECORDED, _MARKS
)
