"""Anthropic's API. `routes.API` is its entry point."""
