"""Errors of Ollama: readable messages without internal text of a model runner or of an HTTP
library.
"""

import time

import aiohttp
import orjson
import pytest

from mochi_server.errors import OllamaBusy, OllamaError, OllamaUnreachable
from mochi_server.ollama.endpoint import parse_endpoint
from mochi_server.ollama.errors import (
    is_context_refusal,
    refusal_error,
    refused_tokens,
    refusing_window,
    reported_error,
    translate,
)
from tests.support.cases import cases

OLLAMA = parse_endpoint("http://ollama")

REFUSED = {
    "code": 400,
    "message": "the request exceeds the available context size, try increasing it",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 12345,
    "n_ctx": 8192,
}


@cases(
    ("received", "message"),
    [
        ("slow down", "Ollama failed (500): slow down"),
        (
            "requires more memory " * 20,
            "Ollama failed (500): " + ("requires more memory " * 20)[:300] + "...",
        ),
        (orjson.dumps({"error": REFUSED}).decode(), f"Ollama failed (500): {REFUSED['message']}"),
        ("llama-server chat error: map[code:500 message:kaput]", "Ollama failed (500): kaput"),
        (
            "llama-server chat error: map[code:400 message:two words n_ctx:8 type:bad]",
            "Ollama failed (500): two words",
        ),
        (
            "llama-server process has terminated: exit status 2",
            "Ollama failed (500): model runner process has terminated: exit status 2",
        ),
        ('{"error":{"code":7}}', "Ollama answered with status 500 and no message."),
        (
            'invalid format: "{"; expected "json" or "{}"',
            'Ollama failed (500): invalid format: "{"; expected "json" or "{}"',
        ),
        (
            'do request: Post "http://127.0.0.1:38233/completion": EOF',
            "Ollama failed (500): its model runner stopped during the request. See the log of "
            "Ollama.",
        ),
    ],
)
def test_error_text_of_ollama_is_readable(received: str, message: str) -> None:
    assert refusal_error(500, orjson.dumps({"error": received})).message == message


@cases(
    ("body", "reason"),
    [
        (b'{"error":"unauthorized"}', "unauthorized"),
        (b"Unauthorized.", "Unauthorized"),
        (b"<html><title>401 Authorization Required</title></html>", "a key is required"),
        (b"", "a key is required"),
    ],
)
def test_refused_key_names_the_variable_of_the_key(body: bytes, reason: str) -> None:
    message = refusal_error(401, body).message
    assert message.startswith(f"Ollama answered with status 401: {reason}. Set OLLAMA_API_KEY ")
    assert "`ollama signin`" in message


@pytest.mark.parametrize(
    "raw", ["var m map[string]string // message: x\n", "{"], ids=["map", "braces"]
)
def test_long_error_with_text_of_the_model_is_read_quickly(raw: str) -> None:
    text = (
        f"error parsing tool call: raw='{raw * (60_000 // len(raw))}', err=unexpected end of "
        "JSON input"
    )
    began = time.process_time()
    assert (
        reported_error(orjson.dumps({"error": text})).message == f"Ollama failed: {text[:300]}..."
    )
    assert time.process_time() - began < 0.5


def test_error_line_is_readable() -> None:
    line = b'{"error":"llama-server chat error: {\\"message\\":\\"kaput\\"}"}'
    assert reported_error(line).message == "Ollama failed: kaput"
    assert "without a message" in reported_error(b'{"error":{"code":7}}').message


def test_refused_prompt_is_recognized_by_the_received_text() -> None:
    error = refusal_error(400, orjson.dumps({"error": orjson.dumps({"error": REFUSED}).decode()}))
    assert isinstance(error, OllamaError)
    assert is_context_refusal(error)
    assert refused_tokens(error) == 12345
    assert refusing_window(error) == 8192
    by_text = reported_error(
        b'{"error":"request (9 tokens) exceeds the available context size (8)"}'
    )
    assert refusing_window(by_text) == 8
    timeout = refusal_error(500, b'{"error":"context deadline exceeded"}')
    assert isinstance(timeout, OllamaError)
    assert not is_context_refusal(timeout)


@cases(
    "error",
    [
        aiohttp.ClientPayloadError(
            "Response payload is not completed: <TransferEncodingError: 400, message='x'>"
        ),
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientConnectionError("Connector is closed"),
        ConnectionResetError(104, "internal"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_broken_connection_has_no_text_of_the_library(error: Exception) -> None:
    message = translate(error, OLLAMA).message
    assert message.startswith("The connection to Ollama broke")
    assert (str(error) or type(error).__name__) not in message


def test_failed_connection_has_no_text_of_the_library() -> None:
    error = translate(
        aiohttp.ConnectionTimeoutError("Connection timeout to host http://ollama"), OLLAMA
    )
    assert isinstance(error, OllamaUnreachable)
    assert "to host" not in error.message


@pytest.mark.parametrize("status", [429, 503])
def test_busy_ollama_is_an_error_of_its_own(status: int) -> None:
    error = refusal_error(status, b'{"error":"server busy, please try again."}', retry_after="30")
    assert isinstance(error, OllamaBusy)
    assert (error.status, error.details) == (503, {"upstream_status": status, "retry_after": 30})
    assert (
        error.message == "Ollama is busy: server busy, please try again. Try again in 30 seconds."
    )
    assert refusal_error(status, b"{}", retry_after="1").message.endswith("Try again in 1 second.")


@cases("header", [None, "", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_retry_after_without_seconds_is_two_seconds(header: str | None) -> None:
    error = refusal_error(503, b"", retry_after=header)
    assert isinstance(error, OllamaBusy)
    assert error.retry_after == 2
