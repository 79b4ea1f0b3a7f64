"""Types that several schemas share: options of Ollama, stored messages, events and the error
envelope.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, ClassVar, Literal, get_args

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    model_validator,
)

from mochi_server.constants import KEY_PATTERN, MAX_IMAGES, MAX_MESSAGE_CHARS
from mochi_server.sessions.settings import NO_HINTS, reject_unknown
from mochi_server.sessions.types import (
    AssistantMessage,
    FiniteObject,
    Role,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from mochi_server.util.validation import NOT_BLANK

Images = Annotated[
    list[Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]],
    Field(max_length=MAX_IMAGES, fail_fast=True),
]


SYSTEM_PROMPT_HINT = "Set it with `PUT /api/v1/sessions/{session_id}/system-prompt`."
"""Hint for a system prompt in a body that cannot have one."""


def _readable_parameters(schema: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    tool = f"the tool {info.data.get('name')!r}: "
    match schema.get("properties"):
        case dict(properties):
            if not all(isinstance(each, dict | bool) for each in properties.values()):
                raise ValueError(f"{tool}each of the `properties` must be an object or a boolean")
            return schema
        case None:
            return schema
        case _:
            raise ValueError(f"{tool}`properties` must be an object")


class Schema(BaseModel, defer_build=True):
    """Base of schemas.

    Pydantic builds the validator of a schema at its first use, which halves the time of the import.
    Use schemas in the thread of the event loop only: older versions of pydantic cannot build one in
    two threads at once.
    """


class Body(Schema, strict=True, defer_build=False):
    """Base of request bodies with strict types.

    It rejects values that cannot be stored or sent to Ollama. Its validators are built with their
    routes: FastAPI ignores a warning of pydantic about its own fields only there.
    """

    @model_validator(mode="before")
    @classmethod
    def _is_storable(cls, data: Any) -> Any:
        try:
            orjson.dumps(data)
        except TypeError as error:
            raise ValueError(f"the body contains a value that cannot be stored: {error}") from error
        return data


class UnstoredBody(Body):
    """Base of request bodies that are not stored.

    Integers that exceed 64 bits become floats, as in JavaScript.
    """

    @model_validator(mode="before")
    @classmethod
    def _has_no_large_integers(cls, data: Any) -> Any:
        try:
            orjson.dumps(data)
        except TypeError:
            with suppress(ValueError, TypeError, RecursionError):  # `Body` rejects what is left
                return orjson.loads(json.dumps(data))
        return data


class StrictBody(Body, extra="forbid"):
    """Base of request bodies under `/api/v1`.

    The error for an unknown field has its hint in ``hints``, or names the nearest known field.
    """

    hints: ClassVar[Mapping[str, str]] = NO_HINTS

    @model_validator(mode="before")
    @classmethod
    def _has_known_fields(cls, data: Any) -> Any:
        if isinstance(data, dict):
            reject_unknown(
                data,
                [field.alias or name for name, field in cls.model_fields.items()],
                kind="field",
                hints=cls.hints,
            )
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
    """Convert a float without a fraction, such as 8192.0, to an integer.

    Return other values unchanged.
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, StringConstraints(max_length=MAX_MESSAGE_CHARS)]
NonBlank = Annotated[Text, AfterValidator(_not_blank), Field(json_schema_extra=NOT_BLANK)]
IdempotencyKey = Annotated[
    str, AfterValidator(_idempotency_key), Field(json_schema_extra={"pattern": KEY_PATTERN})
]
OnDisconnect = Annotated[
    Literal["cancel", "continue"] | None,
    Field(
        description="`cancel` ends the turn when its last client disconnects. `continue` does not."
    ),
]
ToolParameters = Annotated[FiniteObject, AfterValidator(_readable_parameters)]
"""JSON schema of a tool's parameters.

Ollama rejects the whole request if it cannot read the schema.
"""


class WarningOut(Schema, from_attributes=True):
    """A problem that did not make the request fail. ``message`` is text for users."""

    code: str = Field(examples=["TOOL_NOT_FOUND"])
    message: str


class ErrorBody(Schema):
    """An error. ``code`` is stable and meant for programs. ``message`` is text for users."""

    code: str = Field(examples=["SESSION_NOT_FOUND"])
    message: str = Field(examples=["Session with ID 'a1b2c3d4e5' not found."])
    details: dict[str, Any]


class ErrorEnvelope(Schema):
    """Response body of every error."""

    error: ErrorBody


_ANNOTATIONS: dict[str, Any] = {
    **SystemMessage.__annotations__,
    **UserMessage.__annotations__,
    **AssistantMessage.__annotations__,
    **ToolMessage.__annotations__,
    "role": Role,
}
_DESCRIBED = {
    name: get_args(kind) for name, kind in _ANNOTATIONS.items() if hasattr(kind, "__metadata__")
}
_FIELDS: dict[str, Any] = {
    **{name: (_ANNOTATIONS[name], ...) for name in ("role", "content", "message_id", "timestamp")},
    **{
        name: (kind | None, Field(None, description=field.description))
        for name, (kind, field) in _DESCRIBED.items()
    },
}

StoredMessage = create_model(
    "StoredMessage",
    __doc__="A stored message. Messages of all roles have the first four fields. The other fields "
    "depend on the role.",
    __config__=ConfigDict(extra="allow"),
    **_FIELDS,
)

MESSAGE_PLACEHOLDER = {"title": StoredMessage.__name__}
"""Placeholder for the schema of a message.

In the OpenAPI document, a reference to ``StoredMessage`` replaces it.

Responses contain stored messages without validation, so the response models do not use
``StoredMessage`` itself.
"""

MessageOut = Annotated[dict[str, Any], WithJsonSchema(MESSAGE_PLACEHOLDER)]


REFERENCE = "#/components/schemas/"
_Schema = dict[str, Any]
_ID: _Schema = {
    "type": "string",
    "description": "ID of the run and number of the event. Send it as `Last-Event-ID` to resume.",
    "examples": ["1f0c5e7a9b:42"],
}


@dataclass(frozen=True)
class EventUnion:
    """Schemas of the events of a stream.

    Events of the same type must be adjacent in ``events``, a base class before its subclasses.
    ``last`` is the type of the last event of a stream.

    If ``prefix`` is set, schema names begin with it, and events have no IDs.
    """

    name: str
    description: str
    events: tuple[Any, ...]
    last: str
    prefix: str = ""

    def schemas(self) -> dict[str, _Schema]:
        """Return the schemas of the union, of its events and of the event payloads, by
        schema name.
        """
        schemas = {self.prefix + event.__name__: _payload(event) for event in self.events}
        mapping = {}
        for name, events in groupby(self.events, key=lambda event: event.type):
            payloads = [self.prefix + event.__name__ for event in events]
            schemas[f"{payloads[0]}Event"] = self._frame(
                name, payloads, schemas[payloads[0]]["description"]
            )
            mapping[name] = f"{REFERENCE}{payloads[0]}Event"
        schemas[self.name] = {
            "description": self.description,
            "oneOf": [{"$ref": reference} for reference in mapping.values()],
            "discriminator": {"propertyName": "event", "mapping": mapping},
        }
        return schemas

    def _frame(self, event: str, payloads: list[str], description: str) -> _Schema:
        references = [{"$ref": f"{REFERENCE}{name}"} for name in payloads]
        content = references[0] if len(references) == 1 else {"anyOf": references[::-1]}
        properties: _Schema = {"id": _ID} if not self.prefix else {}
        properties["event"] = {"type": "string", "const": event}
        properties["data"] = {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": content,
        }
        return {
            "type": "object",
            "description": f"`{event}`: {description}",
            "properties": properties,
            "required": list(properties),
        }


def _payload(event: Any) -> _Schema:
    schema = TypeAdapter(event).json_schema(mode="serialization")
    del schema["title"]
    optional = getattr(event, "optional_fields", ())
    schema["required"] = [name for name in schema["properties"] if name not in optional]
    for field in schema["properties"].values():
        field.pop("title", None)
        field.pop("default", None)
    schema["description"] = str(event.__doc__).replace("``", "`").replace("\n    ", "\n")
    return schema
