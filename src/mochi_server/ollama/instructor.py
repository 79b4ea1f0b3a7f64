"""Client for structured answers, based on ollama-instructor without its logs and retries."""

import logging
import re
from collections.abc import Sequence
from typing import Any

import httpx
import stamina.instrumentation
from ollama import ChatResponse as LibraryResponse
from ollama import ResponseError
from ollama_instructor import OllamaInstructorAsync
from pydantic import BaseModel

from mochi_server.ollama.errors import redirect_error, refusal_error
from mochi_server.ollama.payloads import Endpoint, read_response
from mochi_server.ollama.types import ChatMessage, ChatResponse

# The library logs each request, and its retry hook logs whole conversations.
logging.getLogger("ollama_instructor").setLevel(logging.WARNING)
stamina.instrumentation.set_on_retry_hooks([])

_BEFORE_JSON = re.compile(r"\s*(?:<think>.*?</think>)?\s*(?:```(?:json)?)?", re.DOTALL)


class Instructor(OllamaInstructorAsync):
    """Client that removes thinking blocks and code fences around the JSON of an answer."""

    def __init__(self, endpoint: Endpoint, timeout: float) -> None:
        super().__init__(
            host=endpoint.url,
            headers=endpoint.headers,
            trust_env=endpoint.use_proxy,
            timeout=timeout,
            follow_redirects=False,
            event_hooks={"response": [_refuse_redirect]},
        )

    async def chat(self, *args: Any, **options: Any) -> Any:
        answer = await super().chat(*args, **options)
        if isinstance(answer, LibraryResponse):
            text = _BEFORE_JSON.sub("", answer.message.content or "", count=1)
            answer.message.content = text.strip().removesuffix("```").rstrip()
        return answer

    async def attempt(self, model: str, messages: Sequence[ChatMessage], format: type[BaseModel]) -> ChatResponse:
        """Send one request without retries. Raises ``ValidationError`` if the answer does not match the schema."""
        try:
            answer = await self.chat_completion(format, model, messages, retries=1)
        except ResponseError as error:
            raise refusal_error(error.status_code, error.error.encode(), model) from error
        return read_response(answer.model_dump(exclude_none=True))


async def _refuse_redirect(response: httpx.Response) -> None:
    if response.is_redirect:
        raise redirect_error(response.status_code, response.headers.get("Location", ""))
