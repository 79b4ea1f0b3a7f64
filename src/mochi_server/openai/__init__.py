"""The same turns for clients of OpenAI's API: what they ask for, and how events are told on that wire. No HTTP."""

from mochi_server.openai.completions import Completions
from mochi_server.openai.errors import openai_body, openai_error, openai_status

__all__ = ["Completions", "openai_body", "openai_error", "openai_status"]
