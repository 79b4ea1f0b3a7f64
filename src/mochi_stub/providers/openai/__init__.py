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
from mochi_stub.json_encoding import JsonObject, dumps, event
from mochi_stub.models import Model
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.providers import provider_pipeline as pipeline
from mochi_stub.providers.body_validation import checked
from mochi_stub.providers.openai import request_schema as schema
from mochi_stub.providers.openai.responses import RESPONSE, read_recorded, responses, token_object
from mochi_stub.providers.provider_pipeline import Counts, EvaluatedPrompt, evaluate_prompt
from mochi_stub.recorded_reply import RecordedFormat, ReplyBuilder, event_frame, get, listed
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
    listed_models = pipeline.list_models(stub)
    page = {"object": "list", "data": list(map(_model_object, listed_models))}
    return pipeline.json_response(page)


def model(stub: Stub, request: Request) -> Result:
    _, _, name = request.path.partition("/models/")
    missing = HttpError(404, f"The model '{name}' does not exist", param="model")
    found = pipeline.find_model(stub.models, name, missing)
    return pipeline.json_response(_model_object(found))


async def embeddings(stub: Stub, _request: Request, body: JsonObject) -> HttpResponse:
    model = schema.find_model(stub, body.get("model"), "embedding")
    await pipeline.load_model(stub, model)
    name = body.get("model", model.name)
    dimensions = body.get("dimensions")
    is_base64 = body.get("encoding_format") == "base64"
    data = []
    tokens = 0
    for index, text in enumerate(schema.texts(body["input"])):
        vector, count = pipeline.embed_text(stub, model, text, name, index)
        tokens += count
        embedding: Any = pipeline.shortened_vector(vector, dimensions)
        if is_base64:
            embedding = _base64_floats(embedding)
        entry = {"object": "embedding", "index": index, "embedding": embedding}
        data.append(entry)
    result = {
        "object": "list",
        "data": data,
        "model": name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return pipeline.json_response(result)


def _base64_floats(vector: Sequence[float]) -> str:
    layout = f"<{len(vector)}f"
    data = struct.pack(layout, *vector)
    return base64.b64encode(data).decode()


def _model_object(model: Model) -> JsonObject:
    utc = f"{model.modified_at[:19]}+00:00"
    modified_at = datetime.fromisoformat(utc)
    return {
        "id": model.name,
        "object": "model",
        "created": int(modified_at.timestamp()),
        "owned_by": "mochi-stub",
    }


class ChunkEncoder(pipeline.EventEncoder):
    """Base class of the encoders of chat and text completions.

    Every chunk begins with `common_fields`.

    Subclasses set `replies`, the reply of each choice, and `reasons`, the finish reason of each
    choice that ends in a stream. Other choices have the reason of the first one. `top` is the
    number of alternatives for each token, or None if the request wants no log probabilities.
    `characters` is the number of characters that the current choice already has.
    """

    replies: Mapping[int, Reply]
    reasons: Mapping[int, str]
    top: int | None
    characters = 0

    def __init__(
        self, evaluated: EvaluatedPrompt, common_fields: JsonObject, counts: Counts, body: Any
    ) -> None:
        self.common_fields = common_fields
        self.per_token = evaluated.model.chars_per_token
        self.usage = {
            "prompt_tokens": counts.input,
            "completion_tokens": counts.output,
            "total_tokens": counts.input + counts.output,
            "prompt_tokens_details": {
                "cached_tokens": counts.cache_read,
                "audio_tokens": 0,
            },
            "completion_tokens_details": {
                "reasoning_tokens": counts.reasoning,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }
        open_object = dumps(common_fields).removesuffix("}")
        self.head = f'data: {open_object},"choices":'
        self.tail = "}\n\n"
        stream_options = body.get("stream_options", {})
        self.wants_usage = stream_options.get("include_usage", False)
        if self.wants_usage:
            self.tail = ',"usage":null}\n\n'

    def end(self) -> bytes:
        lines = []
        for index, reason in self.reasons.items():
            last = self.line(index, "", f'"{reason}"')
            lines.append(last)
        if self.wants_usage:
            usage = dumps(self.usage)
            lines.append(f'{self.head}[],"usage":{usage}}}\n\n')
        lines.append("data: [DONE]\n\n")
        return "".join(lines).encode()

    def error(self, failure: Failure) -> bytes:
        error = schema.failure_error(failure)
        return event({"error": error}).encode()

    def complete_response(self) -> HttpResponse:
        choices = []
        for index, reply in self.replies.items():
            self.characters = 0
            choice = self.choice(index, reply)
            choice["finish_reason"] = self.reasons.get(index, self.reasons[0])
            choices.append(choice)
        kind = self.common_fields["object"]
        response = {
            **self.common_fields,
            "object": kind.removesuffix(".chunk"),
            "choices": choices,
            "usage": self.usage,
        }
        return pipeline.json_response(response)

    def tokens(self, pieces: Iterable[Piece]) -> list[Logprob]:
        """Return the log probabilities of the next pieces of a choice."""
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

    def choice(self, index: int, reply: Reply) -> JsonObject:
        raise NotImplementedError


def chat(stub: Stub, request: Request, body: JsonObject) -> Result:
    """Handle `POST /v1/chat/completions`."""
    model = schema.chat_model(stub, body, "v1/chat/completions")
    tools, required_tools = schema.select_tools(body, body.get("tools", ()))
    response_format = body.get("response_format", {})
    json_schema = response_format.get("json_schema", {})
    messages = map(schema.to_message, body["messages"])
    prompt = Prompt(
        model=body.get("model", model.name),
        messages=tuple(messages),
        tools=tools,
        required_tools=required_tools,
        requested_thinking=schema.thinking(body.get("reasoning_effort")),
        format=schema.reply_format(response_format.get("type"), json_schema),
        options=pipeline.sampling_options(body),
        stream=body.get("stream", False),
        allows_choices=True,
    )
    encoder = partial(ChatChunks, body)
    return pipeline.generate(stub, model, prompt, request, encoder=encoder)


class ChatChunks(ChunkEncoder):
    """Encoder of a chat completion.

    All `n` choices have the same content, unless the reply has scripted choices. A piece belongs to
    all `open_choices`.
    """

    def __init__(self, body: JsonObject, evaluated: EvaluatedPrompt) -> None:
        self.ids = evaluated.ids
        self.top: int | None = None
        if body.get("logprobs"):
            self.top = body.get("top_logprobs", 0)
        reply = evaluated.reply
        self.open_choices: tuple[int, ...]
        reason: str = reply.finish
        if any(isinstance(part, Choice) for part in reply.parts):
            self.replies = _by_choice(reply.parts)
            self.open_choices = (0,)
        else:
            self.open_choices = tuple(range(body.get("n", 1)))
            self.replies = dict.fromkeys(self.open_choices, reply)
            if reply.finish == "stop" and reply.tool_calls:
                reason = "tool_calls"
        self.reasons = dict.fromkeys(self.open_choices, reason)
        created = self.ids.start // 10**9
        common_fields = {
            "id": f"gen-{created}-{self.ids.id(0, 20)}",
            "object": "chat.completion.chunk",
            "model": evaluated.prompt.model,
            "created": created,
        }
        usage = evaluated.usage
        counts = usage._replace(
            output=usage.output * len(self.open_choices),
            reasoning=usage.reasoning * len(self.open_choices),
        )
        super().__init__(evaluated, common_fields, counts, body)
        self.content_head: str | None = None
        """Cached start of content chunks.

        None with several open choices or log probabilities, and before the first text or reasoning
        of a choice.
        """
        self.content_tail = f'}},"finish_reason":null}}]{self.tail}'
        self.roles_sent: set[int] = set()
        self.calls = 0  # of all choices, for the IDs
        self.calls_of_choice = 0

    def piece(self, piece: Piece) -> str:
        kind = piece.kind
        if kind is Text and self.content_head is not None:
            return f"{self.content_head}{dumps(piece.value)}{self.content_tail}"
        if kind is Choice:
            self.open_choices = (piece.value.index,)
            self.calls_of_choice = 0
            self.characters = 0
            self.content_head = None
            return ""
        if kind is ToolCall:
            return self._call(piece.value)
        encoded = dumps(piece.value)
        delta = f'"content":{encoded}'
        if kind is Reasoning:
            delta = f'"reasoning":{encoded},"reasoning_content":{encoded}'
        reason = "null"
        if self.top is not None:
            logprobs = dumps(self._logprobs([piece]))
            reason += f',"logprobs":{logprobs}'
        chunks = [self.line(index, delta, reason) for index in self.open_choices]
        if len(self.open_choices) == 1 and self.top is None:
            index = self.open_choices[0]
            self.content_head = f'{self.head}[{{"index":{index},"delta":{{"content":'
        return "".join(chunks)

    def line(self, index: int, content: str, reason: str = "null") -> str:
        """Return a chunk of one choice. The first chunk of a choice has the field `role`."""
        delta = content
        if content and index not in self.roles_sent:
            delta = f'"role":"assistant",{content}'
        self.roles_sent.add(index)
        choice = f'{{"index":{index},"delta":{{{delta}}},"finish_reason":{reason}}}'
        return f"{self.head}[{choice}]{self.tail}"

    def _call(self, call: ToolCall) -> str:
        index = self.calls_of_choice
        self.calls_of_choice += 1
        first = {
            "index": index,
            "id": self._call_id(call),
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        deltas = [first]
        for piece in pipeline.argument_pieces(call):
            deltas.append({"index": index, "function": {"arguments": piece}})
        lines = ""
        for choice in self.open_choices:
            for delta in deltas:
                tool_calls = dumps([delta])
                lines += self.line(choice, f'"tool_calls":{tool_calls}')
        return lines

    def choice(self, index: int, reply: Reply) -> JsonObject:
        calls = []
        for call in reply.tool_calls:
            call_id = self._call_id(call)
            function = {"name": call.name, "arguments": dumps(call.arguments)}
            calls.append({"id": call_id, "type": "function", "function": function})
        message: JsonObject = {"role": "assistant", "content": reply.text, "refusal": None}
        if calls and not reply.text:
            message["content"] = None
        if reply.reasoning:
            message["reasoning"] = reply.reasoning
            message["reasoning_content"] = reply.reasoning
        if calls:
            message["tool_calls"] = calls
        logprobs = self._logprobs(pieces(reply))
        return {"index": index, "message": message, "logprobs": logprobs}

    def _logprobs(self, pieces: Iterable[Piece]) -> JsonObject | None:
        if self.top is None:
            return None
        content = [token_object(token, self.top) for token in self.tokens(pieces)]
        return {"content": content, "refusal": None}

    def _call_id(self, call: ToolCall) -> str:
        self.calls += 1
        generated = f"call_{self.ids.id(self.calls, 24)}"
        return call.id or generated


def _by_choice(parts: Sequence[Part]) -> dict[int, Reply]:
    parts_of_choice = defaultdict[int, list[Part]](list)
    index = 0
    for part in parts:
        if isinstance(part, Choice):
            index = part.index
        parts_of_choice[index].append(part)
    return {index: Reply(parts) for index, parts in parts_of_choice.items()}


async def completions(stub: Stub, request: Request, body: JsonObject) -> Generation:
    """Handle `POST /v1/completions`."""
    model = schema.chat_model(stub, body, "v1/completions")
    prompts = _completion_prompts(body, model, request)
    lease = await pipeline.load_model(stub, model)
    evaluated = [evaluate_prompt(stub, lease, prompt) for prompt in prompts]
    encoder = CompletionChunks(evaluated, body)
    parts: list[Part] = []
    for index, reply in encoder.replies.items():
        if index:
            parts.append(Choice(index))
        parts += reply.parts
    first = evaluated[0]
    joined_reply = replace(first.reply, parts=parts)
    all_choices = replace(first, reply=joined_reply)
    return all_choices.generation(encoder, prompt_tokens=encoder.usage["prompt_tokens"])


def _completion_prompts(body: JsonObject, model: Model, request: Request) -> list[Prompt]:
    """Return a prompt for each choice. The `n` choices of a text follow each other."""
    options = pipeline.sampling_options(body)
    prompts: list[Prompt] = []
    for text in schema.texts(body.get("prompt", "<|endoftext|>")):
        message = Message("user", text)
        prompt = Prompt(
            model=body.get("model", model.name),
            operation="generate",
            messages=(message,),
            options=options,
            stream=body.get("stream", False),
        )
        with_defaults = pipeline.with_defaults(prompt, model, request.body)
        for _ in range(body.get("n", 1)):
            choice = replace(with_defaults, index=len(prompts))
            prompts.append(choice)
    return prompts


class CompletionChunks(ChunkEncoder):
    """Encoder of text completions.

    It sends one choice after the other, without reasoning and tool calls.
    """

    def __init__(self, evaluated: list[EvaluatedPrompt], body: JsonObject) -> None:
        self.index = 0
        self.top = body.get("logprobs")
        self.replies = {}
        self.reasons = {}
        for index, choice in enumerate(evaluated):
            parts: list[Part] = []
            if body.get("echo"):
                prompt_text = Text(choice.prompt.user_text)
                parts.append(prompt_text)
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
        logprobs = self._logprobs([piece])
        return self.line(self.index, dumps(piece.value), logprobs=logprobs)

    def line(
        self, index: int, content: str, reason: str = "null", logprobs: JsonObject | None = None
    ) -> str:
        text = content or '""'
        choice = (
            f'{{"text":{text},"index":{index},"logprobs":{dumps(logprobs)},'
            f'"finish_reason":{reason}}}'
        )
        return f"{self.head}[{choice}]{self.tail}"

    def choice(self, index: int, reply: Reply) -> JsonObject:
        logprobs = self._logprobs(pieces(reply))
        return {"text": reply.text, "index": index, "logprobs": logprobs}

    def _logprobs(self, pieces: Iterable[Piece]) -> JsonObject | None:
        if self.top is None:
            return None
        offset = self.characters
        tokens = []
        logprobs = []
        alternatives = []
        offsets = []
        for entry in self.tokens(pieces):
            tokens.append(entry.token)
            logprobs.append(entry.logprob)
            alternatives.append(dict(entry.top[: self.top]))
            offsets.append(offset)
            offset += len(entry.token)
        return {
            "tokens": tokens,
            "token_logprobs": logprobs,
            "top_logprobs": alternatives,
            "text_offset": offsets,
        }


def _read_recorded(body: Any, builder: ReplyBuilder) -> None:
    builder.set_outcome(None, get(body, "usage"))
    for choice in listed(body, "choices"):
        index = get(choice, "index")
        if index in (None, 0):
            _read_choice(choice, builder)


def _read_choice(choice: Any, builder: ReplyBuilder) -> None:
    message = get(choice, "delta") or get(choice, "message")
    reasoning = get(message, "reasoning_content") or get(message, "reasoning")
    builder.add(Reasoning, reasoning)
    builder.add(Text, get(message, "content"))
    builder.add(Text, get(choice, "text"))
    for position, call in enumerate(listed(message, "tool_calls")):
        index = get(call, "index")
        if index is None:
            index = position
        function = get(call, "function")
        builder.add_call_part(index, function, get(call, "id"))
    builder.set_outcome(get(choice, "finish_reason"))


def _with_index(value: Any) -> Any:
    """Add the position of each choice of OpenAI's APIs as its index if it has none, because clients
    require it.
    """
    choices = get(value, "choices")
    if not isinstance(choices, list):
        return value
    numbered = []
    for index, choice in enumerate(choices):
        if isinstance(choice, dict) and "index" not in choice:
            numbered.append({"index": index, **choice})
        else:
            numbered.append(choice)
    return {**value, "choices": numbered}


def _headers(stub: Stub, request: Request) -> Headers:
    ids = stub.seeded_ids(request.body)
    request_id = f"req_{ids.id(0, 32)}"
    header = (b"x-request-id", request_id.encode())
    return (header,)


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
