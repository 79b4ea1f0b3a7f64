"""Log formats: text or JSON lines with request IDs and masked secrets."""

import json
import logging
import re
import sys
import threading
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any

from mochi_server.constants import LogFormat
from mochi_server.sessions.caller import CALLER
from mochi_server.util.log_events import FIELDS_ATTRIBUTE
from mochi_server.util.text import SecretMasker

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""ID of the current HTTP request. Tasks that the request starts inherit the ID."""

_LINE_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _escape(match: re.Match[str]) -> str:
    """Return the escape sequence of a control character."""
    return repr(match[0])[1:-1]


class TextFormatter(logging.Formatter):
    """Formatter for one text line per record, with request ID and key name at its end.

    A traceback follows the line and is indented.
    """

    def __init__(self, secrets: SecretMasker) -> None:
        super().__init__(_LINE_FORMAT)
        self._secrets = secrets

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line with control characters escaped, so that a message cannot imitate another
        line.
        """
        line = _CONTROL.sub(_escape, super().formatMessage(record))
        request_id = REQUEST_ID.get()
        if not request_id:
            return line
        key = CALLER.get().key
        suffix = f" key={key}" if key else ""
        return f"{line} [{request_id}{suffix}]"

    def formatException(self, ei: Any) -> str:
        """Return the traceback as indented lines, so that the text of an exception cannot imitate
        a log line.
        """
        traceback = super().formatException(ei)
        lines = []
        for line in traceback.split("\n"):
            escaped = _CONTROL.sub(_escape, line)
            lines.append(f"  {escaped}")
        return "\n".join(lines)

    def format(self, record: logging.LogRecord) -> str:
        masked: str = self._secrets.mask(super().format(record))
        return masked


class JsonFormatter(logging.Formatter):
    """Formatter for one JSON object per record. The field ``exception`` contains the traceback."""

    def __init__(self, secrets: SecretMasker) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc)
        fields = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": REQUEST_ID.get() or None,
            "key": CALLER.get().key or None,
            **getattr(record, FIELDS_ATTRIBUTE, {}),
            "exception": self.formatException(record.exc_info) if record.exc_info else None,
            "stack": record.stack_info,
        }
        present = {name: value for name, value in fields.items() if value is not None}
        return json.dumps(self._secrets.mask(present))


def configure(level: str, log_format: LogFormat, secrets: SecretMasker) -> None:
    """Write log records, Python's warnings and uncaught exceptions to standard error.

    It replaces Python's exception hooks. Call it once in a process.
    """
    formatter = JsonFormatter if log_format == "json" else TextFormatter
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(secrets))
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(True)
    # A tool may close standard error. Log calls must not raise then.
    logging.raiseExceptions = False
    sys.excepthook = lambda *error: logging.critical("Uncaught exception", exc_info=error)
    threading.excepthook = _log_thread_error


def _log_thread_error(error: threading.ExceptHookArgs) -> None:
    if error.exc_type is not SystemExit:  # `sys.exit()` ends only the thread, as Python's default
        logging.critical("Uncaught exception", exc_info=error.exc_value)


def in_log_format(text: str, log_format: str, level: str = "INFO") -> str:
    """Return a text for the user as it is, or as one JSON object per line.

    ``log_format`` can be an unchecked setting. Secrets are not masked.
    """
    if log_format.lower() != "json":
        return text
    formatter = JsonFormatter(SecretMasker(()))
    lines = []
    for line in text.splitlines():
        if line.strip():
            fields = {"name": "mochi_server", "levelname": level, "msg": line.strip()}
            lines.append(formatter.format(logging.makeLogRecord(fields)))
    return "\n".join(lines)
