"""Chat schemas, under the module name of the documented library API."""

from mochi_server.schemas.chat import *  # noqa: F403
