"""Implementations of `SessionStore`: files, PostgreSQL and memory."""
