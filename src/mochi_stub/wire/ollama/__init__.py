"""Ollama's native wire, true to the server's bytes. `routes.ROUTES` is all that the application needs of it."""
