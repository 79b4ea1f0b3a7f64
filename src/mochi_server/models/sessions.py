"""Session schemas, under the module name of the documented library API."""

from mochi_server.schemas.sessions import *  # noqa: F403
