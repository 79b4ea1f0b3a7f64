"""Format of the log: text or JSON lines, each with the id of its request, none with a secret."""

import json
import logging
import re
import sys
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any, Literal

LogFormat = Literal["text", "json"]

MASK = "***"
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that is being answered; what a request has begun keeps it."""

FIELDS = "fields"
"""Name of the ``extra`` that holds more fields for a JSON line."""

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def say(text: str) -> None:
    """Print a text for the user, at any log level. A closed output is ignored."""
    try:
        print(text, flush=True)  # noqa: T201 - see above
    except OSError:
        sys.stdout = None


class Secrets:
    """Strings that are masked in the log."""

    def __init__(self, values: Iterable[str]) -> None:
        # The longest first, so that a secret within another one leaves nothing of it.
        known = sorted({value for value in values if value}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, known))) if known else None

    def mask(self, value: Any) -> Any:
        """Return a text, or the texts of a structure, without the secrets."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self._pattern.sub(MASK, value)
        if isinstance(value, dict):
            return {name: self.mask(item) for name, item in value.items()}
        return value


class TextFormatter(logging.Formatter):
    """A line for each record, with the request's id at its end; a traceback follows on lines of its own."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__(_TEXT)
        self._secrets = secrets

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line with control characters escaped, so that no text looks like another line."""
        request_id = REQUEST_ID.get()
        line = _CONTROL.sub(lambda found: repr(found[0])[1:-1], super().formatMessage(record))
        return f"{line} [{request_id}]" if request_id else line

    def format(self, record: logging.LogRecord) -> str:
        masked: str = self._secrets.mask(super().format(record))
        return masked


class JsonFormatter(logging.Formatter):
    """One JSON object for each record, a traceback being one of its fields."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": REQUEST_ID.get() or None,
            **getattr(record, FIELDS, {}),
            "exception": self.formatException(record.exc_info) if record.exc_info else None,
            "stack": record.stack_info,
        }
        said = {name: value for name, value in fields.items() if value is not None}
        return json.dumps(self._secrets.mask(said), default=str)


def configure(level: str, form: LogFormat, secrets: Secrets) -> None:
    """Write the log of the whole process to standard error, Python's own warnings included."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(secrets) if form == "json" else TextFormatter(secrets))
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(True)
