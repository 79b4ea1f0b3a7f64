"""How errors are told to clients of OpenAI's API."""

import json
import re
from collections.abc import Sequence
from typing import Any

from mochi_server.errors import AgentNotFound, ContextOverflow, MochiError, Unauthorized, ValidationFailed

_CODES = {
    Unauthorized.code: "invalid_api_key",
    ContextOverflow.code: "context_length_exceeded",
    AgentNotFound.code: "model_not_found",
}
"""Codes that OpenAI has a name of its own for; others are ours in lower case."""

_KINDS = {"missing": "missing_required_parameter"}
AS_TEXT, AS_PARTS = "as text", "as parts"
_ALTERNATIVES = {"system", "developer", "user", "assistant", "tool", "str", "bool"}
"""In the place of an invalid field, but no part of the request: which of several forms it was read as."""


def invalid_parameter(param: str, message: str) -> ValidationFailed:
    """A refusal that names the field it is about."""
    return ValidationFailed(f"{param}: {message}", errors=[{"loc": ["body", param], "msg": message, "type": "value"}])


def openai_status(error: MochiError) -> int:
    """OpenAI's clients know 400 for what cannot be asked so."""
    return 400 if error.status == 422 else error.status


def openai_error(error: MochiError) -> dict[str, Any]:
    """The body of an error, or the data of a stream that it ends."""
    message, code, param = error.message, _CODES.get(error.code, error.code.lower()), None
    if isinstance(error, ValidationFailed):
        message, code, param = _of_invalid(error)
    elif "model" in error.details or isinstance(error, AgentNotFound):
        param = "model"
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def openai_body(error: MochiError) -> bytes:
    """The body of an error as JSON."""
    return json.dumps(openai_error(error), default=str).encode()


def _of_invalid(error: ValidationFailed) -> tuple[str, str, str | None]:
    """Message, code and field of the first thing that is wrong."""
    problems = error.details.get("errors")
    if not problems:
        return error.message, "invalid_request", None
    first = problems[0]
    if first["type"] == "json_invalid":
        return "The body is not valid JSON.", "invalid_json", None
    path = _path(first["loc"][1:])
    return f"{path}: {first['msg']}" if path else first["msg"], _KINDS.get(first["type"], "invalid_value"), path or None


def _path(where: Sequence[str | int]) -> str:
    """A place as OpenAI writes it: ``messages[0].content``."""
    steps = [*where[:1]]
    for step in where[1:]:
        if isinstance(step, int) or (step not in _ALTERNATIVES and re.fullmatch("[a-z_]+", step)):
            steps.append(step)
    steps = [step for step, before in zip(steps, ["", *steps], strict=False) if step != before]  # a kind, and its field
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
