"""`/api/chat` and `/api/generate`: the checks in Ollama's order, then a generation or what a load answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mochi_stub.answer import Answer, Generation, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.fitting import Fitted, fitted
from mochi_stub.limits import limited
from mochi_stub.plan import Plan
from mochi_stub.prompt import Operation, Prompt, render
from mochi_stub.scheduler import Lease, Need
from mochi_stub.wire.ollama.gojson import quoted, timestamp
from mochi_stub.wire.ollama.names import parse_name
from mochi_stub.wire.ollama.refusals import (
    INVALID_NAME,
    MODEL_REQUIRED,
    NO_REMOTE,
    Refused,
    json_answer,
    local_model,
    not_found,
    scheduled,
)
from mochi_stub.wire.ollama.replies import ChatLines, GenerateLines, Subject
from mochi_stub.wire.ollama.requests import check_format, effective_options, read, to_prompt

NEVER_SHIFTS = "deepseek2"
"""The family of which Ollama does not slide the context unless it is told to."""


@dataclass(frozen=True)
class _Request:
    """A request that has passed the checks."""

    body: Mapping[str, Any]
    prompt: Prompt
    need: Need
    plan: Plan


def chat(stub: Stub, data: bytes) -> Result:
    """POST /api/chat"""
    body = read(data, "chat")
    _check_logprobs(body)
    name = body.get("model", "")
    if not name:
        raise MODEL_REQUIRED
    model = local_model(stub, name, malformed=INVALID_NAME, missing=not_found(name))
    return _answer(stub, data, body, model, "chat")


def generate(stub: Stub, data: bytes) -> Result:
    """POST /api/generate"""
    body = read(data, "generate")
    _check_logprobs(body)
    name = body.get("model", "")
    model = local_model(stub, name, malformed=not_found(name), missing=not_found(name))
    if body.get("raw") and any(body.get(key) for key in ("template", "system", "context")):
        raise Refused(400, "raw mode does not support template, system, or context")
    return _answer(stub, data, body, model, "generate")


def _answer(stub: Stub, data: bytes, body: Mapping[str, Any], model: Model, operation: Operation) -> Result:
    plan = stub.plan(data)
    empty = not body.get("messages" if operation == "chat" else "prompt")
    if empty and body.get("keep_alive") == 0:
        stub.scheduler.unload(model)
        return _loaded(body, plan, operation, "unload")
    _check_capabilities(body, model, operation)
    options = effective_options(model, body.get("options", {}))
    need = Need(model, options, body.get("keep_alive"), body.get("shift", model.family != NEVER_SHIFTS))
    if empty:
        return scheduled(stub, need, lambda _: _loaded(body, plan, operation, "load"))
    prompt = replace(to_prompt(body, operation, model, options), request=data)
    request = _Request(body, prompt, need, plan)
    return scheduled(stub, need, lambda lease: _result(stub, request, lease))


def _result(stub: Stub, request: _Request, lease: Lease) -> Answer | Generation:
    """What a loaded model makes of the request."""
    body, model = request.body, request.need.model
    if body.get("_debug_render_only"):
        return _rendered(request.prompt, request.plan)
    check_format(body.get("format"))
    fit = _fitted(stub, request, lease.limit)
    reply = limited(stub.resolve(fit.prompt), _options(fit, request.need, lease.limit), model.chars_per_token)
    subject = Subject(
        model,
        fit.prompt,
        reply,
        request.plan,
        body.get("top_logprobs", 0) if body.get("logprobs") else None,
        tuple(body.get("context", ())),
        fit.tokens,
        lease.load_duration,
    )
    lines = ChatLines(subject) if fit.prompt.operation == "chat" else GenerateLines(subject)
    noted = {"truncated": fit.truncated, "dropped_messages": fit.dropped, "prompt_tokens": fit.tokens}
    return Generation(reply, lines, fit.prompt.stream, noted)


def _fitted(stub: Stub, request: _Request, context: int | None) -> Fitted:
    body, need = request.body, request.need
    before = len(body.get("context", ()))
    truncate = body.get("truncate", True)
    fit = fitted(request.prompt, need.model, context, truncate=truncate, shift=need.shift, before=before)
    stub.scheduler.truncations += fit.truncated
    return fit


def _options(fit: Fitted, need: Need, context: int | None) -> Mapping[str, Any]:
    """The options in effect; without shifting the context is also the end of what can be said."""
    options = fit.prompt.options
    if need.shift or context is None:
        return options
    room, wanted = max(context - fit.tokens, 0), options.get("num_predict", -1)
    return {**options, "num_predict": min(wanted, room) if wanted >= 0 else room}


def _check_logprobs(body: Mapping[str, Any]) -> None:
    if not 0 <= body.get("top_logprobs", 0) <= 20:
        raise Refused(400, "top_logprobs must be between 0 and 20")


def _check_capabilities(body: Mapping[str, Any], model: Model, operation: Operation) -> None:
    name = body["model"]
    if model.remote:
        raise Refused(403, NO_REMOTE)
    if body.get("think") and not model.can("thinking"):
        raise Refused(400, f"{quoted(name)} does not support thinking")
    if not model.can("completion"):
        raise Refused(400, f"{quoted(name)} does not support {operation}")
    for field, capability in (("tools", "tools"), ("suffix", "insert")):
        declared = parse_name(model.name)
        if body.get(field) and not model.can(capability) and declared is not None:
            raise Refused(400, f"{declared.full} does not support {capability}")


def _loaded(body: Mapping[str, Any], plan: Plan, operation: Operation, reason: str) -> Answer:
    said = _said("assistant", operation)
    return json_answer(
        {"model": body["model"], "created_at": timestamp(plan.start), **said, "done": True, "done_reason": reason}
    )


def _rendered(prompt: Prompt, plan: Plan) -> Answer:
    return json_answer(
        {
            "model": prompt.model,
            "created_at": timestamp(plan.start),
            **_said("", prompt.operation),
            "done": False,
            "_debug_info": {"rendered_template": render(prompt)},
        }
    )


def _said(role: str, operation: Operation) -> dict[str, Any]:
    return {"message": {"role": role, "content": ""}} if operation == "chat" else {"response": ""}
