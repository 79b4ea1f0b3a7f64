"""Model schemas, under the module name of the documented library API."""

from mochi_server.schemas.models import *  # noqa: F403
