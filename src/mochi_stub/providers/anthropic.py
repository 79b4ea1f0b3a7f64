"""Anthropic's API: routes, schemas of requests, error responses and the encoder of replies."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

from mochi_stub.handlers import ANY, Result, Routes, Stub
from mochi_stub.http import Headers, HttpResponse, Request
from mochi_stub.json_encoding import JsonObject, event
from mochi_stub.models import Model
from mochi_stub.prompt import Message, Prompt, ToolCall, prompt_tokens
from mochi_stub.providers import provider_pipeline as pipeline
from mochi_stub.providers.body_validation import checked, integer, schema, string_or, tagged
from mochi_stub.recorded_reply import RecordedFormat, ReplyBuilder, event_frame, get, listed
from mochi_stub.replies import SeededIds
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Failure, HttpError, Reasoning, Reply, Text

_TEXT = {"text!": str}
_SOURCE = {"source!": dict}
_FOUND = {"source!": str, "title!": str, "content!": [tagged("type", {"text": _TEXT})]}
_RESULT = string_or(
    [
        tagged(
            "type",
            {
                "text": _TEXT,
                "image": _SOURCE,
                "document": _SOURCE,
                "search_result": _FOUND,
                "tool_reference": dict,
                "browser_state": dict,
            },
        )
    ]
)
_IGNORED_BLOCKS = (
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "advisor_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
    "mcp_tool_listing",
    "container_upload",
    "compaction",
    "tool_addition",
    "tool_removal",
    "fallback",
)
"""Types of blocks that have no effect, such as the calls of tools that Anthropic runs itself."""
_BLOCKS = {
    "text": _TEXT,
    "image": _SOURCE,
    "document": _SOURCE,
    "search_result": _FOUND,
    "thinking": {"thinking!": str, "signature!": str},
    "redacted_thinking": {"data!": str},
    "tool_use": {"id!": str, "name!": str, "input!": dict},
    "tool_result": {"tool_use_id!": str, "content": _RESULT, "is_error": bool},
    **dict.fromkeys(_IGNORED_BLOCKS, dict),
}
_MESSAGE = {
    "role!": ("user", "assistant", "system"),
    "content!": string_or([tagged("type", _BLOCKS)]),
}
_FUNCTION = {"description": str, "input_schema": dict}
_TOOL = tagged(
    "type",
    {"custom": {"name!": str, **_FUNCTION}},
    default="custom",
    others={"type": str, "name": str, **_FUNCTION},
)
_THINKING = {
    "enabled": {"budget_tokens!": integer(1024)},
    "adaptive": {},
    "between_tools": {},
    "disabled": {},
}
_OUTPUT = {
    "effort": ("low", "medium", "high", "xhigh", "max"),
    "format": tagged("type", {"json_schema": {"schema!": dict}}),
}
_COUNT_FIELDS = {
    "model!": str,
    "messages!": [_MESSAGE, ...],
    "system": string_or([tagged("type", {"text": _TEXT})]),
    "tools": [_TOOL],
    "tool_choice": tagged("type", {"auto": {}, "any": {}, "tool": {"name!": str}, "none": {}}),
    "thinking": tagged("type", _THINKING),
    "thread": dict,
}
_THREAD_DETAILS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
"""Details by which the official clients know that they must send the whole conversation."""
_SERVER_TOOLS = ("web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "advisor_")
"""Beginnings of the types of tools that Anthropic runs itself. Clients run all other tools."""
COUNT = schema(_COUNT_FIELDS)
MESSAGES = schema(
    {
        "max_tokens!": integer(1),
        "messages!": _COUNT_FIELDS["messages!"],
        **_COUNT_FIELDS,
        "stop_sequences": [str],
        "temperature": float,
        "top_p": float,
        "top_k": float,
        "output_config": _OUTPUT,
        "stream": bool,
    }
)


def to_prompt(body: JsonObject, model: Model) -> Prompt:
    """Convert a request body to a prompt.

    Raises HttpError if the model does not support the request.
    """
    name = body["model"]
    if not model.has_capability("completion"):
        raise HttpError(400, f"'{name}' does not support the Messages API.")
    if body.get("tools") and not model.has_capability("tools"):
        raise HttpError(400, f"'{name}' does not support tool use.")
    if body.get("thread") is not None:
        raise HttpError(400, "The stub stores no threads.", details=_THREAD_DETAILS)
    choice = body.get("tool_choice", {"type": "auto"})
    mode = choice["type"]
    _check_budget(body, mode)
    names = None
    if mode == "tool":
        names = [choice["name"]]
    others = []
    for tool in body.get("tools", ()):
        if not _is_function(tool):
            others.append(tool.get("name", ""))
    tools, required_tools = pipeline.choose_tools(_functions(body), mode, names, others)
    reply_format = body.get("output_config", {}).get("format", {})
    return Prompt(
        model=name,
        messages=_all_messages(body),
        tools=tools,
        required_tools=required_tools,
        requested_thinking=_thinking(body),
        format=reply_format.get("schema"),
        options=pipeline.sampling_options(body),
        stream=body.get("stream", False),
    )


def _is_function(tool: JsonObject) -> bool:
    """Return whether a client runs the tool. Toolsets have no name."""
    return "name" in tool and not tool["type"].startswith(_SERVER_TOOLS)


def _functions(body: JsonObject) -> list[JsonObject]:
    """Return the tools that clients run, in the format of chat completions."""
    functions = []
    for tool in body.get("tools", ()):
        if not _is_function(tool):
            continue
        description = tool.get("description") or None
        parameters = tool.get("input_schema")
        function = pipeline.function_tool(tool["name"], description, parameters)
        functions.append(function)
    return functions


def _all_messages(body: JsonObject) -> tuple[Message, ...]:
    messages = []
    system = _joined_text(body.get("system", ""))
    if system:
        messages.append(Message("system", system))
    for item in body["messages"]:
        messages += _messages(item["role"], item["content"])
    return tuple(messages)


def _check_budget(body: JsonObject, tool_choice: str) -> None:
    """Raise HttpError if the budget for thinking contradicts other fields of the request."""
    thinking = body.get("thinking", {})
    budget = thinking.get("budget_tokens", 0)
    largest = body.get("max_tokens", inf)
    if budget >= largest:
        raise HttpError(400, "`max_tokens` must be greater than `thinking.budget_tokens`.")
    if budget and tool_choice in ("any", "tool"):
        raise HttpError(400, "Thinking may not be enabled when tool_choice forces tool use.")


def _thinking(body: JsonObject) -> bool | None:
    thinking = body.get("thinking")
    if not thinking:
        return None
    return bool(thinking["type"] != "disabled")


def _messages(role: str, content: str | list[JsonObject]) -> list[Message]:
    """Return a message for each tool result, then one message, unless all blocks are results."""
    if isinstance(content, str):
        return [Message(role, content)]
    blocks = [block for block in content if block["type"] not in _IGNORED_BLOCKS]
    results = []
    thinking = ""
    calls = []
    for block in blocks:
        match block["type"]:
            case "tool_result":
                output = block.get("content", "")
                result = Message(
                    "tool",
                    content=_joined_text(output),
                    images=_image_count(output),
                    tool_call_id=block["tool_use_id"],
                )
                results.append(result)
            case "thinking":
                thinking += block["thinking"]
            case "tool_use":
                call = ToolCall(block["name"], block["input"], block["id"])
                calls.append(call)
    if results and len(results) == len(blocks):
        return results
    message = Message(
        role,
        content=_joined_text(blocks),
        thinking=thinking,
        images=_image_count(blocks),
        tool_calls=tuple(calls),
    )
    return [*results, message]


def _joined_text(content: str | Iterable[JsonObject]) -> str:
    if isinstance(content, str):
        return content
    lines = []
    for block in content:
        if block["type"] == "text":
            lines.append(block["text"])
        elif block["type"] == "search_result":
            lines.append(_joined_text(block["content"]))
    return "\n".join(lines)


def _image_count(content: str | Iterable[JsonObject]) -> int:
    if isinstance(content, str):
        return 0
    types = [block["type"] for block in content]
    return types.count("image")


_STOP_REASONS = {"length": "max_tokens", "content_filter": "refusal"}
_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def messages(stub: Stub, request: Request, body: JsonObject) -> Result:
    model = find_model(stub, body["model"])
    prompt = to_prompt(body, model)
    return pipeline.generate(stub, model, prompt, request, MessageEvents)


def count_tokens(stub: Stub, request: Request, body: JsonObject) -> Result:
    model = find_model(stub, body["model"])
    prompt = to_prompt(body, model)
    with_defaults = pipeline.with_defaults(prompt, model)
    tokens = prompt_tokens(with_defaults, model.chars_per_token)
    ids = stub.seeded_ids(request.body)
    return json_response({"input_tokens": tokens}, ids)


def models(stub: Stub, request: Request) -> Result:
    """Handle `GET /v1/models` for Anthropic's clients: return all models in one page."""
    models = pipeline.list_models(stub)
    page: JsonObject = {
        "data": list(map(_model_object, models)),
        "has_more": False,
        "first_id": None,
        "last_id": None,
    }
    if models:
        page["first_id"] = models[0].name
        page["last_id"] = models[-1].name
    return json_response(page, stub.seeded_ids(request.body))


def model(stub: Stub, request: Request) -> Result:
    """Handle `GET /v1/models/{id}` for Anthropic's clients."""
    _, _, name = request.path.partition("/models/")
    found = find_model(stub, name)
    ids = stub.seeded_ids(request.body)
    return json_response(_model_object(found), ids)


def _model_object(model: Model) -> JsonObject:
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": f"{model.modified_at[:19]}Z",
        "lifecycle": "active",
    }


def json_response(
    value: Any, ids: SeededIds, status: int = 200, headers: Headers = ()
) -> HttpResponse:
    request_id = _request_id(ids).encode()
    all_headers = ((b"request-id", request_id), *headers)
    return pipeline.json_response(value, status, all_headers)


def error_response(
    failure: Failure,
    ids: SeededIds,
    *_: object,
    details: JsonObject | None = None,
    **_fields: object,
) -> HttpResponse:
    body = error_body(failure, ids)
    if details is not None:
        body["error"]["details"] = details
    headers = pipeline.headers_of(failure)
    return json_response(body, ids, status=failure.status, headers=headers)


def error_body(failure: Failure, ids: SeededIds) -> JsonObject:
    default = "invalid_request_error"
    if failure.status >= 500:
        default = "api_error"
    kind = _TYPES.get(failure.status, default)
    return {
        "type": "error",
        "error": {"type": kind, "message": failure.message},
        "request_id": _request_id(ids),
    }


def _request_id(ids: SeededIds) -> str:
    return f"req_{ids.id(0, 24)}"


def find_model(stub: Stub, name: str) -> Model:
    """Return the model with this name. Raises HttpError for an unknown name."""
    missing = HttpError(404, f"model: {name}")
    return pipeline.find_model(stub.models, name, missing)


class MessageEvents(pipeline.EventEncoder):
    """Encoder of a reply.

    `open` is the kind of the open content block, if any. `index` is the position of the open or
    the next block.
    """

    def __init__(self, evaluated: pipeline.EvaluatedPrompt) -> None:
        self.reply = evaluated.reply
        self.ids = evaluated.ids
        self.started = False
        self.open: type | None = None
        self.index = 0
        self.message: JsonObject = {
            "id": f"msg_{self.ids.id(1, 24)}",
            "type": "message",
            "role": "assistant",
            "model": evaluated.prompt.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        counts = evaluated.usage
        self.usage: JsonObject = {
            "input_tokens": counts.input,
            "cache_creation_input_tokens": counts.cache_creation,
            "cache_read_input_tokens": counts.cache_read,
            "output_tokens": counts.output,
        }
        if counts.reasoning:
            self.usage["output_tokens_details"] = {"thinking_tokens": counts.reasoning}
        self.stop_fields = {
            "stop_reason": _stop_reason(self.reply),
            "stop_sequence": self.reply.stop_sequence,
        }

    def end(self) -> bytes:
        last = self.start() + self._close()
        last += _event("message_delta", delta=self.stop_fields, usage=self.usage)
        last += _event("message_stop")
        return last.encode()

    def error(self, failure: Failure) -> bytes:
        body = error_body(failure, self.ids)
        return event(body, "error").encode()

    def complete_response(self) -> HttpResponse:
        content = []
        for index, piece in enumerate(pipeline.blocks(self.reply)):
            block = self._block(piece.kind, piece.value, index)
            content.append(block)
        message = {**self.message, "content": content, **self.stop_fields, "usage": self.usage}
        return json_response(message, self.ids)

    def start(self) -> str:
        if self.started:
            return ""
        self.started = True
        usage = dict(self.usage)
        usage["output_tokens"] = min(1, usage["output_tokens"])
        usage.pop("output_tokens_details", None)  # only the last event has the final counts
        message = {**self.message, "usage": usage}
        start = _event("message_start", message=message)
        return start + _event("ping")

    def piece(self, piece: Piece) -> str:
        if piece.kind is ToolCall:
            return self._close() + self._call(piece.value)
        opening = ""
        if self.open is not piece.kind:
            opening = self._close()
            empty_block = self._block(piece.kind, "", self.index)
            opening += self._begin(piece.kind, empty_block)
        delta = {"type": "text_delta", "text": piece.value}
        if piece.kind is Reasoning:
            delta = {"type": "thinking_delta", "thinking": piece.value}
        return opening + self._delta(delta)

    def _call(self, call: ToolCall) -> str:
        block = self._block(ToolCall, call, self.index)
        empty_block = {**block, "input": {}}
        events = self._begin(ToolCall, empty_block)
        for piece in ("", *pipeline.argument_pieces(call)):
            events += self._delta({"type": "input_json_delta", "partial_json": piece})
        return events + self._close()

    def _begin(self, kind: type, block: JsonObject) -> str:
        self.open = kind
        return _event("content_block_start", index=self.index, content_block=block)

    def _delta(self, delta: JsonObject) -> str:
        return _event("content_block_delta", index=self.index, delta=delta)

    def _close(self) -> str:
        if self.open is None:
            return ""
        ending = ""
        if self.open is Reasoning:
            signature = self._signature(self.index)
            ending += self._delta({"type": "signature_delta", "signature": signature})
        ending += _event("content_block_stop", index=self.index)
        self.open = None
        self.index += 1
        return ending

    def _block(self, kind: type, value: Any, index: int) -> JsonObject:
        """Return a content block. `value` is a `ToolCall`, or the text of another kind."""
        if kind is ToolCall:
            generated_id = f"toolu_{self.ids.id(10 + index, 24)}"
            return {
                "type": "tool_use",
                "id": value.id or generated_id,
                "name": value.name,
                "input": value.arguments,
            }
        if kind is Reasoning:
            signature = ""
            if value:
                signature = self._signature(index)
            return {"type": "thinking", "thinking": value, "signature": signature}
        return {"type": "text", "text": value}

    def _signature(self, index: int) -> str:
        return self.ids.id(1000 + index, 64)


def _stop_reason(reply: Reply) -> str:
    if reply.stop_sequence is not None:
        return "stop_sequence"
    if reply.finish in _STOP_REASONS:
        return _STOP_REASONS[reply.finish]
    if reply.tool_calls:
        return "tool_use"
    return "end_turn"


def _event(name: str, **fields: Any) -> str:
    return event({"type": name, **fields}, name)


def _read_recorded(body: Any, builder: ReplyBuilder) -> None:
    delta = get(body, "delta")
    index_in_stream = get(body, "index")
    blocks = [
        (index_in_stream, get(body, "content_block")),
        *enumerate(listed(body, "content")),
        (index_in_stream, delta),
    ]
    for index, block in blocks:
        builder.add(Text, get(block, "text"))
        builder.add(Reasoning, get(block, "thinking"))
        kind = get(block, "type")
        # a delta can also belong to the call of a tool that Anthropic runs
        if kind == "tool_use" or (kind == "input_json_delta" and index in builder.calls):
            builder.add_call_part(index, block, get(block, "id"))
    stop_sequence = get(delta, "stop_sequence") or get(body, "stop_sequence")
    if stop_sequence:
        builder.stop_sequence = stop_sequence
    stop_reason = get(delta, "stop_reason") or get(body, "stop_reason")
    usage = get(body, "usage") or get(body, "message", "usage")
    builder.set_outcome(stop_reason, usage)


_UNKNOWN_PATH = pipeline.refuse(404, "Not Found")
_ROUTES: Routes = {
    "/messages": {"POST": checked(MESSAGES, messages)},
    "/messages/count_tokens": {"POST": checked(COUNT, count_tokens)},
    "/messages/*": {ANY: _UNKNOWN_PATH},
    "/models": {"GET": models},
    "/models/*": {"GET": model},
    "/*": {ANY: _UNKNOWN_PATH},
}
_RECORDED = {"/messages": RecordedFormat(_read_recorded, event_frame)}
_WRONG_METHOD = pipeline.refuse(405, "Method Not Allowed")
_MARKS = frozenset({"anthropic-version"})
API = pipeline.Api(
    ("/v1",),
    _ROUTES,
    error_response,
    wrong_method=_WRONG_METHOD,
    recorded=_RECORDED,
    client_marks=_MARKS,
)
