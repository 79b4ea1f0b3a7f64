"""Format of log lines."""

import json
import logging
import sys
from pathlib import Path

import pytest

from mochi_server.telemetry.logging import REQUEST_ID, JsonFormatter, TextFormatter
from mochi_server.util.text import SecretMasker
from tests.support.cases import cases


def record(
    message: str, *arguments: object, fails: bool = False, **more: object
) -> logging.LogRecord:
    made = logging.LogRecord("a.b", logging.WARNING, "file.py", 1, message, arguments, None)
    if fails:
        try:
            raise ValueError("hidden in the error")
        except ValueError:
            made.exc_info = sys.exc_info()
    made.__dict__ |= more
    return made


def test_json_log_has_only_the_fields_of_the_record() -> None:
    line = json.loads(
        JsonFormatter(SecretMasker(())).format(
            record("%d things", 3, fields={"status": 200, "ended": None})
        )
    )
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "WARNING", "logger": "a.b", "message": "3 things", "status": 200}


@cases("message", ["two\nlines", 'a "quote"', "\ud800", "\0", "\x1b[2J", "日本"])
def test_messages_are_one_line(message: str) -> None:
    formatted = JsonFormatter(SecretMasker(())).format(record("%s", message))
    assert json.loads(formatted)["message"] == message
    assert formatted.isascii()
    assert formatted.isprintable()
    assert "\n" not in TextFormatter(SecretMasker(())).format(record("%s", message))


@pytest.mark.parametrize("kind", [JsonFormatter, TextFormatter])
def test_secrets_are_masked_in_messages_fields_and_tracebacks(
    kind: type[JsonFormatter] | type[TextFormatter],
) -> None:
    formatter = kind(SecretMasker(["hidden", "hidden in", 'quo"te', ""]))
    formatted = formatter.format(
        record('hidden quo"te', fails=True, fields={"path": Path("/hidden"), "tried": ["hidden"]})
    )
    assert "ValueError: *** the error" in formatted
    assert "hidden" not in formatted
    assert 'quo"te' not in formatted.replace("\\", "")


def test_request_id_is_on_the_line() -> None:
    token = REQUEST_ID.set("mine")
    try:
        assert TextFormatter(SecretMasker(())).format(record("said")).endswith("a.b: said [mine]")
        assert (
            json.loads(JsonFormatter(SecretMasker(())).format(record("said")))["request_id"]
            == "mine"
        )
    finally:
        REQUEST_ID.reset(token)
