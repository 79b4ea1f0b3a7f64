"""Foreign exceptions become ours here and nowhere else.

Classes are recognised by name, so that neither HTTP library is loaded for the sake of the other.
"""

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

_UNREACHABLE = {
    "aiohttp.ClientConnectorError",
    "aiohttp.ConnectionTimeoutError",
    "httpx.ConnectError",
    "httpx.ConnectTimeout",
    "builtins.ConnectionRefusedError",
}
_SILENT = {"aiohttp.ServerTimeoutError", "httpx.TimeoutException", "builtins.TimeoutError", "asyncio.TimeoutError"}
_EXCERPT = 200


@contextmanager
def translated(host: str) -> Iterator[None]:
    """What HTTP libraries raise inside is a ``MochiError`` outside; ``host`` is the URL to name in messages."""
    try:
        yield
    except (MochiError, ValidationError):
        raise
    except Exception as error:
        raise translate(error, host) from error


def translate(error: Exception, host: str) -> MochiError:
    """Our error for an HTTP library's. Only a connection that was never made is "unreachable"."""
    names = {f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(error).__mro__}
    if names & _UNREACHABLE:
        return OllamaUnreachable(host, _reason(error))
    if names & _SILENT:
        return OllamaError(f"Ollama at {host} was silent for too long.")
    if isinstance(error, orjson.JSONDecodeError):
        return OllamaError("Ollama sent something that is not JSON.")
    return OllamaError(f"The connection to Ollama broke: {_reason(error)}")


def refused(status: int, body: bytes, model: str | None = None) -> MochiError:
    """Our error for an answer with a status of 400 or more; Ollama's own text is kept."""
    text = error_text(body)
    if not text or _is_page(text):  # from a proxy, or from something that is no Ollama
        title = re.search(r"<title>\s*(.*?)\s*</title>", text, re.DOTALL | re.IGNORECASE)
        text = f"Ollama answered with status {status}{f' and a page: {title[1]}' if title else ''}."
    if status == HTTPStatus.NOT_FOUND and model is not None and "not found" in text:
        return ModelNotFound(model)
    return OllamaError(text, upstream_status=status)


def redirected(status: int, location: str) -> OllamaError:
    """Our error for a redirect, which is never followed; of the target only the host is named."""
    host = _host_of(location)
    return OllamaError(
        f"Ollama answered with a redirect (status {status}) to {host}. Redirects are not followed, because that would "
        "send the conversation to another address. Set MOCHI_OLLAMA_HOST to the address of Ollama itself.",
        upstream_status=status,
        redirect_host=host,
    )


def is_context_refusal(error: OllamaError) -> bool:
    """Whether Ollama refused a prompt because it is longer than the context."""
    text = error.message.lower()
    return "context" in text and ("exceed" in text or "longer" in text or "too long" in text)


def is_out_of_memory(error: OllamaError) -> bool:
    """Whether a model could not be loaded for want of memory."""
    text = error.message.lower()
    return any(
        words in text for words in ("out of memory", "more system memory", "unable to allocate", "not enough memory")
    )


def refused_tokens(error: OllamaError) -> int | None:
    """How many tokens the refused prompt has, where the refusal says so."""
    found = re.search(r"n_prompt_tokens\W+(\d+)|(\d+) tokens", error.message)
    return int(found[1] or found[2]) if found else None


def not_json(line: bytes) -> OllamaError:
    """Our error for a line of a stream that cannot be read."""
    return OllamaError(f"Ollama sent a line that is not JSON: {_shorten(line.decode('utf-8', 'replace'))}")


def error_text(body: bytes) -> str:
    """The ``error`` of a JSON body, as text; of any other body its beginning."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _shorten(body.decode("utf-8", "replace").strip())
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        error = error["message"]
    return error if isinstance(error, str) else _shorten(body.decode("utf-8", "replace").strip())


def _host_of(location: str) -> str:
    try:
        return urlsplit(location).hostname or "a path on the same host"
    except ValueError:
        return "an invalid address"


def _is_page(text: str) -> bool:
    return re.match(r"<(!doctype|html|head)\b", text, re.IGNORECASE) is not None


def _shorten(text: str) -> str:
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "..."


def _reason(error: Exception) -> str:
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
    if isinstance(cause, ssl.SSLError):  # nor are its
        why = getattr(cause, "verify_message", None) or (cause.reason or "it failed").replace("_", " ").lower()
        return f"TLS: {why}"
    if isinstance(cause, socket.gaierror):  # its numbers are not the system's
        return str(cause.strerror or cause)
    number = getattr(error, "errno", None)
    return (os.strerror(number) if number else str(error)) or type(error).__name__
