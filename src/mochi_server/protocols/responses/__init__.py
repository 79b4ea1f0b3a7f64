"""Responses API of OpenAI."""
