"""OpenAI's API, as OpenAI's specification describes it. `routes.ROUTES` is the entry point."""
