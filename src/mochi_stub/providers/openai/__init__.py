"""OpenAI's API, as OpenAI's specification describes it. `routes.API` is the entry point."""
