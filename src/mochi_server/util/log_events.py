"""Log lines with fields."""

import logging

# Key in the ``extra`` argument of a log call. Its value has additional fields for the JSON line.
FIELDS = "fields"


def log_event(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    """Log an event.

    Its fields are fields of a JSON line, and ``key=value`` in the message, except None.
    """
    line = event
    for name, value in fields.items():
        if value is not None:
            line += f" {name}={value}"
    logger.log(level, "%s", line, extra={FIELDS: fields})
