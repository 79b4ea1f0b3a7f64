"""OpenAI's wire as its own specification has it. `routes.ROUTES` is all that the application needs of it."""
