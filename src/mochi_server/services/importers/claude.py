"""Importer for Claude's ``conversations.json``."""

from typing import Any, Literal

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
    image_of_base64,
    joined,
    order_of,
    tree_of,
)
from mochi_server.sessions.serialization import fenced
from mochi_server.sessions.types import Image
from mochi_server.util.validation import Items


class ClaudeBlock(OpenModel):
    """Block of a message. Its fields depend on ``type``."""

    type: str
    text: str | None = None
    thinking: str | None = None
    name: str | None = None
    input: Any = None
    source: Any = None


class ClaudeAttachment(OpenModel):
    file_name: str | None = None
    extracted_content: str | None = None


class ClaudeMessage(OpenModel):
    """Message. ``text`` is used without ``content``, or if a user's ``content`` has no text."""

    uuid: str
    sender: Literal["human", "assistant"]
    text: str | None = None
    content: Items[ClaudeBlock] | None = None
    created_at: IsoTime = None
    attachments: Items[ClaudeAttachment] | None = None
    files: Items[dict[str, Any] | str] | None = None
    parent_message_uuid: str | None = None


class ClaudeChat(OpenModel):
    """Conversation of a Claude export.

    ``current_leaf_message_uuid`` is the last message of the shown branch, by default the last of
    the list.
    """

    chat_messages: Items[ClaudeMessage]
    name: str | None = None
    model: str | None = None
    created_at: IsoTime = None
    updated_at: IsoTime = None
    current_leaf_message_uuid: str | None = None
    is_starred: Any = None


def parse(chat: ClaudeChat, _: Files) -> Conversation:
    """Convert a conversation. Raises ValueError."""
    tree = tree_of((message.uuid, _convert(message)) for message in chat.chat_messages)
    current = chat.current_leaf_message_uuid
    if current is None:
        current = next(reversed(tree), None)
    elif current not in tree:
        raise ValueError(f"current_leaf_message_uuid: there is no message {current[:100]!r}")
    return conversation_of(
        tree,
        current,
        title=chat.name,
        model=chat.model,
        created=chat.created_at,
        updated=chat.updated_at,
        order=order_of(pinned=chat.is_starred),
    )


def _convert(message: ClaudeMessage) -> Node:
    texts, thoughts, left_out = _blocks(message)
    images, missing = _images(message)
    for attachment in message.attachments or ():
        if attachment.extracted_content is None:
            left_out.append(FILES)
        else:
            title = f"{attachment.file_name}:\n" if attachment.file_name else ""
            texts.append(title + fenced(attachment.extracted_content))
    return Node(
        parent=message.parent_message_uuid,
        role="user" if message.sender == "human" else "assistant",
        text=joined(texts),
        thinking=joined(thoughts),
        time=message.created_at,
        images=images,
        left_out=[*left_out, *missing, *(FILES for _ in message.files or ())],
    )


def _images(message: ClaudeMessage) -> tuple[list[Image], list[str]]:
    """Return the images that the export contains, and the kind of each other image."""
    images: list[Image] = []
    missing: list[str] = []
    for block in message.content or ():
        if block.type != "image":
            continue
        source = block.source if isinstance(block.source, dict) else {}
        image = image_of_base64(source.get("data"))
        if image is None:
            missing.append(IMAGES)
        else:
            images.append(image)
    return images, missing


def _blocks(message: ClaudeMessage) -> tuple[list[str], list[str], list[str]]:
    """Return the texts and the thoughts of a message, and the kinds of the blocks left out."""
    texts: list[str] = []
    thoughts: list[str] = []
    left_out: list[str] = []
    for block in message.content or ():
        match block.type:
            case "text":
                texts.append(block.text or "")
            case "thinking":
                thoughts.append(block.thinking or "")
            case "tool_use" if artifact := _artifact(block):
                texts.append(artifact)
            case "tool_use":
                left_out.append(TOOLS)
            case "image":
                pass  # see ``_images``
            case "tool_result" | "token_budget" | "flag":  # counted with its call, or no content
                pass
            case _:
                left_out.append(OTHERS)
    is_question = message.sender == "human"
    if not message.content or (is_question and not any(texts)):
        texts.append(message.text or "")
    return texts, thoughts, left_out


def _artifact(block: ClaudeBlock) -> str:
    """Return the document or code that a call creates, or an empty text for other calls."""
    fields = block.input if isinstance(block.input, dict) else {}
    content = fields.get("content")
    if block.name != "artifacts" or not isinstance(content, str):
        return ""
    if fields.get("type") == "text/markdown":
        return content
    language = fields.get("language")
    return fenced(content, language if isinstance(language, str) else "")
