"""Handler of `/v1/responses`, the schema of its requests and the encoder of its replies."""

from __future__ import annotations

from functools import partial
from typing import Any

from mochi_stub.handlers import Result, Stub
from mochi_stub.http import HttpResponse, Request
from mochi_stub.json_encoding import JsonObject, dumps, event
from mochi_stub.models import Model
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.providers import provider_pipeline as pipeline
from mochi_stub.providers.body_validation import integer, schema, string_or, tagged
from mochi_stub.providers.openai import request_schema as requests
from mochi_stub.recorded_reply import ReplyBuilder, get, listed
from mochi_stub.replies.chunks import Piece, token_logprobs
from mochi_stub.reply import Failure, HttpError, Logprob, Reasoning, Text

_PARTS = {
    "input_text": requests.TEXT,
    "output_text": requests.TEXT,
    "input_image": {"image_url": str},
    "input_file": dict,
    "refusal": {"refusal!": str},
}
_CONTENT = string_or([tagged("type", _PARTS)])
_IGNORED_ITEMS = (
    "item_reference",
    "file_search_call",
    "web_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "computer_call",
    "computer_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "tool_search_call",
    "tool_search_output",
    "additional_tools",
    "configuration_update",
    "compaction",
    "compaction_trigger",
    "program",
    "program_output",
)
"""Types of items that have no effect, such as the calls of tools that OpenAI runs itself."""
_ITEMS = {
    "message": {"role!": ("user", "assistant", "system", "developer"), "content!": _CONTENT},
    "function_call": {"call_id!": str, "name!": str, "arguments!": str},
    "function_call_output": {"call_id!": str, "output!": _CONTENT},
    "custom_tool_call": {"call_id!": str, "name!": str, "input!": str},
    "custom_tool_call_output": {"call_id!": str, "output!": _CONTENT},
    "reasoning": {"summary": [requests.TEXT], "content": [requests.TEXT]},
    **dict.fromkeys(_IGNORED_ITEMS, dict),
}
_FORMAT = {
    "text": {},
    "json_object": {},
    "json_schema": {"name!": str, "schema!": dict, "strict": bool},
}
_FUNCTION = {"name!": str, "description": str, "parameters": dict, "strict": bool}
RESPONSE = schema(
    {
        "model": str,
        "input!": string_or([tagged("type", _ITEMS, default="message")]),
        "instructions": str,
        "previous_response_id": str,
        "tools": [tagged("type", {"function": _FUNCTION}, others=dict)],
        "tool_choice": requests.tool_choice(requests.NAMED, requests.ALLOWED),
        "parallel_tool_calls": bool,
        "max_output_tokens": integer(1),
        "max_tool_calls": integer(1),
        "temperature": float,
        "top_p": float,
        "reasoning": {"effort": requests.EFFORT, "summary": str},
        "text": {"format": tagged("type", _FORMAT), "verbosity": str},
        "metadata": dict,
        "store": bool,
        "stream": bool,
        "background": bool,
        "truncation": str,
        "user": str,
        "include": [str],
        "top_logprobs": integer(0, 20),
    }
)
_INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
_DEFAULTS: JsonObject = {
    "background": False,
    "error": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""Fields of a response with the values that they have if the request does not set them.

The service tier is always `default`, which OpenAI also reports for the tier `auto`.
"""
_FIRST_ITEM_ID = 1000
"""Index from which the first item ID is generated.

Indices of call IDs are lower, so that all IDs differ.
"""


def responses(stub: Stub, request: Request, body: JsonObject) -> Result:
    model = requests.chat_model(stub, body, "v1/responses")
    if body.get("background"):
        message = "The stub runs no responses in the background. Leave out `background`."
        raise HttpError(400, message, param="background", code="unsupported_value")
    previous_id = body.get("previous_response_id")
    if previous_id is not None:
        raise HttpError(
            400,
            f"Previous response with id '{previous_id}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    prompt = _prompt(body, model)
    encoder = partial(ResponseEvents, body)
    return pipeline.generate(stub, model, prompt, request, encoder=encoder)


def _prompt(body: JsonObject, model: Model) -> Prompt:
    reasoning = body.get("reasoning", {})
    think = requests.thinking(reasoning.get("effort"), reasoning.get("summary"))
    text_format = body.get("text", {}).get("format", {})
    functions = []
    for tool in body.get("tools", ()):
        if tool["type"] == "function":
            function = pipeline.function_tool(
                tool["name"],
                tool.get("description"),
                tool.get("parameters"),
                strict=tool.get("strict"),
            )
            functions.append(function)
    tools, required_tools = requests.select_tools(body, functions)
    return Prompt(
        model=body.get("model", model.name),
        messages=_messages(body),
        tools=tools,
        required_tools=required_tools,
        requested_thinking=think,
        format=requests.reply_format(text_format.get("type"), text_format),
        options=pipeline.sampling_options(body),
        stream=body.get("stream", False),
    )


def _messages(body: JsonObject) -> tuple[Message, ...]:
    messages = []
    if body.get("instructions"):
        instructions = Message("system", body["instructions"])
        messages.append(instructions)
    items = body["input"]
    if isinstance(items, str):
        return (*messages, Message("user", items))
    for item in items:
        new = _message(item)
        if new is None:
            continue
        if messages and _belong_together(messages[-1], new):
            previous = messages.pop()
            new = _joined(previous, new)
        messages.append(new)
    return tuple(messages)


def _belong_together(first: Message, second: Message) -> bool:
    """Return whether two messages are parts of one message of the model."""
    if first.role != "assistant" or second.role != "assistant":
        return False
    return not first.content or not second.content


def _joined(first: Message, second: Message) -> Message:
    thoughts = filter(None, (first.thinking, second.thinking))
    return Message(
        "assistant",
        content=first.content or second.content,
        thinking="\n".join(thoughts),
        tool_calls=(*first.tool_calls, *second.tool_calls),
    )


def _message(item: JsonObject) -> Message | None:
    """Return the message of an item, or None if its type has no effect."""
    match item["type"]:
        case "message":
            text, images = requests.text_and_images(item["content"])
            role = item["role"]
            if role == "developer":
                role = "system"
            return Message(role, text, images=images)
        case "function_call":
            arguments = requests.arguments(item["arguments"])
            call = ToolCall(item["name"], arguments, item["call_id"])
            return Message("assistant", tool_calls=(call,))
        case "custom_tool_call":
            call = ToolCall(item["name"], {"input": item["input"]}, item["call_id"])
            return Message("assistant", tool_calls=(call,))
        case "function_call_output" | "custom_tool_call_output":
            text, images = requests.text_and_images(item["output"])
            return Message("tool", text, images=images, tool_call_id=item["call_id"])
        case "reasoning":
            parts = item.get("content") or item.get("summary", [])
            lines = [part["text"] for part in parts]
            return Message("assistant", thinking="\n".join(lines))
    return None


def read_recorded(body: Any, builder: ReplyBuilder) -> None:
    """Add a recorded response, or an event of a recorded stream, to a builder.

    Other events and calls of custom tools are ignored.
    """
    response = get(body, "response")
    match get(body, "type"):
        case None:
            for item in listed(body, "output"):
                _read_item(item, builder)
            _read_end(body, builder)
        case "response.function_call_arguments.delta":
            arguments = {"arguments": get(body, "delta")}
            builder.add_call_part(get(body, "item_id"), arguments)
        case "response.output_item.added":
            _read_call(get(body, "item"), builder)
        case "response.completed" | "response.incomplete":
            _read_end(response, builder)
        case "error" | "response.failed":
            error = get(response, "error") or body
            message = get(error, "message") or "the response failed"
            builder.add_failure(message, error)
        case "response.output_text.delta" | "response.refusal.delta":
            builder.add(Text, get(body, "delta"))
        case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
            builder.add(Reasoning, get(body, "delta"))


def _read_end(response: Any, builder: ReplyBuilder) -> None:
    reason = get(response, "incomplete_details", "reason")
    builder.set_outcome(reason, get(response, "usage"))


def _read_item(item: Any, builder: ReplyBuilder) -> None:
    for summary in listed(item, "summary"):
        builder.add(Reasoning, get(summary, "text"))
    for content in listed(item, "content"):
        text = get(content, "text") or get(content, "refusal")
        kind = Reasoning if get(content, "type") == "reasoning_text" else Text
        builder.add(kind, text)
    _read_call(item, builder)


def _read_call(item: Any, builder: ReplyBuilder) -> None:
    if get(item, "type") != "function_call":
        return
    item_id = get(item, "id")
    builder.add_call_part(item_id, item, get(item, "call_id"))


_EVENTS = {
    Reasoning: (
        "rs",
        "summary_index",
        "response.reasoning_summary_text",
        "response.reasoning_summary_part",
    ),
    Text: ("msg", "content_index", "response.output_text", "response.content_part"),
}
"""For each kind of item: the prefix of its ID, its index field, and the events of its text and its
part.
"""


def token_object(entry: Logprob, top: int | None) -> JsonObject:
    """Return OpenAI's object for the log probability of a token, with at most `top`
    alternatives, or all of them for None.
    """
    fields = _token_fields(entry.token, entry.logprob)
    alternatives = []
    for token, logprob in entry.top[:top]:
        alternative = _token_fields(token, logprob)
        alternatives.append(alternative)
    return {**fields, "top_logprobs": alternatives}


def _token_fields(token: str, logprob: float) -> JsonObject:
    encoded = token.encode(errors="replace")
    return {"token": token, "logprob": logprob, "bytes": list(encoded)}


class ResponseEvents(pipeline.EventEncoder):
    """Encoder of a response. ``items`` are the complete items.

    The open item has the kind `open_kind`, the place `target` and the pieces of text `texts`.
    """

    def __init__(self, body: JsonObject, evaluated: pipeline.EvaluatedPrompt) -> None:
        self.evaluated = evaluated
        self.body = body
        self.ids = evaluated.ids
        self.status = "completed"
        if evaluated.reply.finish in _INCOMPLETE_REASONS:
            self.status = "incomplete"
        self.items: list[JsonObject] = []
        self.open_kind: type | None = None
        self.target: JsonObject = {}
        self.texts: list[str] = []
        self.top: int | None = None
        if "message.output_text.logprobs" in body.get("include", ()):
            self.top = body.get("top_logprobs", 0)
        self.logprobs: list[JsonObject] = []
        self.sequence = 0
        counts = evaluated.usage
        self.usage = {
            "input_tokens": counts.input,
            "input_tokens_details": {
                "cached_tokens": counts.cache_read,
                "cache_write_tokens": counts.cache_creation,
            },
            "output_tokens": counts.output,
            "output_tokens_details": {"reasoning_tokens": counts.reasoning},
            "total_tokens": counts.input + counts.output,
        }

    def end(self) -> bytes:
        last = self.start()  # a reply without pieces begins here
        last += self._close(self.status)
        response = self._response(self.status)
        last += self._event(f"response.{self.status}", response=response)
        return last.encode()

    def error(self, failure: Failure) -> bytes:
        code = "server_error"
        if failure.status == 429:
            code = "rate_limit_exceeded"
        response = {
            **self._response("failed"),
            "error": {"code": code, "message": failure.message},
            "usage": None,
        }
        last = self.start()
        last += self._event("response.failed", response=response)
        return last.encode()

    def complete_response(self) -> HttpResponse:
        for piece in pipeline.blocks(self.evaluated.reply):
            self.piece(piece)  # adds to `items`
        self._close(self.status)
        response = self._response(self.status)
        return pipeline.json_response(response)

    def _event(self, name: str, **fields: Any) -> str:
        value = {"type": name, "sequence_number": self.sequence, **fields}
        self.sequence += 1
        return event(value, name)

    def start(self) -> str:
        if self.sequence:
            return ""
        state = self._response("in_progress")
        created = self._event("response.created", response=state)
        in_progress = self._event("response.in_progress", response=state)
        return created + in_progress

    def piece(self, piece: Piece) -> str:
        if piece.kind is ToolCall:
            return self._close() + self._call(piece.value)
        opening = ""
        if self.open_kind is not piece.kind:
            opening = self._close()
            opening += self._begin(piece.kind)
        logprobs = self._logprobs(piece)
        self.texts.append(piece.value)
        self.logprobs += logprobs
        delta = {"delta": piece.value}
        return opening + self._text_event("delta", delta, logprobs)

    def _logprobs(self, piece: Piece) -> list[JsonObject]:
        """Return the log probabilities of the next piece, or [] if the request wants none."""
        if self.top is None or piece.kind is not Text:
            return []
        start = sum(map(len, self.texts))
        per_token = self.evaluated.model.chars_per_token
        objects = []
        for token in token_logprobs(piece, start, per_token):
            entry = token_object(token, self.top)
            objects.append(entry)
        return objects

    def _begin(self, kind: type) -> str:
        prefix, index, self.text_events, self.part_events = _EVENTS[kind]
        self.open_kind = kind
        self.target = {
            "item_id": self._id(prefix),
            "output_index": len(self.items),
            index: 0,
        }
        item = self._item("", "in_progress")
        added = self._item_event("added", item)
        return added + self._part_event("added", "")

    def _close(self, status: str = "completed") -> str:
        if self.open_kind is None:
            return ""
        text = "".join(self.texts)
        item = self._item(text, status)
        ending = self._text_event("done", {"text": text}, self.logprobs)
        ending += self._part_event("done", text)
        ending += self._item_event("done", item)
        self.items.append(item)
        self.open_kind = None
        self.texts = []
        self.logprobs = []
        return ending

    def _item_event(self, name: str, item: JsonObject) -> str:
        index = len(self.items)
        return self._event(f"response.output_item.{name}", output_index=index, item=item)

    def _part_event(self, name: str, text: str) -> str:
        part = self._part(text)
        return self._event(f"{self.part_events}.{name}", **self.target, part=part)

    def _text_event(self, name: str, text: JsonObject, logprobs: list[JsonObject]) -> str:
        fields = {**self.target, **text}
        if self.open_kind is Text:
            fields["logprobs"] = logprobs
        return self._event(f"{self.text_events}.{name}", **fields)

    def _part(self, text: str) -> JsonObject:
        if self.open_kind is Reasoning:
            return {"type": "summary_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self.logprobs}

    def _id(self, prefix: str) -> str:
        index = _FIRST_ITEM_ID + len(self.items)
        return f"{prefix}_{self.ids.id(index, 48)}"

    def _item(self, text: str, status: str) -> JsonObject:
        item_id = self.target["item_id"]
        if self.open_kind is Reasoning:
            summary = [self._part(text)] if text else []
            return {"id": item_id, "type": "reasoning", "summary": summary}
        content = []
        if status != "in_progress":
            content.append(self._part(text))
        return {
            "id": item_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _call(self, call: ToolCall) -> str:
        index = len(self.items)
        generated_id = f"call_{self.ids.id(index + 1, 24)}"
        item = {
            "id": self._id("fc"),
            "type": "function_call",
            "status": "completed",
            "call_id": call.id or generated_id,
            "name": call.name,
            "arguments": dumps(call.arguments),
        }
        target = {"item_id": item["id"], "output_index": index}
        name = "response.function_call_arguments"
        empty_item = {**item, "status": "in_progress", "arguments": ""}
        events = self._item_event("added", empty_item)
        for piece in pipeline.argument_pieces(call):
            events += self._event(f"{name}.delta", **target, delta=piece)
        events += self._event(f"{name}.done", **target, arguments=item["arguments"])
        events += self._item_event("done", item)
        self.items.append(item)
        return events

    def _response(self, status: str) -> JsonObject:
        body = self.body
        incomplete_details = None
        if status == "incomplete":
            incomplete_details = {"reason": _INCOMPLETE_REASONS[self.evaluated.reply.finish]}
        usage = None
        if status != "in_progress":
            usage = self.usage
        response = {
            "id": f"resp_{self.ids.id(0, 48)}",
            "object": "response",
            "created_at": self.ids.start // 10**9,
            "status": status,
            "incomplete_details": incomplete_details,
            "model": self.evaluated.prompt.model,
            "output": list(self.items),
            "reasoning": {"effort": None, "summary": None, **body.get("reasoning", {})},
            "text": {"format": {"type": "text"}, **body.get("text", {})},
            "usage": usage,
        }
        for name, default in _DEFAULTS.items():
            response[name] = body.get(name, default)
        return response
