"""Mapping between OpenAI's API and turns: requests, responses and errors, without HTTP."""

from mochi_server.openai.completions import Completions
from mochi_server.openai.errors import openai_body, openai_error, openai_status

__all__ = ["Completions", "openai_body", "openai_error", "openai_status"]
