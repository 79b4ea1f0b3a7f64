"""ollama-instructor with what it leaves out: thinking is named, its logs and its own retries stay off."""

import logging
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import httpx
import stamina.instrumentation
from ollama import ChatResponse as LibraryResponse
from ollama import ResponseError
from ollama_instructor import OllamaInstructorAsync
from pydantic import BaseModel, ValidationError

from mochi_server.ollama.errors import redirected, refused
from mochi_server.ollama.requests import Endpoint, read_response
from mochi_server.ollama.types import ChatMessage, ChatResponse

# It announces each request, and its hook writes whole conversations into the log.
logging.getLogger("ollama_instructor").setLevel(logging.WARNING)
stamina.instrumentation.set_on_retry_hooks([])

_think: ContextVar[bool | None] = ContextVar("think", default=None)
"""Of the request under way: the library's own call has no room for it."""

_WRAPPING = re.compile(r"^\s*(?:<think>.*?</think>)?\s*(?:```(?:json)?)?\s*(.*?)\s*(?:```)?\s*$", re.DOTALL)


class _Instructor(OllamaInstructorAsync):
    """The library's client; its ``chat`` carries ``think``, and takes JSON out of what models wrap it in."""

    async def chat(self, *args: Any, **options: Any) -> Any:
        answer = await super().chat(*args, think=_think.get(), **options)
        if isinstance(answer, LibraryResponse) and answer.message.content is not None:
            answer.message.content = unwrapped(answer.message.content)
        return answer


def connect(endpoint: Endpoint, timeout: float) -> OllamaInstructorAsync:
    """A client of an Ollama; ``timeout`` in seconds."""
    return _Instructor(
        host=endpoint.url,
        headers=endpoint.headers,
        trust_env=endpoint.use_proxy,
        timeout=timeout,
        follow_redirects=False,
        event_hooks={"response": [_refuse_redirect]},
    )


async def _refuse_redirect(response: httpx.Response) -> None:
    if response.is_redirect:
        raise redirected(response.status_code, response.headers.get("Location", ""))


async def attempt(
    client: Any,
    model: str,
    messages: Sequence[ChatMessage],
    form: type[BaseModel],
    *,
    options: Mapping[str, Any] | None,
    keep_alive: str | float | None,
    think: bool | None,
) -> ChatResponse:
    """One request. Raises ``ValidationError`` for an answer of another form."""
    _think.set(think)
    try:
        answer = await client.chat_completion(
            format=form, model=model, messages=list(messages), options=options, keep_alive=keep_alive, retries=1
        )
    except ValidationError:
        raise
    except ResponseError as error:
        raise refused(error.status_code, error.error.encode(), model) from error
    return read_response(answer.model_dump(exclude_none=True))


def unwrapped(text: str) -> str:
    """JSON without the thinking before it and the fences around it."""
    found = _WRAPPING.match(text)
    return found[1] if found else text
