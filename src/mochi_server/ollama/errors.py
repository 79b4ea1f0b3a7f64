"""Translation of errors of Ollama and of the connection to it into ``MochiError``."""

import asyncio
import json
import logging
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import urlsplit

import orjson
from pydantic import ValidationError

from mochi_server.constants import OLLAMA_SETTING
from mochi_server.errors import (
    MochiError,
    ModelNotFound,
    OllamaBusy,
    OllamaError,
    OllamaTimeout,
    OllamaUnreachable,
)
from mochi_server.ollama.endpoint import Endpoint

_INVALID_JSON = (json.JSONDecodeError, UnicodeDecodeError)
_INVALID_FIELDS = (ValidationError, TypeError, RecursionError)  # of the library `ollama`
_TIMEOUTS = (TimeoutError, asyncio.TimeoutError)  # two classes before Python 3.11
_OUT_OF_MEMORY = ("out of memory", "more system memory", "unable to allocate", "not enough memory")
_UNREADABLE_IMAGE = re.compile(
    r"(fail|invalid|unknown|cannot|unable|could not|unsupported)[^\n]{0,60}image"
    r"|image[^\n]{0,60}(fail|invalid|unknown format|cannot|unable|could not|unsupported)"
)
_BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_RETRY_SECONDS = 2  # if Ollama is busy and sends no `Retry-After` in seconds
_EXCERPT_LENGTH = 300
_CHECK_ADDRESS = "Check that {} is the address of Ollama, without a path such as /api."
_CHECK_KEY = (
    "Set OLLAMA_API_KEY to its API key. For a model of Ollama's cloud, run `ollama signin`."
)
_FOREIGN_TEXTS = (
    "<",
    "404 page not found",
)  # begin an HTML page, and Ollama's response to an unknown path
_GO_REQUEST = re.compile(
    r'\bPost "https?://'
)  # of Ollama to its model runner, with an internal address
_GO_MAP = re.compile(
    r"map\[.*?\bmessage:(.*?)(?: \w+:\S*)*\]\s*$", re.DOTALL
)  # error object of a model runner
_MAX_GO_MAP = 1000  # the comparison of a long text with `_GO_MAP` takes minutes
_RAW_ANSWER = re.compile(r"raw='.*'", re.DOTALL)  # text of the model in an error about a tool call
_PLAIN_TEXT = re.compile(r"[A-Za-z][^{}\x00-\x1f\ufffd]*\Z")  # a sentence, not a piece of JSON
_TLS_TEXTS = ("HTTPS server", "HTTPS port", "SSL-enabled server port")
"""Texts with which web servers refuse HTTP at a TLS port."""
_PLAIN_HTTP = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""Reasons of OpenSSL, by its version, for an answer without TLS."""
_USE_HTTPS = "If this address uses TLS, use https:// in {}."
_JSON_OBJECT = re.compile(r"[^{]*(\{.*\})", re.DOTALL)

logger = logging.getLogger(__name__)


@contextmanager
def translating_errors(endpoint: Endpoint, timeout_advice: str = "") -> Iterator[None]:
    """Translate the errors of a ``with`` block with ``translate``."""
    try:
        yield
    except MochiError:
        raise
    except Exception as error:
        raise translate(error, endpoint, timeout_advice) from error


def translate(error: Exception, endpoint: Endpoint, timeout_advice: str = "") -> MochiError:
    """Return ``OllamaUnreachable`` for a failed connection attempt, ``OllamaTimeout`` for another
    timeout, and ``OllamaError`` for any other error.

    The message contains the URL of ``endpoint``. That of a timeout ends with ``timeout_advice``.
    """
    import aiohttp  # noqa: PLC0415 - only errors need it
    import httpx  # noqa: PLC0415 - only errors need it

    host = endpoint.url
    check_address = _CHECK_ADDRESS.format(endpoint.setting)
    connect_errors = (
        aiohttp.ClientConnectorError,
        aiohttp.ConnectionTimeoutError,
        ConnectionRefusedError,
    )
    no_answer = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)

    # The library `ollama` raises a plain ConnectionError if an attempt to connect fails.
    is_refused = type(error) is ConnectionError or isinstance(error, httpx.ConnectTimeout)
    if is_refused or isinstance(error, connect_errors):
        reason = _system_reason(error) or "the connection failed or timed out"
        return OllamaUnreachable(host, reason, endpoint.setting)
    if isinstance(error, (*_TIMEOUTS, httpx.TimeoutException)):
        return OllamaTimeout(
            f"Ollama at {host} sent no data before the timeout. {timeout_advice}".rstrip()
        )
    if isinstance(error, _INVALID_JSON):
        return OllamaError(f"Ollama sent a response that is not JSON. {check_address}")
    if isinstance(error, _INVALID_FIELDS):
        logger.warning("Ollama sent unexpected fields host=%s: %s", host, error)
        return OllamaError(f"Ollama sent a response in another format. {check_address}")
    logger.warning(
        "Connection to Ollama broke host=%s error=%s: %s", host, type(error).__name__, error
    )
    reason = _system_reason(error)
    text = (
        "The connection to Ollama "
        f"broke{f': {reason}' if reason else ' before the answer was complete'}."
    )
    if isinstance(error, no_answer) and host.startswith("http://"):
        text = f"{text} {_USE_HTTPS.format(endpoint.setting)}"
    return OllamaError(f"{text} Try again. If it fails again, see the log of Ollama.")


def log_failure(error: OllamaError, model: str) -> None:
    """Log an error of a request to ``model``, without the text of prompts and answers."""
    reason = _RAW_ANSWER.sub("raw='***'", _readable(error.upstream_text) or error.message)
    logger.warning(
        "Ollama failed model=%s status=%s: %s",
        model,
        error.details.get("upstream_status", "-"),
        _cut(reason),
    )


def log_missing_details(model: str, error: MochiError) -> None:
    """Log that the details of a listed model are not available."""
    logger.warning("Model details not available model=%s: %s", model, error.message)


def raise_for_status(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    model: str | None = None,
    setting: str = OLLAMA_SETTING,
) -> None:
    """Raise the error for a redirect or a response with status 400 or higher.

    ``setting`` is the environment variable that contains the address of the host.
    """
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        raise redirect_error(status, headers.get("Location", ""), setting)
    if status >= HTTPStatus.BAD_REQUEST:
        retry_after = headers.get("Retry-After")
        raise refusal_error(status, body, model, retry_after, setting=setting)


def refusal_error(
    status: int,
    body: bytes,
    model: str | None = None,
    retry_after: str | None = None,
    *,
    setting: str = OLLAMA_SETTING,
) -> MochiError:
    """Return the error for a response with status 400 or higher.

    It is ``OllamaBusy`` for the statuses 429 and 503, ``ModelNotFound`` if Ollama does not have
    ``model``, and otherwise ``OllamaError``. Its message contains Ollama's own message.
    """
    received = _message_in(body) or _excerpt(body.strip())
    if any(words in received for words in _TLS_TEXTS):
        text = f"Ollama's address expects TLS (status {status}). Use https:// in {setting}."
        return OllamaError(text, upstream_status=status)
    is_foreign = not received or received.startswith(_FOREIGN_TEXTS)
    reason = "" if is_foreign else _cut(_readable(received))
    text = reason or f"Ollama answered with status {status} and no message."
    if status in _BUSY:
        delay = int(retry_after) if retry_after and retry_after.isdecimal() else _RETRY_SECONDS
        busy = OllamaBusy(text, status, delay)
        busy.is_reported = _has_error(body)
        return busy
    is_unknown = (
        status == HTTPStatus.NOT_FOUND and "not found" in text
    ) or text == "invalid model name"
    if is_unknown and model is not None:
        return ModelNotFound(model)
    if status == HTTPStatus.UNAUTHORIZED:
        reason = "a key is required" if is_foreign else text.rstrip(".")
        text = f"Ollama answered with status {status}: {reason}. {_CHECK_KEY}"
    elif is_foreign:
        text = f"{text} {_CHECK_ADDRESS.format(setting)}"
    elif reason:
        text = f"Ollama failed ({status}): {reason}"
    error = OllamaError(text, upstream_status=status)
    error.upstream_text = received
    error.is_reported = _has_error(body)
    return error


def reported_error(line: bytes) -> OllamaError:
    """Return the error that a line of a stream reports."""
    received = _message_in(line) or _excerpt(line.strip())
    reason = _cut(_readable(received))
    error = OllamaError(
        f"Ollama failed: {reason or 'it reported an error without a message. See its log.'}"
    )
    error.upstream_text = received
    error.is_reported = True
    return error


def malformed_answer(problem: str) -> OllamaError:
    """Return the error for an answer with a ``problem`` of the model, whose host works."""
    error = OllamaError(problem)
    error.upstream_text = problem
    return error


def redirect_error(status: int, location: str, setting: str) -> OllamaError:
    """Return the error for a redirect. Its message contains only the host of the target."""
    host = urlsplit(location).hostname or "a path on the same host"
    text = (
        f"Ollama answered with a redirect (status {status}) to {host}, which would send the "
        "conversation elsewhere."
    )
    advice = f"Set {setting} to the address of Ollama itself."
    return OllamaError(f"{text} {advice}", upstream_status=status, redirect_host=host)


def is_context_refusal(error: OllamaError) -> bool:
    """Return whether Ollama rejected a prompt because it exceeds the context window."""
    text = (error.upstream_text or error.message).lower()
    if (
        isinstance(error, OllamaBusy) or "deadline" in text
    ):  # "context deadline exceeded" is a timeout of Go
        return False
    return "context" in text and ("exceed" in text or "longer" in text or "too long" in text)


def is_out_of_memory(error: OllamaError) -> bool:
    """Return whether Ollama could not load a model for lack of memory."""
    text = (error.upstream_text or error.message).lower()
    return any(words in text for words in _OUT_OF_MEMORY)


def refused_feature(error: OllamaError) -> str | None:
    """Return the feature that the model refuses, ``thinking`` or ``tools``, or None."""
    text = error.upstream_text or error.message
    match = re.search(r"does not support (thinking|tools)", text)
    return match[1] if match else None


def is_unparsed_call(error: OllamaError) -> bool:
    """Return whether Ollama could not read a tool call that the model has written."""
    return "error parsing tool call" in (error.upstream_text or error.message)


def is_unreadable_image(error: OllamaError) -> bool:
    """Return whether Ollama could not decode an image of the prompt."""
    text = (error.upstream_text or error.message).lower()
    return _UNREADABLE_IMAGE.search(text) is not None


def refused_tokens(error: OllamaError) -> int | None:
    """Return the token count of a rejected prompt, or None if the error contains no count."""
    return _number_in(error, r"n_prompt_tokens\W+(\d+)|(\d+) tokens")


def refusing_window(error: OllamaError) -> int | None:
    """Return the context window of a rejected prompt, or None if the error does not name it."""
    return _number_in(error, r"n_ctx\W+(\d+)|context size \((\d+)")


def _number_in(error: OllamaError, pattern: str) -> int | None:
    """Return the number in the text of an error. Each of two groups of ``pattern`` can have it."""
    match = re.search(pattern, error.upstream_text or error.message)
    return int(match[1] or match[2]) if match else None


def invalid_json_error(line: bytes) -> OllamaError:
    """Return the error for an invalid line of a stream.

    If the line is from a web server, log its beginning. Plain text is the reason of the error.
    """
    text = _excerpt(line.strip())
    if text.startswith("<"):
        logger.warning("Ollama sent a line of HTML: %s", text)
    elif _PLAIN_TEXT.match(text):
        error = OllamaError(f"Ollama failed: {_readable(text)}")
        error.upstream_text = text
        return error
    return OllamaError(
        "Ollama sent a line that is not JSON. Try again. If it fails again, see Ollama's log."
    )


def _readable(text: str) -> str:
    """Return Ollama's error ``text`` without internal text of the model runner, which may be ""."""
    if _GO_REQUEST.search(text):
        return "its model runner stopped during the request. See the log of Ollama."
    if len(text) <= _MAX_GO_MAP and (match := _GO_MAP.search(text)):
        text = match[1]
    elif match := _JSON_OBJECT.match(text):
        text = _message_in(match[1]) or ("" if match.start(1) == 0 else text)
    return text.replace("llama-server", "model runner").strip()


def _message_in(text: str | bytes) -> str:
    """Return the message of an error in JSON, or "" if there is none."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ""
    while isinstance(value, dict):
        value = value.get("error") or value.get("message") or value.get("detail")
    return value if isinstance(value, str) else ""


def _has_error(body: bytes) -> bool:
    """Return whether a body is a JSON error in Ollama's format.

    Proxies and login pages use other formats.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) and bool(value.get("error"))


def _excerpt(body: bytes) -> str:
    return _cut(body.decode("utf-8", "replace"))


def _cut(text: str) -> str:
    return text if len(text) <= _EXCERPT_LENGTH else text[:_EXCERPT_LENGTH] + "..."


def _system_reason(error: BaseException | None) -> str:
    """Return the reason that the operating system or TLS reports, or ""."""
    while error is not None:
        cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", error)
        if isinstance(cause, ssl.SSLError):  # the client wraps the error in another message
            if cause.reason in _PLAIN_HTTP:
                return "TLS: the address speaks plain HTTP; use http://"
            verification = getattr(cause, "verify_message", None)
            reason = (cause.reason or "it failed").replace("_", " ").lower()
            return f"TLS: {verification or reason}"
        if isinstance(cause, socket.gaierror):  # its error numbers are not valid for os.strerror
            return str(cause.strerror or cause)
        number = getattr(error, "errno", None)
        if number:
            return os.strerror(number)
        error = _cause(error)
    return ""


def _cause(error: BaseException) -> BaseException | None:
    """Return the error that led to another one. Of a group, it is the first."""
    of_group: Sequence[BaseException] = getattr(error, "exceptions", ())
    return of_group[0] if of_group else error.__cause__ or error.__context__
