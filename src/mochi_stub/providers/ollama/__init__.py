"""Ollama's native API, with the exact bytes of the real server. `routes.ROUTES` is its entry point."""
