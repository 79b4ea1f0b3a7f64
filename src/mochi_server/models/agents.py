"""Agent schemas, under the module name of the documented library API."""

from mochi_server.schemas.agents import *  # noqa: F403
