"""Importers for the exports of other programs.

Each module has the Pydantic models of one program's file, and a function ``parse`` that converts a
conversation of the file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from mochi_server.services.importers import chatgpt, claude, librechat, open_webui
from mochi_server.services.importers.archive import Files
from mochi_server.services.importers.conversation import Branch, Conversation


@dataclass(frozen=True)
class Importer:
    """Importer for one program. A conversation with one of ``fields`` is from this program."""

    program: str
    fields: Sequence[str]
    model: type[BaseModel]
    parse: Callable[[Any, Files], Conversation]
    flatten: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
    """Function that replaces the tree of messages of a conversation by a list."""


IMPORTERS = (
    Importer("Open WebUI", ["chat"], open_webui.OpenWebUIChat, open_webui.parse),
    Importer("ChatGPT", ["mapping", "current_node"], chatgpt.ChatGPTChat, chatgpt.parse),
    Importer("Claude", ["chat_messages"], claude.ClaudeChat, claude.parse),
    Importer(
        "LibreChat",
        ["conversationId", "messagesTree"],
        librechat.LibreChatChat,
        librechat.parse,
        librechat.flattened,
    ),
)


def importer_of(item: Mapping[str, Any]) -> Importer | None:
    """Return the importer for an item of a file, or None for other items."""
    for importer in IMPORTERS:
        if any(name in item for name in importer.fields):
            return importer
    return None


__all__ = ["IMPORTERS", "Branch", "Conversation", "Files", "Importer", "importer_of"]
