"""Sessions in PostgreSQL, and what lets several servers serve them. Nothing of it is imported without a URL."""
