"""Gemini's API. `routes.ROUTES` is its entry point."""
