"""Gemini's wire. `routes.ROUTES` is all that the application needs of it."""
