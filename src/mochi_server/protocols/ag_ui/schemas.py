"""Request schema of AG-UI."""

from functools import cache, reduce
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from mochi_server.models.common import Body
from mochi_server.util.validation import Items

if TYPE_CHECKING:  # the package takes 0.15 s to import, so only requests of AG-UI import it
    from ag_ui.core import RunAgentInput

_MAX_PARTS = 1000
"""Maximum number of parts or tool calls in one message."""
_Model = TypeVar("_Model", bound=BaseModel)


def _limit_lists(message: dict[str, Any]) -> dict[str, Any]:
    for name, value in message.items():
        if isinstance(value, list) and len(value) > _MAX_PARTS:
            raise ValueError(f"{name} has {len(value)} entries; at most {_MAX_PARTS} are allowed")
    return message


class AgUiRequest(Body):
    """`RunAgentInput` of AG-UI. Only the messages after the last answer are new. The session already has the
    earlier messages.

    `forwardedProps` can contain `think`, `options`, `format`, `keep_alive` and `on_disconnect`. `state` and unknown
    fields are ignored.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hello!"}]}
            ]
        },
    )

    thread_id: str = Field(alias="threadId", description="ID of the client's conversation. The events repeat it.")
    run_id: str = Field(alias="runId", description="ID of the client's run. The events repeat it.")
    messages: Items[Annotated[dict[str, Any], AfterValidator(_limit_lists)]] = Field(
        description="Messages of the conversation, oldest first."
    )
    tools: Items[dict[str, Any]] | None = Field(None, description="Tools that the client runs.")
    context: Items[dict[str, Any]] | None = Field(None, description="Texts that are added to the instructions.")
    resume: Items[dict[str, Any]] | None = Field(None, description="Decisions for tool calls.")
    forwarded_props: Any = Field(None, alias="forwardedProps", description="Options of the turn.")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema of this class, with AG-UI's own schemas for the fields that are lists."""
        from ag_ui.core import RunAgentInput  # noqa: PLC0415 - see above

        own, protocol = handler(schema), RunAgentInput.model_json_schema()
        fields = handler.resolve_ref_schema(own)["properties"]
        for name in ("messages", "tools", "context", "resume"):
            fields[name] |= _inlined(protocol["properties"][name], protocol["$defs"])
        return own

    def to_input(self) -> "RunAgentInput":
        """Return the request as AG-UI's ``RunAgentInput``. Raise ``RequestValidationError`` if a field is invalid."""
        return validated(_input_model(), self.model_dump(by_alias=True, exclude_unset=True))


@cache
def _input_model() -> "type[RunAgentInput]":
    """Return AG-UI's ``RunAgentInput`` with lists that report only their first invalid item."""
    from ag_ui.core import Context, Message, ResumeEntry, RunAgentInput, Tool  # noqa: PLC0415 - see above

    class Input(RunAgentInput):
        messages: Items[Message]
        tools: Items[Tool] | None = None
        context: Items[Context] | None = None
        resume: Items[ResumeEntry] | None = None

    return Input


def validated(model: type[_Model], value: Any, *location: str | int) -> _Model:
    """Validate the part of the request body at ``location``. Raise ``RequestValidationError`` if it is invalid."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *location, *problem["loc"])} for problem in error.errors()]
        body: Any = reduce(lambda inner, step: {step: inner}, reversed(location), value)
        raise RequestValidationError(problems, body=body) from error


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a JSON schema without references and descriptions. Fields with a constant value are required."""
    if isinstance(schema, list):
        return [_inlined(entry, definitions) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    dropped = {"title", "description", "default", "discriminator", "properties"}
    inlined = {key: _inlined(value, definitions) for key, value in schema.items() if key not in dropped}
    if (fields := schema.get("properties")) is not None:
        inlined["properties"] = {name: _inlined(field, definitions) for name, field in fields.items()}
        constants = [name for name, field in fields.items() if "const" in field]
        inlined["required"] = [*constants, *(name for name in schema.get("required", ()) if name not in constants)]
    return inlined
