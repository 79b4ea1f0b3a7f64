"""Schemas of tools and of approvals."""

from typing import Annotated, Any, Literal

from pydantic import AliasPath, BeforeValidator, Field

from mochi_server.schemas.common import Schema, StrictBody
from mochi_server.sessions.types import FiniteObject
from mochi_server.tools.schema import ToolSchema


class ToolParameter(Schema):
    """A parameter of a tool. ``type`` is a Python type."""

    type: str
    description: str


class ToolSummary(Schema, from_attributes=True):
    """A tool.

    Under the policy ``confirm_destructive``, calls of ``destructive`` tools need approval.
    """

    name: str
    description: str = Field(validation_alias=AliasPath("schema", "description"))
    parameters: dict[str, ToolParameter] = Field(validation_alias=AliasPath("schema", "overview"))
    destructive: bool


class ToolDetails(ToolSummary):
    """A tool with the JSON schema that models receive."""

    schema_: Annotated[dict[str, Any], BeforeValidator(ToolSchema.definition)] = Field(
        alias="schema"
    )


class ToolProblem(Schema, from_attributes=True):
    """A problem with a tool, a tool group, a file or an MCP server. ``name`` is its name."""

    name: str
    message: str


class ToolList(Schema):
    """All tools, tool groups and problems.

    The tools of each MCP server form a group with its name or ``mcp:NAME``.
    """

    tools: dict[str, ToolSummary]
    groups: dict[str, list[str]]
    problems: list[ToolProblem]


class ToolExecution(Schema):
    """A finished tool call. ``execution_time`` is in seconds."""

    tool_name: str
    success: bool
    result: str | None
    error_message: str | None
    execution_time: float
    timestamp: str


class ExecutionStatistics(Schema):
    """Number of tool calls and their mean execution time."""

    total: int
    succeeded: int
    failed: int
    mean_seconds: float


class AllExecutionStatistics(ExecutionStatistics):
    """Statistics of all listed tool calls, and of each tool."""

    by_tool: dict[str, ExecutionStatistics]


class ExecutionList(Schema):
    """The last 100 tool calls, oldest first."""

    executions: list[ToolExecution]
    statistics: AllExecutionStatistics


class ToolDecision(
    StrictBody,
    json_schema_extra={"examples": [{"confirmation_id": "6f1e2d3c4b5a", "approved": True}]},
):
    """Decision on a pending tool call: approve or deny it."""

    confirmation_id: str = Field(
        description="ID of the pending tool call, from its event or from the list."
    )
    approved: bool = Field(description="`true` runs the call, `false` denies it.")
    arguments: FiniteObject | None = Field(
        None, description="New arguments, which replace the model's arguments."
    )
    reason: str | None = Field(
        None, max_length=10_000, description="Reason that the model receives."
    )
    remember: Literal["once", "session"] | None = Field(
        "once", description="`session` also approves later calls."
    )


class ToolDecided(Schema):
    """The decision on a tool call."""

    confirmation_id: str
    approved: bool
    tool_name: str
    arguments: dict[str, Any]


class PendingConfirmation(Schema):
    """A tool call that waits for approval."""

    confirmation_id: str
    tool_name: str
    arguments: dict[str, Any]
    call_index: int
    agent_name: str | None = None
    state: Literal["waiting"]


class PendingConfirmations(Schema):
    """All tool calls of a session that need approval, oldest first."""

    confirmations: list[PendingConfirmation]
