"""OpenAI's API below `/v1`, as OpenAI's specification describes it: routes, models, embeddings and completions."""

from __future__ import annotations

import base64
import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from mochi_stub.handlers import ANY, Generation, Result, Routes, ScheduledResult, Stub
from mochi_stub.http import HttpResponse, Request
from mochi_stub.json_encoding import dumps, event
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Lease
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.providers import provider_pipeline as pipeline
from mochi_stub.providers.openai import request_schema as schema
from mochi_stub.providers.openai.responses import RESPONSE, responses
from mochi_stub.providers.prompt_evaluation import Counts, EvaluatedPrompt, evaluate_prompt
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Choice, Failure, HttpError, Part, Reasoning, Reply, Text, ToolCalls


def models(stub: Stub, _request: Request) -> Result:
    return pipeline.json_response(
        {"object": "list", "data": [_model_object(model) for model in pipeline.list_models(stub)]}
    )


def model(stub: Stub, request: Request) -> Result:
    name = request.path.partition("/models/")[2]
    missing = HttpError(404, f"The model '{name}' does not exist", param="model")
    return pipeline.json_response(_model_object(pipeline.find_declared(stub.models, name, missing)))


def embeddings(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    model = schema.find_model(stub, body.get("model"), "embedding")

    def build_response(_lease: Lease) -> HttpResponse:
        is_base64, data, tokens = body.get("encoding_format") == "base64", [], 0
        for index, text in enumerate(schema.texts(body["input"])):
            vector, count = pipeline.embed_text(stub, model, text)
            vector = pipeline.shorten_vector(vector, body.get("dimensions"))
            tokens += count
            encoded = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() if is_base64 else vector
            data.append({"object": "embedding", "index": index, "embedding": encoded})
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        name = body.get("model", model.name)
        return pipeline.json_response({"object": "list", "data": data, "model": name, "usage": usage})

    return ScheduledResult(pipeline.usual_load(model), build_response)


def _model_object(model: Model) -> dict[str, Any]:
    created = int(datetime.fromisoformat(f"{model.modified_at[:19]}+00:00").timestamp())
    return {"id": model.name, "object": "model", "created": created, "owned_by": "mochi-stub"}


class ChunkEncoder(pipeline.EventEncoder):
    """Base class of the encoders of chat and text completions. Every chunk begins with `common_fields`."""

    def __init__(self, common_fields: dict[str, Any], usage: dict[str, Any], body: Mapping[str, Any]) -> None:
        self.common_fields, self.usage = common_fields, usage
        self.wants_usage = body.get("stream_options", {}).get("include_usage", False)
        self.head = f'data: {dumps(common_fields)[:-1]},"choices":'
        self.tail = ',"usage":null}\n\n' if self.wants_usage else "}\n\n"

    def end(self) -> bytes:
        usage = f'{self.head}[],"usage":{dumps(self.usage)}}}\n\n' if self.wants_usage else ""
        return f"{self.finish()}{usage}data: [DONE]\n\n".encode()

    def error(self, failure: Failure) -> bytes:
        return event({"error": schema.failure_error(failure)}).encode()

    def finish(self) -> str:
        """Return the chunks with the finish reasons, one for each choice."""
        raise NotImplementedError


def chat(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /v1/chat/completions`."""
    model = schema.chat_model(stub, body, "v1/chat/completions")
    return pipeline.generate(stub, model, _chat_prompt(body, model), request, partial(ChatChunks, body))


def _chat_prompt(body: Mapping[str, Any], model: Model) -> Prompt:
    think = schema.thinking(body.get("reasoning_effort"))
    response_format = body.get("response_format", {})
    tools, required_tools = schema.select_tools(body.get("tool_choice"), body.get("tools", ()))
    return Prompt(
        model=body.get("model", model.name),
        messages=tuple(map(schema.to_message, body["messages"])),
        tools=tools,
        required_tools=required_tools,
        think=think,
        format=schema.reply_format(response_format.get("type"), response_format.get("json_schema", {})),
        options=pipeline.options(body),
        stream=body.get("stream", False),
        choices=True,
    )


class ChatChunks(ChunkEncoder):
    """Encoder of a chat completion. All `n` choices have the same content, unless the reply has scripted choices."""

    def __init__(self, body: Mapping[str, Any], evaluated: EvaluatedPrompt) -> None:
        reply, self.ids = evaluated.reply, evaluated.ids
        scripted = _by_choice(reply.parts) if Choice in map(type, reply.parts) else {}
        self.replies = scripted or dict.fromkeys(range(body.get("n", 1)), reply)
        self.finished_choices = (0,) if scripted else tuple(self.replies)
        calls_tools = reply.finish == "stop" and reply.tool_calls and not scripted
        self.reason = "tool_calls" if calls_tools else reply.finish
        self.choices = self.finished_choices
        created = self.ids.start // 10**9
        common_fields = {
            "id": f"gen-{created}-{self.ids.id(0, 20)}",
            "object": "chat.completion.chunk",
            "model": evaluated.prompt.model,
            "created": created,
        }
        super().__init__(common_fields, _usage(evaluated.usage, len(self.finished_choices)), body)
        self.content_head: str | None = None
        """Cached start of content chunks. None if several choices are active, or before the first text of a choice."""
        self.content_tail = f'}},"finish_reason":null}}]{self.tail}'
        self.roles_sent: set[int] = set()
        self.calls = 0
        self.calls_of_choice = 0

    def finish(self) -> str:
        return "".join([self._delta(index, "{}", f'"{self.reason}"') for index in self.finished_choices])

    def complete_response(self) -> HttpResponse:
        choices = [
            {"index": index, "message": self._message(reply), "logprobs": None, "finish_reason": self.reason}
            for index, reply in self.replies.items()
        ]
        return pipeline.json_response(
            {**self.common_fields, "object": "chat.completion", "choices": choices, "usage": self.usage}
        )

    def piece(self, piece: Piece) -> str:
        kind = piece.kind
        if kind is Text and self.content_head is not None:
            return f"{self.content_head}{dumps(piece.value)}{self.content_tail}"
        if kind is Choice:
            self.choices, self.calls_of_choice, self.content_head = (piece.value.index,), 0, None
            return ""
        if kind is ToolCall:
            return self._call(piece.value)
        encoded = dumps(piece.value)
        delta = f'"reasoning":{encoded},"reasoning_content":{encoded}' if kind is Reasoning else f'"content":{encoded}'
        chunks = "".join([self._delta(index, f"{{{self._role(index)}{delta}}}") for index in self.choices])
        if len(self.choices) == 1:
            self.content_head = f'{self.head}[{{"index":{self.choices[0]},"delta":{{"content":'
        return chunks

    def _call(self, call: ToolCall) -> str:
        index = self.calls_of_choice
        entry = {"index": index, "id": self._call_id(call), "type": "function"}
        first = dumps([{**entry, "function": {"name": call.name, "arguments": ""}}])
        rest = [dumps([{"index": index, "function": {"arguments": piece}}]) for piece in pipeline.argument_pieces(call)]
        self.calls_of_choice += 1
        return "".join(
            [
                self._delta(choice, f'{{{self._role(choice)}"tool_calls":{calls}}}')
                for choice in self.choices
                for calls in (first, *rest)
            ]
        )

    def _message(self, reply: Reply) -> dict[str, Any]:
        calls = [
            {
                "id": self._call_id(call),
                "type": "function",
                "function": {"name": call.name, "arguments": dumps(call.arguments)},
            }
            for call in reply.tool_calls
        ]
        reasoning = {"reasoning": reply.reasoning, "reasoning_content": reply.reasoning} if reply.reasoning else {}
        return {
            "role": "assistant",
            "content": reply.text or (None if calls else ""),
            "refusal": None,
            **reasoning,
            **({"tool_calls": calls} if calls else {}),
        }

    def _call_id(self, call: ToolCall) -> str:
        self.calls += 1
        return call.id or f"call_{self.ids.id(self.calls, 24)}"

    def _role(self, index: int) -> str:
        """Return the field `role` for the first chunk of a choice, or an empty string for later chunks."""
        if index in self.roles_sent:
            return ""
        self.roles_sent.add(index)
        return '"role":"assistant",'

    def _delta(self, index: int, delta: str, reason: str = "null") -> str:
        return f'{self.head}[{{"index":{index},"delta":{delta},"finish_reason":{reason}}}]{self.tail}'


def _by_choice(parts: Sequence[Part]) -> dict[int, Reply]:
    """Return the choices of a reply by index. Parts before the first `Choice` belong to the choice 0."""
    index, found = 0, defaultdict[int, list[Part]](list)
    for part in parts:
        index = part.index if isinstance(part, Choice) else index
        found[index].append(part)
    return {index: Reply(parts) for index, parts in found.items()}


def completions(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /v1/completions`."""
    model = schema.chat_model(stub, body, "v1/completions")
    n = body.get("n", 1)
    prompts = [
        pipeline.with_defaults(_text_prompt(body, model, text), model, request.body)
        for text in schema.texts(body.get("prompt", "<|endoftext|>"))
        for _ in range(n)
    ]
    load = pipeline.usual_load(model)

    def build_result(lease: Lease) -> Generation:
        choices = [evaluate_prompt(stub, load, lease, prompt) for prompt in prompts]
        echo = body.get("echo", False)
        parts = [part for index, choice in enumerate(choices) for part in _parts(index, choice, echo)]
        reply = replace(choices[0].reply, parts=parts)
        encoder = CompletionChunks(choices, reply, body)
        return choices[0].generation(encoder, reply, prompt_tokens=encoder.usage["prompt_tokens"])

    return ScheduledResult(load, build_result)


def _text_prompt(body: Mapping[str, Any], model: Model, text: str) -> Prompt:
    return Prompt(
        model=body.get("model", model.name),
        operation="generate",
        messages=(Message("user", text),),
        options=pipeline.options(body),
        stream=body.get("stream", False),
    )


def _parts(index: int, evaluated: EvaluatedPrompt, echo: bool) -> list[Part]:
    """Return the parts of one choice. Reasoning and tool calls are omitted: the endpoint does not support them."""
    echoed = [Text(evaluated.prompt.user_text)] if echo else []
    parts = [part for part in evaluated.reply.parts if not isinstance(part, (Reasoning, ToolCalls))]
    return [*([Choice(index)] if index else []), *echoed, *parts]


def _total_usage(choices: list[EvaluatedPrompt], n: int) -> Counts:
    """Return the token counts of all choices. A prompt counts once, even if it has several choices."""
    total = Counts(*map(sum, zip(*(choice.usage for choice in choices[::n]), strict=True)))
    output = sum(choice.usage.output for choice in choices)
    return total._replace(output=output, reasoning=sum(choice.usage.reasoning for choice in choices))


class CompletionChunks(ChunkEncoder):
    """Encoder of text completions. It sends one choice after the other."""

    def __init__(self, choices: list[EvaluatedPrompt], reply: Reply, body: Mapping[str, Any]) -> None:
        ids = choices[0].ids
        common_fields = {
            "id": f"cmpl-{ids.id(0, 24)}",
            "object": "text_completion",
            "created": ids.start // 10**9,
            "model": choices[0].prompt.model,
        }
        super().__init__(common_fields, _usage(_total_usage(choices, body.get("n", 1))), body)
        self.reply, self.reasons, self.choice = reply, [choice.reply.finish for choice in choices], 0

    def piece(self, piece: Piece) -> str:
        if piece.kind is Choice:
            self.choice = piece.value.index
            return ""
        return self._line(self.choice, dumps(piece.value), "null")

    def finish(self) -> str:
        return "".join([self._line(index, '""', f'"{reason}"') for index, reason in enumerate(self.reasons)])

    def complete_response(self) -> HttpResponse:
        replies = _by_choice([Choice(0), *self.reply.parts])
        choices = [
            {"text": reply.text, "index": index, "logprobs": None, "finish_reason": self.reasons[index]}
            for index, reply in replies.items()
        ]
        return pipeline.json_response({**self.common_fields, "choices": choices, "usage": self.usage})

    def _line(self, index: int, text: str, reason: str) -> str:
        return f'{self.head}[{{"text":{text},"index":{index},"logprobs":null,"finish_reason":{reason}}}]{self.tail}'


def _usage(counts: Counts, choices: int = 1) -> dict[str, Any]:
    """Return the usage object. The output tokens are multiplied by the number of choices."""
    output = counts.output * choices
    return {
        "prompt_tokens": counts.input,
        "completion_tokens": output,
        "total_tokens": counts.input + output,
        "prompt_tokens_details": {"cached_tokens": counts.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": counts.reasoning * choices,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


_ROUTES: Routes = {
    "/chat/completions": {"POST": pipeline.checked(schema.CHAT, chat)},
    "/completions": {"POST": pipeline.checked(schema.COMPLETION, completions)},
    "/responses": {"POST": pipeline.checked(RESPONSE, responses)},
    "/embeddings": {"POST": pipeline.checked(schema.EMBEDDING, embeddings)},
    "/models": {"GET": models},
    "/models/*": {"GET": model},
    "/*": {ANY: pipeline.refuse(404, "Invalid URL ({method} {path})", code=None)},
}
_WRONG_METHOD = pipeline.refuse(405, "Not allowed to {method} on {path}.", code="method_not_supported")
API = pipeline.Api(("/v1",), _ROUTES, schema.error_response, _WRONG_METHOD)
