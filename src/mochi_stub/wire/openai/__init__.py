"""OpenAI's API according to its specification. `routes.ROUTES` is its entry point."""
