"""Format of log lines."""

import json
import logging
import subprocess
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


def test_text_of_an_exception_cannot_imitate_a_log_line() -> None:
    made = record("failed")
    imitation = "2026-01-01 00:00:00,000 INFO a.b: imitated"
    try:
        raise ValueError(f"hidden\n{imitation}\r{imitation}")
    except ValueError:
        made.exc_info = sys.exc_info()
    formatted = TextFormatter(SecretMasker(())).format(made)
    first, *others = formatted.splitlines()
    assert first.endswith("a.b: failed")
    assert f"  {imitation}\\r{imitation}" in others
    assert all(line.startswith("  ") for line in others)


def test_threads_that_exit_log_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, threading\n"
        "from mochi_server.telemetry.logging import configure\n"
        "from mochi_server.util.text import SecretMasker\n"
        "configure('INFO', 'text', SecretMasker(()))\n"
        "for end in (sys.exit, lambda: 1 / 0):\n"
        "    thread = threading.Thread(target=end)\n"
        "    thread.start()\n"
        "    thread.join()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert ended.stderr.count("CRITICAL root: Uncaught exception") == 1
    assert "ZeroDivisionError" in ended.stderr
