"""`/api/chat` and `/api/generate`: the checks in Ollama's order, then a generation or the answer of a load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mochi_stub.answer import Answer, Generation, Request, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.fitting import Fitted, TooLong, fitted, limited
from mochi_stub.prompt import Operation, Prompt, render
from mochi_stub.scheduler import Lease, Need
from mochi_stub.wire.ollama import refusals
from mochi_stub.wire.ollama.gojson import quoted, timestamp
from mochi_stub.wire.ollama.gotypes import Read, read_body
from mochi_stub.wire.ollama.names import parse_name
from mochi_stub.wire.ollama.replies import ChatLines, GenerateLines
from mochi_stub.wire.ollama.requests import CHAT, GENERATE, check_format, effective_options, to_prompt
from mochi_stub.wire.provider_pipeline import Refused

NEVER_SHIFTS = "deepseek2"
"""Family whose context does not slide unless the request says so."""


def chat(stub: Stub, request: Request) -> Result:
    """POST /api/chat"""
    body = _read(request, "ChatRequest", CHAT)
    name = body.get("model", "")
    if not name:
        raise refusals.model_required()
    model = refusals.local_model(stub, name, malformed=refusals.invalid_name(), missing=refusals.not_found(name))
    return _answer(stub, request, body, model, "chat")


def generate(stub: Stub, request: Request) -> Result:
    """POST /api/generate"""
    body = _read(request, "GenerateRequest", GENERATE)
    name = body.get("model", "")
    model = refusals.local_model(stub, name, malformed=refusals.not_found(name), missing=refusals.not_found(name))
    if body.get("raw") and any(body.get(key) for key in ("template", "system", "context")):
        raise Refused(400, "raw mode does not support template, system, or context")
    return _answer(stub, request, body, model, "generate")


def _read(request: Request, name: str, fields: Mapping[str, Read]) -> dict[str, Any]:
    body = read_body(request.body, name, fields)
    if not 0 <= body.get("top_logprobs", 0) <= 20:
        raise Refused(400, "top_logprobs must be between 0 and 20")
    return body


def _answer(stub: Stub, request: Request, body: Mapping[str, Any], model: Model, operation: Operation) -> Result:
    plan = stub.plan(request.body)
    head = {"model": body["model"], "created_at": timestamp(plan.start)}
    empty = not body.get("messages" if operation == "chat" else "prompt")
    loaded = {**head, **_content("assistant", operation), "done": True}
    if empty and body.get("keep_alive") == 0:
        stub.scheduler.unload(model)
        return refusals.json_answer({**loaded, "done_reason": "unload"})
    _check_capabilities(body, model, operation)
    options = effective_options(model, body.get("options", {}))
    need = Need(model, options, body.get("keep_alive"), body.get("shift", model.family != NEVER_SHIFTS))
    if empty:
        return refusals.scheduled(stub, need, lambda _: refusals.json_answer({**loaded, "done_reason": "load"}))
    prompt = to_prompt(body, operation, model, options, request.body)

    def generated(lease: Lease) -> Answer | Generation:
        if body.get("_debug_render_only"):
            debug = {"done": False, "_debug_info": {"rendered_template": render(prompt)}}
            return refusals.json_answer({**head, **_content("", operation), **debug})
        check_format(body.get("format"))
        fit = _fitted(prompt, need, body, lease.limit)
        stub.scheduler.truncations += fit.truncated
        reply = limited(stub.resolve(fit.prompt), _options(fit, need, lease.limit), model.chars_per_token)
        lines = (ChatLines if operation == "chat" else GenerateLines)(
            model,
            fit.prompt,
            reply,
            plan,
            body.get("top_logprobs", 0) if body.get("logprobs") else None,
            tuple(body.get("context", ())),
            fit.tokens,
            lease.load_duration,
        )
        noted = {"truncated": fit.truncated, "dropped_messages": fit.dropped, "prompt_tokens": fit.tokens}
        return Generation(reply, lines, prompt.stream, noted)

    return refusals.scheduled(stub, need, generated)


def _fitted(prompt: Prompt, need: Need, body: Mapping[str, Any], limit: int | None) -> Fitted:
    truncate, before = body.get("truncate", True), len(body.get("context", ()))
    try:
        return fitted(prompt, need.model, limit, truncate=truncate, shift=need.shift, before=before)
    except TooLong as error:
        raise Refused(400, str(error)) from None


def _options(fit: Fitted, need: Need, limit: int | None) -> Mapping[str, Any]:
    """Return the options in effect. Without shifting the context also limits the output."""
    options = fit.prompt.options
    if need.shift or limit is None:
        return options
    room, wanted = max(limit - fit.tokens, 0), options.get("num_predict", -1)
    return {**options, "num_predict": min(wanted, room) if wanted >= 0 else room}


def _check_capabilities(body: Mapping[str, Any], model: Model, operation: Operation) -> None:
    name = body["model"]
    if model.remote:
        raise refusals.no_remote()
    if body.get("think") and not model.can("thinking"):
        raise Refused(400, f"{quoted(name)} does not support thinking")
    if not model.can("completion"):
        raise Refused(400, f"{quoted(name)} does not support {operation}")
    for field, capability in (("tools", "tools"), ("suffix", "insert")):
        declared = parse_name(model.name)
        if body.get(field) and not model.can(capability) and declared is not None:
            raise Refused(400, f"{declared.full} does not support {capability}")


def _content(role: str, operation: Operation) -> dict[str, Any]:
    return {"message": {"role": role, "content": ""}} if operation == "chat" else {"response": ""}
