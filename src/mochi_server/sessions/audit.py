"""Audit log: which API key was refused, decided on a tool call, or changed settings.

Its lines have names and IDs, and never text of conversations.
"""

import logging

from mochi_server.sessions.caller import CALLER
from mochi_server.util.log_events import log_event

logger = logging.getLogger("mochi_server.audit")


def audit(event: str, **fields: object) -> None:
    """Log an action of the current caller, with the name of its key, if any."""
    log_event(logger, logging.INFO, event, key=CALLER.get().key or None, **fields)
