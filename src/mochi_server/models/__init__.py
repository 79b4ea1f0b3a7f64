"""Module names of the documented library API. The schemas are in ``mochi_server.schemas``."""
