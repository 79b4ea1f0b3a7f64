"""Tools for models: discovery, schemas, approval and execution."""

from mochi_server.tools.config import ToolExecutionPolicy, ToolSettings
from mochi_server.tools.discovery import Tool, ToolCatalogue, ToolDiscoveryService
from mochi_server.tools.execution import ToolExecutionResult, ToolExecutionService
from mochi_server.tools.loader import Problem
from mochi_server.tools.schema import ToolSchema, ToolSchemaService
from mochi_server.tools.workspace import owner_folder

__all__ = [
    "Problem",
    "Tool",
    "ToolCatalogue",
    "ToolDiscoveryService",
    "ToolExecutionPolicy",
    "ToolExecutionResult",
    "ToolExecutionService",
    "ToolSchema",
    "ToolSchemaService",
    "ToolSettings",
    "owner_folder",
]
