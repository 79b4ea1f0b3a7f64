"""Schemas of tools, and of decisions about their calls."""

from typing import Annotated, Any, Literal

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field

from mochi_server.models.common import StrictBody
from mochi_server.tools.schema import ToolSchema


class Shown(BaseModel):
    """Base of schemas that are read from the attributes of a service's objects."""

    model_config = ConfigDict(from_attributes=True)


class ToolParameter(BaseModel):
    """A parameter as Python writes its type."""

    type: str
    description: str


class ToolSummary(Shown):
    """A tool; ``destructive`` tools are asked about under the policy ``confirm_destructive``."""

    name: str
    description: str = Field(validation_alias=AliasPath("schema", "description"))
    parameters: dict[str, ToolParameter] = Field(validation_alias=AliasPath("schema", "overview"))
    destructive: bool


class ToolDetails(ToolSummary):
    """A tool with its JSON schema, as models get it."""

    schema_: Annotated[dict[str, Any], BeforeValidator(ToolSchema.definition)] = Field(alias="schema")


class ToolProblem(Shown):
    """A tool, a file or an MCP server that cannot be used, and why."""

    name: str
    message: str


class ToolList(BaseModel):
    """All tools by name, groups of them, and what cannot be used. An MCP server is a group."""

    tools: dict[str, ToolSummary]
    groups: dict[str, list[str]]
    problems: list[ToolProblem]


class ToolExecution(BaseModel):
    """A run of a tool. ``execution_time`` is in seconds."""

    tool_name: str
    success: bool
    result: str | None
    error_message: str | None
    execution_time: float
    timestamp: str


class ExecutionStatistics(BaseModel):
    """Counts and mean time, in seconds, of some runs."""

    total: int
    succeeded: int
    failed: int
    mean_seconds: float


class AllExecutionStatistics(ExecutionStatistics):
    """Over all remembered runs, and by tool."""

    by_tool: dict[str, ExecutionStatistics]


class ExecutionList(BaseModel):
    """The last hundred runs, oldest first."""

    executions: list[ToolExecution]
    statistics: AllExecutionStatistics


class ToolDecision(StrictBody):
    """Approve or deny a pending call. ``arguments`` replace those of the model; the model is told the ``reason``."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"confirmation_id": "6f1e2d3c4b5a", "approved": True}]})

    confirmation_id: str = Field(description="The id in the event that asks, or in the list of pending calls.")
    approved: bool = Field(description="Whether the call runs.")
    arguments: dict[str, Any] | None = Field(
        None, description="To be used in place of the model's; they are checked again."
    )
    reason: str | None = Field(None, max_length=10_000, description="Told to the model.")
    remember: Literal["once", "session"] = Field(
        "once", description="With `session`, an approved tool is not asked about again in this session."
    )


class ToolDecided(BaseModel):
    """What was decided."""

    confirmation_id: str
    approved: bool
    tool_name: str
    arguments: dict[str, Any]


class PendingConfirmation(Shown):
    """A call that waits for approval; ``agent_name`` is set for calls of an agent."""

    confirmation_id: str
    tool_name: str = Field(validation_alias=AliasPath("call", "name"))
    arguments: dict[str, Any] = Field(validation_alias=AliasPath("call", "arguments"))
    call_index: int = Field(validation_alias=AliasPath("call", "index"))
    agent_name: str | None


class PendingConfirmations(BaseModel):
    """All calls of a session that wait, oldest first."""

    confirmations: list[PendingConfirmation]
