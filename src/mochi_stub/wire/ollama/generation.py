"""The endpoints that run a model: `/api/chat`, `/api/generate`, `/api/embed` and the older `/api/embeddings`.

Each makes its checks in Ollama's order. Then follows a generation, vectors or the answer of a load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mochi_stub.http.http_result import Generation, HttpResponse, Request, Result, ScheduledResult, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.models.prompt_slots import Evaluation
from mochi_stub.models.scheduler import Lease, LoadRequest, NotLoaded
from mochi_stub.prompt import Message, Operation, render, render_message
from mochi_stub.replies.seeded_ids import NANOSECONDS_PER_PROMPT_TOKEN
from mochi_stub.replies.truncation import FittedPrompt, TooLong, apply_stop_conditions, fit_prompt
from mochi_stub.reply import Failure
from mochi_stub.wire.ollama import errors
from mochi_stub.wire.ollama.go_json import dumps, number, number32, quoted, text, timestamp
from mochi_stub.wire.ollama.go_syntax import Read, read_body
from mochi_stub.wire.ollama.model_names import parse_name
from mochi_stub.wire.ollama.request_schema import CHAT, EMBED, EMBEDDINGS, GENERATE, effective_options, to_prompt
from mochi_stub.wire.ollama.response_encoding import ChatLines, GenerateLines
from mochi_stub.wire.provider_pipeline import HttpError, embed_text, shorten_vector

NEVER_SHIFTS = "deepseek2"
"""Family whose context does not slide unless the request says so."""


def chat(stub: Stub, request: Request) -> Result:
    """POST /api/chat"""
    body = _read(request, "ChatRequest", CHAT)
    name = body.get("model", "")
    if not name:
        raise errors.model_required()
    model = errors.local_model(stub, name, malformed=errors.invalid_name(), missing=errors.not_found(name))
    return _answer(stub, request, body, model, "chat")


def generate(stub: Stub, request: Request) -> Result:
    """POST /api/generate"""
    body = _read(request, "GenerateRequest", GENERATE)
    name = body.get("model", "")
    model = errors.local_model(stub, name, malformed=errors.not_found(name), missing=errors.not_found(name))
    if body.get("raw") and any(body.get(key) for key in ("template", "system", "context")):
        raise HttpError(400, "raw mode does not support template, system, or context")
    return _answer(stub, request, body, model, "generate")


def _read(request: Request, name: str, fields: Mapping[str, Read]) -> dict[str, Any]:
    body = read_body(request.body, name, fields)
    if not 0 <= body.get("top_logprobs", 0) <= 20:
        raise HttpError(400, "top_logprobs must be between 0 and 20")
    return body


def _answer(stub: Stub, request: Request, body: Mapping[str, Any], model: Model, operation: Operation) -> Result:
    plan = stub.seeded_ids(request.body)
    head = {"model": body["model"], "created_at": timestamp(plan.start)}
    empty = not body.get("messages" if operation == "chat" else "prompt")
    loaded = {**head, **_content("assistant", operation), "done": True}
    if empty and body.get("keep_alive") == 0:
        stub.scheduler.unload(model)
        return errors.json_answer({**loaded, "done_reason": "unload"})
    _check_capabilities(body, model, operation)
    options = effective_options(model, body.get("options", {}))
    need = LoadRequest(model, options, body.get("keep_alive"), body.get("shift", model.family != NEVER_SHIFTS))
    if empty:
        return _schedule(stub, need, lambda _: errors.json_answer({**loaded, "done_reason": "load"}))
    prompt = to_prompt(body, operation, model, options, request.body)

    def generated(lease: Lease) -> HttpResponse | Generation:
        if body.get("_debug_render_only"):
            debug = {"done": False, "_debug_info": {"rendered_template": render(prompt)}}
            return errors.json_answer({**head, **_content("", operation), **debug})
        _check_format(body.get("format"))
        truncate, before = body.get("truncate", True), len(body.get("context", ()))
        try:
            fit = fit_prompt(prompt, model, lease.limit, truncate=truncate, shift=need.shift, before=before)
        except TooLong as error:
            raise HttpError(400, str(error)) from None
        stub.scheduler.truncations += fit.truncated
        reply = apply_stop_conditions(stub.resolve(fit.prompt), _options(fit, need, lease.limit), model.chars_per_token)
        encoder = ChatLines if operation == "chat" else GenerateLines
        answer = render_message(Message("assistant", reply.text, tool_calls=tuple(reply.tool_calls)))
        evaluation = Evaluation(render(fit.prompt), f"\n{answer}", fit.tokens)
        evaluated, speed = evaluation.run(lease.slots), stub.scheduler.machine.prompt_speed
        prompt_seconds = evaluated / speed if speed else 0.0
        prompt_duration = round(prompt_seconds * 1e9) if speed else None
        lines = encoder(model, fit, reply, plan, body, lease.load_duration, prompt_duration)
        noted = {
            **{"truncated": fit.truncated, "dropped_messages": fit.dropped},
            **{"prompt_tokens": fit.tokens, "evaluated_tokens": evaluated},
        }
        return Generation(reply, lines, prompt.stream, noted, evaluation, prompt_seconds)

    return _schedule(stub, need, generated)


def _schedule(stub: Stub, need: LoadRequest, then: Callable[[Lease], HttpResponse | Generation]) -> ScheduledResult:
    """Return what `then` makes when the model is loaded. Refusals of `then` are answered like all others."""

    def answered(lease: Lease) -> HttpResponse | Generation:
        try:
            return then(lease)
        except HttpError as refusal:
            return errors.failure_answer(refusal.failure)

    def failed(error: NotLoaded) -> HttpResponse:
        return errors.failure_answer(Failure(error.message, error.status))

    return ScheduledResult(stub.scheduler, need, answered, failed)


def _options(fit: FittedPrompt, need: LoadRequest, limit: int | None) -> Mapping[str, Any]:
    """Return the options in effect. Without shifting the context also limits the output."""
    options = fit.prompt.options
    if need.shift or limit is None:
        return options
    room, wanted = max(limit - fit.tokens, 0), options.get("num_predict", -1)
    return {**options, "num_predict": min(wanted, room) if wanted >= 0 else room}


def _check_capabilities(body: Mapping[str, Any], model: Model, operation: Operation) -> None:
    name = body["model"]
    if model.remote:
        raise errors.no_remote()
    if body.get("think") and not model.can("thinking"):
        raise HttpError(400, f"{quoted(name)} does not support thinking")
    if not model.can("completion"):
        raise HttpError(400, f"{quoted(name)} does not support {operation}")
    for field, capability in (("tools", "tools"), ("suffix", "insert")):
        declared = parse_name(model.name)
        if body.get(field) and not model.can(capability) and declared is not None:
            raise HttpError(400, f"{declared.full} does not support {capability}")


def _check_format(format_: Any) -> None:
    if format_ not in (None, "", "json") and not isinstance(format_, dict):
        problem = f'invalid format: {quoted(dumps(format_))}; expected "json" or a valid JSON Schema object'
        raise HttpError(500, problem)


def _content(role: str, operation: Operation) -> dict[str, Any]:
    return {"message": {"role": role, "content": ""}} if operation == "chat" else {"response": ""}


def embed(stub: Stub, request: Request) -> Result:
    """POST /api/embed: vectors of unit length, one for each input"""
    body = read_body(request.body, "EmbedRequest", EMBED)
    given = body.get("input")
    inputs = given if isinstance(given, list) else [] if given in (None, "") else [given]
    if not all(isinstance(one, str) for one in inputs):
        raise HttpError(400, "invalid input type")
    name = body.get("model", "")
    need = _load_request(stub, body, empty=errors.not_found(""))

    def answered(lease: Lease) -> HttpResponse:
        model = need.model
        room = int(lease.context * model.chars_per_token)
        if not body.get("truncate", True) and any(len(one) > room for one in inputs):
            raise HttpError(400, "the input length exceeds the context length")
        vectors, tokens = [], 0
        for one in inputs:
            vector, count = embed_text(stub, model, name, one[:room])
            vectors.append(",".join(map(number32, shorten_vector(vector, max(0, body.get("dimensions", 0))))))
            tokens += count
        shown = ",".join(f"[{vector}]" for vector in vectors)
        total = lease.load_duration + tokens * NANOSECONDS_PER_PROMPT_TOKEN
        counters = f',"total_duration":{total},"load_duration":{lease.load_duration},"prompt_eval_count":{tokens}'
        return HttpResponse(
            200, f'{{"model":{text(name)},"embeddings":[{shown}]{counters if vectors else ""}}}'.encode(), errors.JSON
        )

    return _schedule(stub, need, answered)


def embeddings(stub: Stub, request: Request) -> Result:
    """POST /api/embeddings: one vector, as the model makes it"""
    body = read_body(request.body, "EmbeddingRequest", EMBEDDINGS)
    name, prompt = body.get("model", ""), body.get("prompt", "")
    need = _load_request(stub, body, empty=errors.model_required())

    def answered(_lease: Lease) -> HttpResponse:
        vector = embed_text(stub, need.model, name, prompt)[0] if prompt else []
        return HttpResponse(200, f'{{"embedding":[{",".join(map(number, vector))}]}}'.encode(), errors.JSON)

    return _schedule(stub, need, answered)


def _load_request(stub: Stub, body: Mapping[str, Any], *, empty: HttpError) -> LoadRequest:
    name = body.get("model", "")
    if not name:
        raise empty
    not_pulled = HttpError(404, f"model {quoted(name)} not found, try pulling it first")
    model = errors.local_model(stub, name, malformed=errors.not_found(name), missing=not_pulled)
    if model.remote:
        raise errors.no_remote()
    return LoadRequest(model, effective_options(model, body.get("options", {})), body.get("keep_alive"))
