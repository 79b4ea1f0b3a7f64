"""Log lines with fields."""

import logging

# Attribute of a log record with additional fields of its JSON line, from the argument ``extra``.
FIELDS_ATTRIBUTE = "fields"


def log_event(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    """Log an event.

    Its fields are fields of a JSON line, and ``key=value`` in the message, except None.
    """
    line = event
    for name, value in fields.items():
        if value is not None:
            line += f" {name}={value}"
    logger.log(level, "%s", line, extra={FIELDS_ATTRIBUTE: fields})
