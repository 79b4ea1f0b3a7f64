"""Several servers with one PostgreSQL: every request works at every server."""
