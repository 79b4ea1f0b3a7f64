"""Importer for ChatGPT's ``conversations.json``."""

import re
from typing import Any

from mochi_server.services.importers.archive import Files, image
from mochi_server.services.importers.conversation import (
    FILES,
    IMAGES,
    OTHERS,
    TOOLS,
    Conversation,
    Node,
    OpenModel,
    UnixTime,
    conversation_of,
    joined,
    order_of,
    tree_of,
)
from mochi_server.sessions.serialization import fenced
from mochi_server.sessions.types import Image, Role
from mochi_server.util.validation import Entries, Items

_CITATION = re.compile("\ue200[^\ue200\ue201]*\ue201")
_READERS = (None, "all", "assistant", "python")  # the code for `python` is part of the answer
_INSTRUCTIONS = "custom instructions and memories"


class ChatGPTAuthor(OpenModel):
    role: Role


class ChatGPTContent(OpenModel):
    """Content of a message. Its fields depend on ``content_type``, such as `text` or `code`."""

    content_type: str
    parts: Items[str | dict[str, Any] | None] | None = None
    text: str | None = None
    language: str | None = None
    thoughts: Items[dict[str, Any]] | None = None


class ChatGPTMetadata(OpenModel):
    model_slug: str | None = None
    attachments: Items[dict[str, Any]] | None = None
    is_visually_hidden_from_conversation: bool | None = None


class ChatGPTMessage(OpenModel):
    author: ChatGPTAuthor
    content: ChatGPTContent
    create_time: UnixTime = None
    recipient: str | None = None
    """Tool that an answer calls, or `all` for an answer to the user."""
    metadata: ChatGPTMetadata | None = None


class ChatGPTNode(OpenModel):
    """Node of the tree. ``parent`` is the ID of another node."""

    message: ChatGPTMessage | None = None
    parent: str | None = None


class ChatGPTChat(OpenModel):
    """Conversation of a ChatGPT export. Times are in Unix seconds.

    ``current_node`` is the last message of the shown branch.
    """

    mapping: Entries[ChatGPTNode]
    current_node: str | None = None
    title: str | None = None
    create_time: UnixTime = None
    update_time: UnixTime = None
    default_model_slug: str | None = None
    is_starred: Any = None
    is_archived: Any = None


def parse(chat: ChatGPTChat, files: Files) -> Conversation:
    """Convert a conversation. Raises ValueError."""
    if not chat.mapping:
        raise ValueError("mapping: it has no nodes")
    for name, node in chat.mapping.items():
        if node.parent is not None and node.parent not in chat.mapping:
            raise ValueError(
                f"mapping.{name[:100]}.parent: the mapping has no node {node.parent[:100]!r}"
            )
    nodes = tree_of((name, _convert(node, files)) for name, node in chat.mapping.items())
    current = chat.current_node
    if current is None:
        current = max(nodes, key=lambda name: nodes[name].time or "")
    if current not in nodes:
        raise ValueError(f"current_node: the mapping has no node {current[:100]!r}")
    return conversation_of(
        nodes,
        current,
        title=None if chat.title == "New chat" else chat.title,
        model=chat.default_model_slug,
        created=chat.create_time,
        updated=chat.update_time,
        order=order_of(pinned=chat.is_starred, archived=chat.is_archived),
    )


def _convert(node: ChatGPTNode, files: Files) -> Node:
    message = node.message
    if message is None:
        return Node(node.parent)
    content = message.content
    metadata = message.metadata or ChatGPTMetadata()
    role = message.author.role
    if content.content_type.endswith("_editable_context"):
        return Node(node.parent, left_out=[_INSTRUCTIONS])
    if role == "system" or metadata.is_visually_hidden_from_conversation:
        is_empty = not joined(content.parts or [])
        return Node(node.parent, left_out=[] if is_empty else [_INSTRUCTIONS])
    if message.recipient not in _READERS:
        return Node(node.parent, left_out=[TOOLS])
    texts, images, left_out = _contents(content, files)
    if role == "tool":
        role = "assistant"  # the images that a tool has generated belong to the answer
        texts = []
        left_out = [] if images else [TOOLS]
    for attachment in metadata.attachments or ():
        # Images are parts of the message, too.
        if not str(attachment.get("mime_type")).startswith("image/"):
            left_out.append(FILES)
    return Node(
        parent=node.parent,
        role=role,
        text=_CITATION.sub("", joined(texts, "\n")),
        thinking=_thinking(content) if role == "assistant" else "",
        model=metadata.model_slug if role == "assistant" else None,
        time=message.create_time,
        images=images,
        left_out=left_out,
    )


def _contents(content: ChatGPTContent, files: Files) -> tuple[list[str], list[Image], list[str]]:
    """Return the texts and the images of a message, and the kinds of the other contents."""
    match content.content_type:
        case "code":
            language = content.language if content.language != "unknown" else ""
            return [fenced(content.text or "", language or "")], [], []
        case "text" | "multimodal_text":
            return _parts(content, files)
        case "thoughts" | "reasoning_recap":
            return [], [], []
    return [joined([content.text, *(content.parts or [])], "\n")], [], [OTHERS]


def _parts(content: ChatGPTContent, files: Files) -> tuple[list[str], list[Image], list[str]]:
    texts: list[str] = []
    images: list[Image] = []
    left_out: list[str] = []
    for part in content.parts or []:
        if isinstance(part, str):
            texts.append(part)
        elif part is not None:
            kind = part.get("content_type")
            found = image(files, str(part.get("asset_pointer")))
            if kind == "audio_transcription" and isinstance(part.get("text"), str):
                texts.append(part["text"])
            elif kind == "image_asset_pointer" and found is not None:
                images.append(found)
            else:
                left_out.append(IMAGES if kind == "image_asset_pointer" else OTHERS)
    return texts, images, left_out


def _thinking(content: ChatGPTContent) -> str:
    thoughts = []
    for thought in content.thoughts or []:
        thoughts.append(joined([thought.get("summary"), thought.get("content")], "\n"))
    return joined(thoughts)
