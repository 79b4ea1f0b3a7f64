"""Translation of HTTP library errors to ``MochiError``. Errors are matched by class name, without library imports."""

import os
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import urlsplit

import orjson
from pydantic import ValidationError

from mochi_server.errors import MochiError, ModelNotFound, OllamaError, OllamaUnreachable

_CONNECT_ERRORS = {
    "aiohttp.ClientConnectorError",
    "aiohttp.ConnectionTimeoutError",
    "httpx.ConnectError",
    "httpx.ConnectTimeout",
    "builtins.ConnectionRefusedError",
}
_TIMEOUTS = {"aiohttp.ServerTimeoutError", "httpx.TimeoutException", "builtins.TimeoutError", "asyncio.TimeoutError"}
_OUT_OF_MEMORY = ("out of memory", "more system memory", "unable to allocate", "not enough memory")
_EXCERPT_LENGTH = 200


@contextmanager
def translating_errors(host: str) -> Iterator[None]:
    """Translate errors of HTTP libraries in a ``with`` block to ``MochiError``. ``host`` is the URL in the messages."""
    try:
        yield
    except (MochiError, ValidationError):
        raise
    except Exception as error:
        raise translate(error, host) from error


def translate(error: Exception, host: str, *, timeout_advice: str = "") -> MochiError:
    """Return ``OllamaUnreachable`` for a failed connection attempt and ``OllamaError`` for any other error.

    ``timeout_advice`` is a sentence that the message of a timeout ends with.
    """
    names = {f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(error).__mro__}
    if names & _CONNECT_ERRORS:
        return OllamaUnreachable(host, _reason(error))
    if names & _TIMEOUTS:
        return OllamaError(f"Ollama at {host} sent no data before the timeout. {timeout_advice}".rstrip())
    if isinstance(error, orjson.JSONDecodeError):
        return OllamaError("Ollama sent a response that is not JSON.")
    return OllamaError(f"The connection to Ollama broke: {_reason(error)}")


def refusal_error(status: int, body: bytes, model: str | None = None) -> MochiError:
    """Return the error for a response with status 400 or higher. Its message is Ollama's own message."""
    text = error_text(body)
    # An HTML page is from a proxy, or from a server that is not Ollama.
    if not text or re.match(r"<(!doctype|html|head)\b", text, re.IGNORECASE):
        title = re.search(r"<title>\s*(.*?)\s*</title>", text, re.DOTALL | re.IGNORECASE)
        text = f"Ollama answered with status {status}{f' and a page: {title[1]}' if title else ''}."
    if status == HTTPStatus.NOT_FOUND and model is not None and "not found" in text:
        return ModelNotFound(model)
    return OllamaError(text, upstream_status=status)


def redirect_error(status: int, location: str) -> OllamaError:
    """Return the error for a redirect. Its message contains only the host of the target."""
    try:
        host = urlsplit(location).hostname or "a path on the same host"
    except ValueError:
        host = "an invalid address"
    return OllamaError(
        f"Ollama answered with a redirect (status {status}) to {host}. Redirects are not followed, because that would "
        "send the conversation to another address. Set MOCHI_OLLAMA_HOST to the address of Ollama itself.",
        upstream_status=status,
        redirect_host=host,
    )


def is_context_refusal(error: OllamaError) -> bool:
    """Return whether Ollama rejected a prompt because it exceeds the context window."""
    text = error.message.lower()
    return "context" in text and ("exceed" in text or "longer" in text or "too long" in text)


def is_out_of_memory(error: OllamaError) -> bool:
    """Return whether Ollama could not load a model for lack of memory."""
    text = error.message.lower()
    return any(words in text for words in _OUT_OF_MEMORY)


def refused_tokens(error: OllamaError) -> int | None:
    """Return the token count of a rejected prompt, or None if the error contains no count."""
    match = re.search(r"n_prompt_tokens\W+(\d+)|(\d+) tokens", error.message)
    return int(match[1] or match[2]) if match else None


def invalid_json_error(line: bytes) -> OllamaError:
    """Return the error for an invalid line of a stream."""
    return OllamaError(f"Ollama sent a line that is not JSON: {_excerpt(line)}")


def error_text(body: bytes) -> str:
    """Return the error message in a JSON body, or the beginning of any other body."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, dict):
        error = error.get("message")
    return error if isinstance(error, str) else _excerpt(body.strip())


def _excerpt(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    return text if len(text) <= _EXCERPT_LENGTH else text[:_EXCERPT_LENGTH] + "..."


def _reason(error: Exception) -> str:
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
    if isinstance(cause, ssl.SSLError):  # aiohttp wraps the error in another message
        reason = getattr(cause, "verify_message", None) or (cause.reason or "it failed").replace("_", " ").lower()
        return f"TLS: {reason}"
    if isinstance(cause, socket.gaierror):  # its error numbers are not valid for os.strerror
        return str(cause.strerror or cause)
    number = getattr(error, "errno", None)
    return (os.strerror(number) if number else str(error)) or type(error).__name__
