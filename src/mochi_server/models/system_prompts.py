"""System prompt schemas, under the module name of the documented library API."""

from mochi_server.schemas.system_prompts import *  # noqa: F403
