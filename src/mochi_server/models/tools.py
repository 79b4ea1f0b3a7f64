"""Tool schemas, under the module name of the documented library API."""

from mochi_server.schemas.tools import *  # noqa: F403
