"""OpenAI's API below `/v1`, as OpenAI's specification describes it: routes, models, embeddings and
completions.
"""

from __future__ import annotations

import base64
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from mochi_stub.handlers import ANY, Generation, Result, Routes, Stub
from mochi_stub.http import Headers, HttpResponse, Request
from mochi_stub.json_encoding import dumps, event
from mochi_stub.models import Model
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.providers import provider_pipeline as pipeline
from mochi_stub.providers.body_validation import checked
from mochi_stub.providers.openai import request_schema as schema
from mochi_stub.providers.openai.responses import RESPONSE, read_recorded, responses, token_object
from mochi_stub.providers.provider_pipeline import Counts, EvaluatedPrompt, evaluate_prompt
from mochi_stub.recorded_reply import RecordedFormat, ReplyBuilder, event_frame, get, listed
from mochi_stub.replies import normalised
from mochi_stub.replies.chunks import Piece, pieces, token_logprobs
from mochi_stub.reply import (
    Choice,
    Failure,
    HttpError,
    Logprob,
    Part,
    Reasoning,
    Reply,
    Text,
    ToolCalls,
)


def models(stub: Stub, _request: Request) -> Result:
    data = [_model_object(model) for model in pipeline.list_models(stub)]
    return pipeline.json_response({"object": "list", "data": data})


def model(stub: Stub, request: Request) -> Result:
    name = request.path.partition("/models/")[2]
    missing = HttpError(404, f"The model '{name}' does not exist", param="model")
    found = pipeline.find_model(stub.models, name, missing)
    return pipeline.json_response(_model_object(found))


async def embeddings(stub: Stub, _request: Request, body: dict[str, Any]) -> HttpResponse:
    model = schema.find_model(stub, body.get("model"), "embedding")
    await pipeline.load_model(stub, model)
    is_base64 = body.get("encoding_format") == "base64"
    data = []
    tokens = 0
    for index, text in enumerate(schema.texts(body["input"])):
        vector, count = pipeline.embed_text(stub, model, text)
        vector = normalised(vector[: body.get("dimensions")])
        tokens += count
        encoded = _base64_floats(vector) if is_base64 else vector
        data.append({"object": "embedding", "index": index, "embedding": encoded})
    result = {
        "object": "list",
        "data": data,
        "model": body.get("model", model.name),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return pipeline.json_response(result)


def _base64_floats(vector: Sequence[float]) -> str:
    data = struct.pack(f"<{len(vector)}f", *vector)
    return base64.b64encode(data).decode()


def _model_object(model: Model) -> dict[str, Any]:
    modified_at = datetime.fromisoformat(f"{model.modified_at[:19]}+00:00")
    return {
        "id": model.name,
        "object": "model",
        "created": int(modified_at.timestamp()),
        "owned_by": "mochi-stub",
    }


class ChunkEncoder(pipeline.EventEncoder):
    """Base class of the encoders of chat and text completions.

    Every chunk begins with `common_fields`.

    `replies` has the reply of each choice. `reasons` has the finish reason of each choice that ends
    in a stream.
    """

    replies: Mapping[int, Reply]
    reasons: Mapping[int, str]
    top: int | None
    characters = 0

    def __init__(
        self, evaluated: EvaluatedPrompt, common_fields: dict[str, Any], counts: Counts, body: Any
    ) -> None:
        self.common_fields = common_fields
        self.per_token = evaluated.model.chars_per_token
        self.usage = {
            "prompt_tokens": counts.input,
            "completion_tokens": counts.output,
            "total_tokens": counts.input + counts.output,
            "prompt_tokens_details": {"cached_tokens": counts.cache_read, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": counts.reasoning,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }
        self.wants_usage = body.get("stream_options", {}).get("include_usage", False)
        self.head = f'data: {dumps(common_fields)[:-1]},"choices":'
        self.tail = ',"usage":null}\n\n' if self.wants_usage else "}\n\n"

    def end(self) -> bytes:
        lines = [self.line(index, "", f'"{reason}"') for index, reason in self.reasons.items()]
        if self.wants_usage:
            lines.append(f'{self.head}[],"usage":{dumps(self.usage)}}}\n\n')
        lines.append("data: [DONE]\n\n")
        return "".join(lines).encode()

    def error(self, failure: Failure) -> bytes:
        return event({"error": schema.failure_error(failure)}).encode()

    def complete_response(self) -> HttpResponse:
        choices = []
        for index, reply in self.replies.items():
            reason = self.reasons.get(index, self.reasons[0])
            choices.append({**self.choice(index, reply), "finish_reason": reason})
        response = {
            **self.common_fields,
            "object": self.common_fields["object"].removesuffix(".chunk"),
            "choices": choices,
            "usage": self.usage,
        }
        return pipeline.json_response(response)

    def tokens(self, pieces: Iterable[Piece]) -> list[Logprob]:
        """Return the log probabilities of the next pieces.

        `top` is None if the request wants no probabilities.
        """
        if self.top is None:
            return []
        found: list[Logprob] = []
        for piece in pieces:
            if piece.kind is Text:
                found += token_logprobs(piece, self.characters, self.per_token)
                self.characters += len(piece.value)
        return found

    def line(self, index: int, content: str, reason: str = "null") -> str:
        """Return a chunk of one choice. The content is JSON, or "" for the last chunk."""
        raise NotImplementedError

    def choice(self, index: int, reply: Reply) -> dict[str, Any]:
        raise NotImplementedError


def chat(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /v1/chat/completions`."""
    model = schema.chat_model(stub, body, "v1/chat/completions")
    response_format = body.get("response_format", {})
    tools, required_tools = schema.select_tools(body.get("tool_choice"), body.get("tools", ()))
    prompt = Prompt(
        model=body.get("model", model.name),
        messages=tuple(map(schema.to_message, body["messages"])),
        tools=tools,
        required_tools=required_tools,
        requested_thinking=schema.thinking(body.get("reasoning_effort")),
        format=schema.reply_format(
            response_format.get("type"), response_format.get("json_schema", {})
        ),
        options=pipeline.sampling_options(body),
        stream=body.get("stream", False),
        allows_choices=True,
    )
    return pipeline.generate(stub, model, prompt, request, partial(ChatChunks, body))


class ChatChunks(ChunkEncoder):
    """Encoder of a chat completion.

    All `n` choices have the same content, unless the reply has scripted choices.
    """

    def __init__(self, body: Mapping[str, Any], evaluated: EvaluatedPrompt) -> None:
        self.top = body.get("top_logprobs", 0) if body.get("logprobs") else None
        self.ids = evaluated.ids
        reply = evaluated.reply
        scripted = _by_choice(reply.parts) if Choice in map(type, reply.parts) else {}
        self.replies = scripted or dict.fromkeys(range(body.get("n", 1)), reply)
        self.choices = (0,) if scripted else tuple(self.replies)
        calls_tools = reply.finish == "stop" and reply.tool_calls and not scripted
        reason = "tool_calls" if calls_tools else reply.finish
        self.reasons = dict.fromkeys(self.choices, reason)
        created = self.ids.start // 10**9
        common_fields = {
            "id": f"gen-{created}-{self.ids.id(0, 20)}",
            "object": "chat.completion.chunk",
            "model": evaluated.prompt.model,
            "created": created,
        }
        counts = evaluated.usage._replace(
            output=evaluated.usage.output * len(self.choices),
            reasoning=evaluated.usage.reasoning * len(self.choices),
        )
        super().__init__(evaluated, common_fields, counts, body)
        self.content_head: str | None = None
        """Cached start of content chunks.

        None if several choices are active, or before the first text of a choice.
        """
        self.content_tail = f'}},"finish_reason":null}}]{self.tail}'
        self.roles_sent: set[int] = set()
        self.calls = 0
        self.calls_of_choice = 0

    def piece(self, piece: Piece) -> str:
        kind = piece.kind
        if kind is Text and self.content_head is not None:
            return f"{self.content_head}{dumps(piece.value)}{self.content_tail}"
        if kind is Choice:
            self.choices = (piece.value.index,)
            self.calls_of_choice = 0
            self.content_head = None
            return ""
        if kind is ToolCall:
            return self._call(piece.value)
        encoded = dumps(piece.value)
        if kind is Reasoning:
            delta = f'"reasoning":{encoded},"reasoning_content":{encoded}'
        else:
            delta = f'"content":{encoded}'
        reason = "null"
        if self.top is not None:
            reason += f',"logprobs":{dumps(self._logprobs([piece]))}'
        chunks = [self.line(index, delta, reason) for index in self.choices]
        if len(self.choices) == 1 and self.top is None:
            self.content_head = f'{self.head}[{{"index":{self.choices[0]},"delta":{{"content":'
        return "".join(chunks)

    def line(self, index: int, content: str, reason: str = "null") -> str:
        """Return a chunk of one choice. The first chunk of a choice has the field `role`."""
        role = '"role":"assistant",' if content and index not in self.roles_sent else ""
        self.roles_sent.add(index)
        choice = f'{{"index":{index},"delta":{{{role}{content}}},"finish_reason":{reason}}}'
        return f"{self.head}[{choice}]{self.tail}"

    def _call(self, call: ToolCall) -> str:
        index = self.calls_of_choice
        entry = {"index": index, "id": self._call_id(call), "type": "function"}
        parts = [{**entry, "function": {"name": call.name, "arguments": ""}}]
        for piece in pipeline.argument_pieces(call):
            parts.append({"index": index, "function": {"arguments": piece}})
        deltas = [f'"tool_calls":{dumps([part])}' for part in parts]
        self.calls_of_choice += 1
        lines = ""
        for choice in self.choices:
            for delta in deltas:
                lines += self.line(choice, delta)
        return lines

    def choice(self, index: int, reply: Reply) -> dict[str, Any]:
        calls = []
        for call in reply.tool_calls:
            function = {"name": call.name, "arguments": dumps(call.arguments)}
            calls.append({"id": self._call_id(call), "type": "function", "function": function})
        message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
        if calls and not reply.text:
            message["content"] = None
        if reply.reasoning:
            message["reasoning"] = reply.reasoning
            message["reasoning_content"] = reply.reasoning
        if calls:
            message["tool_calls"] = calls
        return {"index": index, "message": message, "logprobs": self._logprobs(pieces(reply))}

    def _logprobs(self, pieces: Iterable[Piece]) -> dict[str, Any] | None:
        if self.top is None:
            return None
        content = [token_object(token, self.top) for token in self.tokens(pieces)]
        return {"content": content, "refusal": None}

    def _call_id(self, call: ToolCall) -> str:
        self.calls += 1
        return call.id or f"call_{self.ids.id(self.calls, 24)}"


def _by_choice(parts: Sequence[Part]) -> dict[int, Reply]:
    parts_of_choice = defaultdict[int, list[Part]](list)
    index = 0
    for part in parts:
        if isinstance(part, Choice):
            index = part.index
        parts_of_choice[index].append(part)
    return {index: Reply(parts) for index, parts in parts_of_choice.items()}


async def completions(stub: Stub, request: Request, body: dict[str, Any]) -> Generation:
    """Handle `POST /v1/completions`."""
    model = schema.chat_model(stub, body, "v1/completions")
    template = Prompt(
        model=body.get("model", model.name),
        operation="generate",
        options=pipeline.sampling_options(body),
        stream=body.get("stream", False),
    )
    choices_per_prompt = body.get("n", 1)
    prompts: list[Prompt] = []
    for text in schema.texts(body.get("prompt", "<|endoftext|>")):
        prompt = replace(template, messages=(Message("user", text),))
        with_defaults = pipeline.with_defaults(prompt, model, request.body)
        prompts += [with_defaults] * choices_per_prompt
    lease = await pipeline.load_model(stub, model)
    evaluated = [evaluate_prompt(stub, lease, prompt) for prompt in prompts]
    encoder = CompletionChunks(evaluated, body)
    parts: list[Part] = []
    for index, reply in encoder.replies.items():
        parts += [Choice(index), *reply.parts]
    first = evaluated[0]
    all_choices = replace(first, reply=replace(first.reply, parts=parts[1:]))
    return all_choices.generation(encoder, prompt_tokens=encoder.usage["prompt_tokens"])


class CompletionChunks(ChunkEncoder):
    """Encoder of text completions.

    It sends one choice after the other, without reasoning and tool calls.
    """

    def __init__(self, evaluated: list[EvaluatedPrompt], body: Mapping[str, Any]) -> None:
        self.index = 0
        self.top = body.get("logprobs")
        self.replies = {}
        self.reasons = {}
        for index, choice in enumerate(evaluated):
            parts: list[Part] = [Text(choice.prompt.user_text)] if body.get("echo") else []
            for part in choice.reply.parts:
                if not isinstance(part, (Reasoning, ToolCalls)):
                    parts.append(part)
            self.replies[index] = Reply(parts)
            self.reasons[index] = choice.reply.finish
        first = evaluated[0]
        common_fields = {
            "id": f"cmpl-{first.ids.id(0, 24)}",
            "object": "text_completion",
            "created": first.ids.start // 10**9,
            "model": first.prompt.model,
        }
        usages = [choice.usage for choice in evaluated]
        usages_of_prompts = usages[:: body.get("n", 1)]
        counts = Counts(
            input=sum(usage.input for usage in usages_of_prompts),
            output=sum(usage.output for usage in usages),
            reasoning=sum(usage.reasoning for usage in usages),
            cache_read=sum(usage.cache_read for usage in usages_of_prompts),
            cache_creation=sum(usage.cache_creation for usage in usages_of_prompts),
        )
        super().__init__(first, common_fields, counts, body)

    def piece(self, piece: Piece) -> str:
        if piece.kind is Choice:
            self.index = piece.value.index
            self.characters = 0
            return ""
        return self.line(self.index, dumps(piece.value), logprobs=self._logprobs([piece]))

    def line(
        self, index: int, content: str, reason: str = "null", logprobs: dict[str, Any] | None = None
    ) -> str:
        text = content or '""'
        choice = (
            f'{{"text":{text},"index":{index},"logprobs":{dumps(logprobs)},'
            f'"finish_reason":{reason}}}'
        )
        return f"{self.head}[{choice}]{self.tail}"

    def choice(self, index: int, reply: Reply) -> dict[str, Any]:
        self.characters = 0
        return {"text": reply.text, "index": index, "logprobs": self._logprobs(pieces(reply))}

    def _logprobs(self, pieces: Iterable[Piece]) -> dict[str, Any] | None:
        if self.top is None:
            return None
        offset = self.characters
        offsets = []
        tokens = self.tokens(pieces)
        for token in tokens:
            offsets.append(offset)
            offset += len(token.token)
        return {
            "tokens": [token.token for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [dict(token.top[: self.top]) for token in tokens],
            "text_offset": offsets,
        }


def _read_recorded(body: Any, builder: ReplyBuilder) -> None:
    builder.end(None, get(body, "usage"))
    for choice in listed(body, "choices"):
        if get(choice, "index") not in (None, 0):
            continue
        message = get(choice, "delta") or get(choice, "message")
        builder.add(Reasoning, get(message, "reasoning_content") or get(message, "reasoning"))
        builder.add(Text, get(message, "content"))
        builder.add(Text, get(choice, "text"))
        for position, call in enumerate(listed(message, "tool_calls")):
            index = get(call, "index")
            if index is None:
                index = position
            builder.call(index, get(call, "function"), get(call, "id"))
        builder.end(get(choice, "finish_reason"))


def _with_index(value: Any) -> Any:
    """Add the position of each choice of OpenAI's APIs as its index if it has none, because clients
    require it.
    """
    choices = get(value, "choices")
    if not isinstance(choices, list):
        return value
    numbered = []
    for index, choice in enumerate(choices):
        lacks_index = isinstance(choice, dict) and "index" not in choice
        numbered.append({"index": index, **choice} if lacks_index else choice)
    return {**value, "choices": numbered}


def _headers(stub: Stub, request: Request) -> Headers:
    ids = stub.seeded_ids(request.body)
    request_id = f"req_{ids.id(0, 32)}"
    return ((b"x-request-id", request_id.encode()),)


_ROUTES: Routes = {
    "/chat/completions": {"POST": checked(schema.CHAT, chat)},
    "/completions": {"POST": checked(schema.COMPLETION, completions)},
    "/responses": {"POST": checked(RESPONSE, responses)},
    "/embeddings": {"POST": checked(schema.EMBEDDING, embeddings)},
    "/models": {"GET": models},
    "/models/*": {"GET": model},
    "/*": {ANY: pipeline.refuse(404, "Invalid URL ({method} {path})", code=None)},
}
_WRONG_METHOD = pipeline.refuse(
    405, "Not allowed to {method} on {path}.", code="method_not_supported"
)
_CHUNKS = RecordedFormat(
    _read_recorded,
    frame=lambda value: event_frame(_with_index(value), named=False, done="data: [DONE]\n\n"),
    encode=lambda value: dumps(_with_index(value)),
)
_RECORDED = {
    "/chat/completions": _CHUNKS,
    "/completions": _CHUNKS,
    "/responses": RecordedFormat(read_recorded, event_frame),
}
API = pipeline.Api(
    ("/v1",),
    _ROUTES,
    schema.error_response,
    wrong_method=_WRONG_METHOD,
    recorded=_RECORDED,
    headers=_headers,
)
