"""Handlers of the endpoints that run a model, such as `/api/chat`. Their checks have the same order as in Ollama."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.handlers import Generation, Result, ScheduledResult, Stub
from mochi_stub.http import HttpResponse, Request
from mochi_stub.json_encoding import dumps, go_dumps, go_text, number, numbers32, quoted, timestamp
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.prompt import Operation, Prompt, render
from mochi_stub.providers.ollama.models import local_model, no_remote, not_found, split_name
from mochi_stub.providers.ollama.request_schema import effective_options, to_prompt
from mochi_stub.providers.ollama.response_encoding import JSON, STREAM_ERROR, ChatLines, GenerateLines, json_response
from mochi_stub.providers.prompt_evaluation import TOO_LONG, TooLong, evaluate_prompt
from mochi_stub.providers.provider_pipeline import embed_text, shorten_vector
from mochi_stub.replies import NANOSECONDS_PER_PROMPT_TOKEN
from mochi_stub.reply import Failure, HttpError, Part, Reasoning, Reply, Text

INPUT_TOO_LONG = "the input length exceeds the context length"


def chat(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /api/chat`."""
    _check_logprobs(body)
    return _run(stub, request, body, local_model(stub, body.get("model", "")), "chat")


def generate(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /api/generate`."""
    _check_logprobs(body)
    model = local_model(stub, body.get("model", ""), error_if_empty=not_found(""))
    if body.get("raw") and any(body.get(key) for key in ("template", "system", "context")):
        raise HttpError(400, "raw mode does not support template, system, or context")
    return _run(stub, request, body, model, "generate")


def _check_logprobs(body: Mapping[str, Any]) -> None:
    if not 0 <= body.get("top_logprobs", 0) <= 20:
        raise HttpError(400, "top_logprobs must be between 0 and 20")


def _run(stub: Stub, request: Request, body: Mapping[str, Any], model: Model, operation: Operation) -> Result:
    ids = stub.seeded_ids(request.body)
    head = {"model": body["model"], "created_at": timestamp(ids.start)}
    is_empty = not body.get("messages" if operation == "chat" else "prompt")
    loaded = {**head, **_empty_content("assistant", operation), "done": True, "done_reason": "load"}
    if is_empty and body.get("keep_alive") == 0:
        stub.scheduler.unload(model)
        return json_response({**loaded, "done_reason": "unload"})
    _check_capabilities(body, model, operation)
    options = effective_options(model, body.get("options", {}))
    load = LoadRequest(model, options, body.get("keep_alive"), body.get("shift", model.shifts_context))
    if is_empty:
        return ScheduledResult(load, lambda _: json_response(loaded))
    format_error = _format_error(body.get("format"))
    prompt = to_prompt({**body, "format": None} if format_error else body, operation, model, options, request.body)

    def build_result(lease: Lease) -> HttpResponse | Generation:
        if body.get("_debug_render_only"):
            debug = {"done": False, "_debug_info": {"rendered_template": render(prompt)}}
            return json_response({**head, **_empty_content("", operation), **debug})
        truncate, context_tokens = body.get("truncate", True), len(body.get("context", ()))
        try:
            done = evaluate_prompt(stub, load, lease, prompt, truncate=truncate, context_tokens=context_tokens)
        except TooLong as error:
            if not prompt.stream or error.failure.message == TOO_LONG:
                raise
            # llama-server refuses the prompt after Ollama has started the stream.
            message = go_dumps({"error": error.failure.message}).encode()
            return HttpResponse(400, message, STREAM_ERROR, has_length=False)
        reply = _with_format_error(done.reply, format_error, model, prompt) if format_error else done.reply
        encoder_class = ChatLines if operation == "chat" else GenerateLines
        generation = done.generation(encoder_class(done, reply, ids, body, lease.load_duration), reply)
        return generation._replace(error_content_type=STREAM_ERROR) if prompt.stream else generation

    return ScheduledResult(load, build_result)


def _check_capabilities(body: Mapping[str, Any], model: Model, operation: Operation) -> None:
    name = body["model"]
    if model.remote:
        raise no_remote()
    if body.get("think") and not model.has_capability("thinking"):
        raise HttpError(400, f"{quoted(name)} does not support thinking")
    if not model.has_capability("completion"):
        raise HttpError(400, f"{quoted(name)} does not support {operation}")
    for field, capability in (("tools", "tools"), ("suffix", "insert")):
        if body.get(field) and not model.has_capability(capability):
            raise HttpError(400, f"{split_name(model.name).full} does not support {capability}")


def _format_error(format_: Any) -> Failure | None:
    if format_ in (None, "", "json") or isinstance(format_, dict):
        return None
    found = quoted(dumps(format_))
    return Failure(f'invalid format: {found}; expected "json" or a valid JSON Schema object')


def _with_format_error(reply: Reply, problem: Failure, model: Model, prompt: Prompt) -> Reply:
    """Return the reply to a request with an invalid `format`. In a chat, the thinking precedes the error."""
    if prompt.operation == "chat" and model.template_style == "native":  # Ollama then sends no thinking
        raise HttpError(problem.status, problem.message)
    thinking: list[Part] = [part for part in reply.parts if isinstance(part, Reasoning) and part.content]
    if prompt.operation != "chat" or not prompt.thinks or not thinking:
        return Reply([problem])
    return replace(reply, parts=[*thinking, Text(("",)), problem])


def _empty_content(role: str, operation: Operation) -> dict[str, Any]:
    return {"message": {"role": role, "content": ""}} if operation == "chat" else {"response": ""}


def embed(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /api/embed`: return a vector of unit length for each input."""
    field = body.get("input")
    inputs = field if isinstance(field, list) else [] if field in (None, "") else [field]
    if not all(isinstance(item, str) for item in inputs):
        raise HttpError(400, "invalid input type")
    name = body.get("model", "")
    load = _load_request(stub, body, error_if_empty=not_found(""))

    def build_response(lease: Lease) -> HttpResponse:
        model = load.model
        room = int(lease.context * model.chars_per_token)
        if not body.get("truncate", True) and any(len(item) > room for item in inputs):
            raise HttpError(400, INPUT_TOO_LONG)
        vectors, tokens = [], 0
        for item in inputs:
            vector, count = embed_text(stub, model, name, item[:room])
            vectors.append(",".join(numbers32(shorten_vector(vector, max(0, body.get("dimensions", 0))))))
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
        vector = embed_text(stub, load.model, name, prompt)[0] if prompt else []
        return HttpResponse(200, f'{{"embedding":[{",".join(map(number, vector))}]}}'.encode(), JSON)

    return ScheduledResult(load, build_response)


def _load_request(stub: Stub, body: Mapping[str, Any], *, error_if_empty: HttpError | None = None) -> LoadRequest:
    name = body.get("model", "")
    not_pulled = HttpError(404, f"model {quoted(name)} not found, try pulling it first")
    model = local_model(stub, name, error_if_empty=error_if_empty, error_if_missing=not_pulled)
    if model.remote:
        raise no_remote()
    return LoadRequest(model, effective_options(model, body.get("options", {})), body.get("keep_alive"))
