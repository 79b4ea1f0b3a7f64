"""Importer for LibreChat's JSON export of a conversation, as a tree or as a list."""

import re
from collections.abc import Mapping
from typing import Any

from mochi_server.services.importers.archive import Files
from mochi_server.services.importers.conversation import (
    FILES,
    IMAGES,
    OTHERS,
    TOOLS,
    Conversation,
    IsoTime,
    Node,
    OpenModel,
    conversation_of,
    image_of_part,
    joined,
    tree_of,
)
from mochi_server.sessions.types import Image
from mochi_server.util.validation import Items

_THINKING = re.compile(r"\s*:::thinking\n(.*?)\n:::\s*", re.DOTALL)
"""Thinking at the beginning of the text of an answer, in older exports."""


class LibreChatPart(OpenModel):
    """Part of an answer. Its fields depend on ``type``."""

    type: str
    text: str | dict[str, Any] | None = None
    think: str | dict[str, Any] | None = None
    image_url: Any = None


class LibreChatMessage(OpenModel):
    """Message. ``text`` is for messages without ``content``."""

    messageId: str
    isCreatedByUser: bool
    parentMessageId: str | None = None
    text: str | None = None
    content: Items[LibreChatPart] | None = None
    model: str | None = None
    createdAt: IsoTime = None
    files: Items[dict[str, Any]] | None = None


class LibreChatOptions(OpenModel):
    model: str | None = None
    promptPrefix: str | None = None


class LibreChatChat(OpenModel):
    """Conversation of a LibreChat export.

    The messages can also be a tree: ``messages`` with ``children``, or ``messagesTree``.
    """

    conversationId: str
    messages: Items[LibreChatMessage]
    title: str | None = None
    options: LibreChatOptions | None = None


def flattened(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a conversation with a list of messages instead of a tree."""
    fields = dict(item)
    tree = fields.pop("messagesTree", None) or fields.get("messages")
    if isinstance(tree, list):
        fields["messages"] = _in_order(tree)
    return fields


def parse(chat: LibreChatChat, _: Files) -> Conversation:
    """Convert a conversation. The last message of the list ends its shown branch.

    Raises ValueError if the messages form no tree, or if two have the same ID.
    """
    tree = tree_of((message.messageId, _convert(message)) for message in chat.messages)
    last_id = next(reversed(tree), None)
    options = chat.options or LibreChatOptions()
    return conversation_of(
        tree,
        last_id,
        title=None if chat.title == "New Chat" else chat.title,
        model=options.model,
        system=options.promptPrefix,
    )


def _in_order(tree: list[Any]) -> list[Any]:
    """Return the messages of a tree, each before its children, with the ID of its parent.

    This does not recurse, because the tree is as deep as the conversation is long.
    """
    messages: list[Any] = []
    left = tree[::-1]
    while left:
        message = left.pop()
        if not isinstance(message, dict) or not isinstance(message.get("children"), list):
            messages.append(message)
            continue
        messages.append({name: field for name, field in message.items() if name != "children"})
        parent = message.get("messageId")
        for child in reversed(message["children"]):
            left.append({**child, "parentMessageId": parent} if isinstance(child, dict) else child)
    return messages


def _convert(message: LibreChatMessage) -> Node:
    texts: list[str] = []
    thoughts: list[str] = []
    images: list[Image] = []
    left_out: list[str] = []
    for part in message.content or ():
        image = image_of_part(part.image_url)
        match part.type:
            case "text" | "error":
                texts.append(_text_of(part.text))
            case "think":
                thoughts.append(_text_of(part.think))
            case "tool_call":
                left_out.append(TOOLS)
            case "image_url" if image is not None:
                images.append(image)
            case "image_url" | "image_file":
                left_out.append(IMAGES)
            case _:
                left_out.append(OTHERS)
    if not message.content:
        text = message.text or ""
        thinking = None if message.isCreatedByUser else _THINKING.match(text)
        if thinking is not None:
            thoughts.append(thinking[1])
            text = text[thinking.end() :]
        texts.append(text)
    for file in message.files or ():
        left_out.append(IMAGES if str(file.get("type")).startswith("image/") else FILES)
    return Node(
        parent=message.parentMessageId,
        role="user" if message.isCreatedByUser else "assistant",
        text=joined(texts),
        thinking=joined(thoughts),
        model=None if message.isCreatedByUser else message.model,
        time=message.createdAt,
        images=images,
        left_out=left_out,
    )


def _text_of(text: str | Mapping[str, Any] | None) -> str:
    """Return the text of a part, which assistants of OpenAI wrap in an object."""
    if isinstance(text, Mapping):
        text = text.get("value")
    return text if isinstance(text, str) else ""
