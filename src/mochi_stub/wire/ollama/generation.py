"""`/api/chat` and `/api/generate`: the checks in Ollama's order, then a generation or what a load answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mochi_stub.answer import Answer, Generation, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.limits import limited
from mochi_stub.plan import Plan
from mochi_stub.prompt import Operation, Prompt, render
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
)
from mochi_stub.wire.ollama.replies import ChatLines, GenerateLines, Subject
from mochi_stub.wire.ollama.requests import check_format, effective_options, read, to_prompt


@dataclass(frozen=True)
class _Request:
    """A request that has passed the checks."""

    body: Mapping[str, Any]
    prompt: Prompt
    model: Model
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
    loaded = stub.scheduler.begin(model, options, body.get("keep_alive"))
    result: Result | None = None
    try:
        if empty:
            result = _loaded(body, plan, operation, "load")
        else:
            request = _Request(body, to_prompt(body, operation, model, options), model, plan)
            result = _result(stub, request, lambda: stub.scheduler.end(loaded))
        return result
    finally:
        if not isinstance(result, Generation):
            stub.scheduler.end(loaded)


def _result(stub: Stub, request: _Request, done: Callable[[], None]) -> Result:
    """What a loaded model makes of the request."""
    body, prompt = request.body, request.prompt
    if body.get("_debug_render_only"):
        return _rendered(prompt, request.plan)
    check_format(body.get("format"))
    reply = limited(stub.resolve(prompt), prompt.options, request.model.chars_per_token)
    shown = body.get("top_logprobs", 0) if body.get("logprobs") else None
    subject = Subject(request.model, prompt, reply, request.plan, shown, tuple(body.get("context", ())))
    lines = ChatLines(subject) if prompt.operation == "chat" else GenerateLines(subject)
    return Generation(reply, lines, prompt.stream, done)


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
