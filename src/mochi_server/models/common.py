"""Types that several schemas share: validated options of Ollama and the error envelope."""

import re
from collections.abc import Collection, Iterable
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BaseModel, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from mochi_server.constants import KEY_PATTERN, MAX_MESSAGE_CHARS, RELOADING_OPTIONS
from mochi_server.sessions.generation_settings import OPTION_PROPERTIES, FiniteObject, StoredOptions
from mochi_server.util.text import nearest
from mochi_server.util.validation import MAX_REPORTED

_MAX_NAME_CHARS = 100
NOT_BLANK = {"pattern": r"[^\s\x1c-\x1f\x85]"}
"""Pattern for text that is not blank, for the OpenAPI document. JavaScript's ``\\s`` lacks some of Python's blanks."""


def reject_unknown(names: Iterable[str], known: Collection[str], *, kind: str) -> None:
    """Raise a `ValidationError` that names each unknown field or option and the nearest known one."""
    if unknown := [name for name in names if name not in known][:MAX_REPORTED]:
        raise ValidationError.from_exception_data(kind, [_problem(name, known, kind) for name in unknown])


def _problem(name: str, known: Collection[str], kind: str) -> InitErrorDetails:
    name = name[:_MAX_NAME_CHARS].encode(errors="backslashreplace").decode()  # escapes lone surrogates
    similar = nearest(name, known)
    hint = f"Did you mean `{similar}`?" if similar else f"Known {kind}s: {', '.join(sorted(known)) or 'none'}."
    if "options" in known and name in OPTION_PROPERTIES:
        hint = f'Send it in `options`: `{{"options": {{"{name}": ...}}}}`.'
    error = PydanticCustomError("extra_forbidden", "unknown {kind}. {hint}", {"kind": kind, "hint": hint})
    return InitErrorDetails(type=error, loc=(name,), input=None)


def _checked_options(options: dict[str, Any]) -> dict[str, Any]:
    if forbidden := sorted(RELOADING_OPTIONS & options.keys()):
        raise ValueError(
            f"{', '.join(forbidden)} would make Ollama reload the model. The server sets the context window. "
            "To change it, PATCH the session's `context_window`."
        )
    reject_unknown(options, OPTION_PROPERTIES, kind="option")
    return options


def _readable_parameters(schema: dict[str, Any]) -> dict[str, Any]:
    match schema.get("properties"):
        case dict(properties) if not all(isinstance(each, dict) for each in properties.values()):
            raise ValueError("each of the `properties` must be an object")
        case dict() | None:
            return schema
        case _:
            raise ValueError("`properties` must be an object")


class Body(BaseModel, strict=True):
    """Base of request bodies with strict types. It rejects values that cannot be stored or sent to Ollama."""

    @model_validator(mode="before")
    @classmethod
    def _is_storable(cls, data: Any) -> Any:
        try:
            orjson.dumps(data)
        except TypeError as error:
            raise ValueError(f"the body contains a value that cannot be stored: {error}") from error
        return data


class StrictBody(Body, extra="forbid"):
    """Base of request bodies under `/api/v1`. The error for an unknown field names the nearest known field."""

    @model_validator(mode="before")
    @classmethod
    def _has_known_fields(cls, data: Any) -> Any:
        if isinstance(data, dict):
            reject_unknown(data, [field.alias or name for name, field in cls.model_fields.items()], kind="field")
        return data


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _idempotency_key(key: str) -> str:
    if not re.fullmatch(KEY_PATTERN, key):
        raise ValueError("must have 1 to 255 printable ASCII characters and no spaces")
    return key


def integral(value: object) -> object:
    """Convert a float without a fraction, such as 8192.0, to an integer. Return other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, StringConstraints(max_length=MAX_MESSAGE_CHARS)]
NonBlank = Annotated[Text, AfterValidator(_not_blank), Field(json_schema_extra=NOT_BLANK)]
Options = Annotated[
    StoredOptions, AfterValidator(_checked_options), Field(json_schema_extra={"additionalProperties": False})
]
IdempotencyKey = Annotated[str, AfterValidator(_idempotency_key), Field(json_schema_extra={"pattern": KEY_PATTERN})]
OnDisconnect = Annotated[
    Literal["cancel", "continue"],
    Field(description="`cancel` ends the turn when its last client disconnects. `continue` does not."),
]
ToolParameters = Annotated[FiniteObject, AfterValidator(_readable_parameters)]
"""JSON schema of a tool's parameters. Ollama rejects the whole request if it cannot read the schema."""


class WarningOut(BaseModel, from_attributes=True):
    """A problem that did not make the request fail. ``message`` is text for users."""

    code: str = Field(examples=["TOOL_NOT_FOUND"])
    message: str


class ErrorBody(BaseModel):
    """An error. ``code`` is stable and meant for programs. ``message`` is text for users."""

    code: str = Field(examples=["SESSION_NOT_FOUND"])
    message: str = Field(examples=["Session with ID 'a1b2c3d4e5' not found."])
    details: dict[str, Any]


class ErrorEnvelope(BaseModel):
    """Response body of every error."""

    error: ErrorBody
