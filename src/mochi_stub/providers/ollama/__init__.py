"""Ollama's API with the bytes of the real server: routes, and the handlers of the endpoints that run a model.

The checks of a request have the same order as in Ollama.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mochi_stub.handlers import ANY, Generation, Handler, Result, Routes, ScheduledResult, Stub
from mochi_stub.http import HttpResponse, Request
from mochi_stub.json_encoding import dumps, go_dumps, go_text, number, quoted, timestamp
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.prompt import Operation
from mochi_stub.providers.ollama import models
from mochi_stub.providers.ollama import request_schema as schema
from mochi_stub.providers.ollama.models import full_name, local_model, not_found
from mochi_stub.providers.ollama.request_schema import checked, effective_options, to_prompt
from mochi_stub.providers.ollama.response_encoding import JSON, STREAM_ERROR, ChatLines, GenerateLines, json_response
from mochi_stub.providers.provider_pipeline import RefusedPrompt, always, embed_text, evaluate_prompt
from mochi_stub.replies import NANOSECONDS_PER_PROMPT_TOKEN, normalised
from mochi_stub.reply import HttpError

INPUT_TOO_LONG = "the input length exceeds the context length"
NO_IMAGES = "Multimodal data provided, but model does not support multimodal requests."
NO_EMBEDDINGS = "This server does not support embeddings. Start it with `--embeddings`"


def generate(operation: Operation, stub: Stub, request: Request, body: dict[str, Any]) -> Result:
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
    load = LoadRequest(model, options, body.get("keep_alive"), body.get("shift", model.shifts_context))
    if is_empty:
        return ScheduledResult(load, lambda _: json_response(loaded))
    prompt = to_prompt(body, operation, model, options, request.body)

    def build_result(lease: Lease) -> HttpResponse | Generation:
        truncate, context_tokens = body.get("truncate", True), len(body.get("context", ()))
        try:
            _require("vision", model, any(message.images for message in prompt.messages), RefusedPrompt(400, NO_IMAGES))
            _check_format(prompt.format)
            done = evaluate_prompt(stub, load, lease, prompt, truncate=truncate, context_tokens=context_tokens)
        except RefusedPrompt as error:
            if not prompt.stream:
                raise
            # llama-server refuses the prompt after Ollama has started the stream.
            message = go_dumps({"error": error.failure.message}).encode()
            return HttpResponse(error.failure.status, message, STREAM_ERROR, has_length=False)
        encoder_class = ChatLines if is_chat else GenerateLines
        generation = done.generation(encoder_class(done, ids, body, lease.load_duration))
        return generation._replace(error_content_type=STREAM_ERROR) if prompt.stream else generation

    return ScheduledResult(load, build_result)


def _check_capabilities(body: Mapping[str, Any], model: Model, operation: Operation) -> None:
    name = body["model"]
    if body.get("think") and not model.has_capability("thinking"):
        raise HttpError(400, f"{quoted(name)} does not support thinking")
    if not model.has_capability("completion"):
        raise HttpError(400, f"{quoted(name)} does not support {operation}")
    for field, capability in (("tools", "tools"), ("suffix", "insert")):
        if body.get(field) and not model.has_capability(capability):
            raise HttpError(400, f"{full_name(model.name)} does not support {capability}")


def _check_format(value: Any) -> None:
    if value not in (None, "json") and not isinstance(value, dict):
        message = f'invalid format: {quoted(dumps(value))}; expected "json" or a valid JSON Schema object'
        raise RefusedPrompt(500, message)


def embed(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /api/embed`: return a vector of unit length for each input."""
    field = body.get("input")
    inputs = field if isinstance(field, list) else [] if field in (None, "") else [field]
    if not all(isinstance(item, str) for item in inputs):
        raise HttpError(400, "invalid input type")
    name = body.get("model", "")
    load = _load_request(stub, body, if_empty=not_found(""))

    def build_response(lease: Lease) -> HttpResponse:
        model = load.model
        room = int(lease.context * model.chars_per_token)
        if not body.get("truncate", True) and any(len(item) > room for item in inputs):
            raise HttpError(400, INPUT_TOO_LONG)
        _require("embedding", model, inputs, HttpError(501, NO_EMBEDDINGS))
        vectors, tokens, dimensions = [], 0, max(0, body.get("dimensions", 0)) or None
        for item in inputs:
            vector, count = embed_text(stub, model, item[:room], name)
            vectors.append(",".join([number(round(value, 8)) for value in normalised(vector[:dimensions])]))
            tokens += max(count, 1)
        arrays = ",".join(f"[{vector}]" for vector in vectors)
        total = lease.load_duration + tokens * NANOSECONDS_PER_PROMPT_TOKEN
        counters = f',"total_duration":{total},"load_duration":{lease.load_duration},"prompt_eval_count":{tokens}'
        return HttpResponse(
            200, f'{{"model":{go_text(name)},"embeddings":[{arrays}]{counters if vectors else ""}}}'.encode(), JSON
        )

    return ScheduledResult(load, build_response)


def embeddings(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /api/embeddings`: return one vector without normalising it."""
    name, prompt = body.get("model", ""), body.get("prompt", "")
    load = _load_request(stub, body)

    def build_response(lease: Lease) -> HttpResponse:
        if len(prompt) > lease.context * load.model.chars_per_token:
            raise HttpError(500, INPUT_TOO_LONG)
        _require("embedding", load.model, prompt, HttpError(500, NO_EMBEDDINGS))
        vector = embed_text(stub, load.model, prompt, name)[0] if prompt else []
        return HttpResponse(200, f'{{"embedding":[{",".join(map(number, vector))}]}}'.encode(), JSON)

    return ScheduledResult(load, build_response)


def _require(capability: str, model: Model, inputs: object, error: HttpError) -> None:
    if inputs and not model.has_capability(capability):
        raise error


def _load_request(stub: Stub, body: Mapping[str, Any], if_empty: HttpError | None = None) -> LoadRequest:
    name = body.get("model", "")
    not_pulled = HttpError(404, f"model {quoted(name)} not found, try pulling it first")
    model = local_model(stub, name, if_empty=if_empty, if_missing=not_pulled)
    return LoadRequest(model, effective_options(model, body.get("options", {})), body.get("keep_alive"))


VERSION = "0.33.3"
NO_FILES = always(json_response({"error": "mochi-stub stores no files and pushes no models"}, 400))


def _get_and_head(handler: Handler) -> dict[str, Handler]:
    return {"HEAD": handler, "GET": handler}


ROUTES: Routes = {
    "/": _get_and_head(always(HttpResponse(200, b"Ollama is running", b"text/plain; charset=utf-8"))),
    "/api/version": _get_and_head(always(json_response({"version": VERSION}))),
    "/api/tags": _get_and_head(models.tags),
    "/api/ps": {"GET": models.ps},
    "/api/show": {"POST": checked("ShowRequest", schema.SHOW, models.show)},
    "/api/chat": {"POST": checked("ChatRequest", schema.CHAT, partial(generate, "chat"))},
    "/api/generate": {"POST": checked("GenerateRequest", schema.GENERATE, partial(generate, "generate"))},
    "/api/embed": {"POST": checked("EmbedRequest", schema.EMBED, embed)},
    "/api/embeddings": {"POST": checked("EmbeddingRequest", schema.EMBEDDINGS, embeddings)},
    "/api/pull": {"POST": checked("PullRequest", schema.PULL, models.pull)},
    "/api/push": {"POST": NO_FILES},
    "/api/create": {"POST": checked("CreateRequest", schema.create_fields, models.create)},
    "/api/copy": {"POST": checked("CopyRequest", schema.COPY, models.copy)},
    "/api/delete": {"DELETE": checked("DeleteRequest", schema.DELETE, models.delete)},
    "/api/blobs/*": {ANY: NO_FILES},
}
