"""Routes under `/tools`."""

from typing import Any

from mochi_server.dependencies import ServicesDep
from mochi_server.errors import ToolNotFound
from mochi_server.schemas.tools import ExecutionList, ToolDetails, ToolList
from mochi_server.tools.discovery import Tool, ToolCatalogue
from mochi_server.web.routes import PrefixRouter, responses

router = PrefixRouter(prefix="/tools", tags=["tools"])


@router.get("", response_model=ToolList)
async def list_tools(services: ServicesDep) -> ToolCatalogue:
    """List the tools, their groups, and the problems of tools that cannot be used."""
    return await services.tools.catalogue()


@router.get("/executions", response_model=ExecutionList)
async def list_executions(services: ServicesDep) -> dict[str, Any]:
    """List the last 100 tool calls, with statistics."""
    return {
        "executions": services.execution.history(),
        "statistics": services.execution.statistics(),
    }


@router.post("/reload", response_model=ToolList)
async def reload_tools(services: ServicesDep) -> ToolCatalogue:
    """Read the tools directory again and reconnect to its MCP servers."""
    return await services.tools.reload()


@router.get("/{tool_name}", response_model=ToolDetails, responses=responses(ToolNotFound))
async def get_tool(tool_name: str, services: ServicesDep) -> Tool:
    """Get a tool with its JSON schema."""
    return (await services.tools.catalogue()).get(tool_name)
