"""Importer for the chats of Open WebUI."""

import html
import re
from typing import Any, Literal

from mochi_server.services.importers.archive import Files
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
    image_of_data_url,
    image_of_part,
    order_of,
)
from mochi_server.sessions.types import Image
from mochi_server.util.validation import Entries, Items

_ATTRIBUTE = r'\s+[\w-]+(?:="[^"]*")?'
_DETAILS = re.compile(
    rf'<details(?:{_ATTRIBUTE})*?\s+type="(reasoning|tool_calls|code_interpreter)"(?:{_ATTRIBUTE})*\s*>(.*?)</details>\s*',
    re.DOTALL,
)
_SUMMARY = re.compile(r"\A\s*<summary>.*?</summary>", re.DOTALL)
_QUOTED = re.compile(r"^> ?", re.MULTILINE)


class OpenWebUIMessage(OpenModel):
    """Message with the ID of its parent.

    ``timestamp`` is in Unix seconds. Messages without a role are ignored.
    """

    role: Literal["system", "user", "assistant"] | None = None
    content: str | Items[dict[str, Any]] | None = None
    parentId: str | None = None
    timestamp: UnixTime = None
    model: str | None = None
    files: Items[dict[str, Any]] | None = None
    output: Any = None
    """Output items in the format of OpenAI's Responses API.

    In newer exports, the text may be only here.
    """


class OpenWebUIHistory(OpenModel):
    """Tree of messages. ``currentId`` is the last message of the current branch."""

    messages: Entries[OpenWebUIMessage | None]
    currentId: str | None = None


class OpenWebUIParams(OpenModel):
    system: str | None = None


class OpenWebUIContent(OpenModel):
    """Content of a chat. ``timestamp`` is in Unix milliseconds."""

    title: str | None = None
    models: Items[str | None] | None = None
    system: str | None = None
    params: OpenWebUIParams | None = None
    timestamp: UnixTime = None
    history: OpenWebUIHistory


class OpenWebUIChat(OpenModel):
    """Chat of an Open WebUI export. Times are in Unix seconds."""

    chat: OpenWebUIContent
    title: str | None = None
    created_at: UnixTime = None
    updated_at: UnixTime = None
    pinned: Any = None
    archived: Any = None
    meta: Any = None
    """Object with the ``tags``."""


def parse(exported: OpenWebUIChat, _: Files) -> Conversation:
    """Convert a chat.

    If its current message is missing, its branch ends with the latest one. A branch can begin with
    a message whose parent is missing, and ends where a loop begins.
    """
    chat = exported.chat
    nodes: dict[str, Node] = {}
    for name, message in chat.history.messages.items():
        if message is not None:
            nodes[name] = _convert(message)
    messages = [name for name, node in nodes.items() if node.role is not None]
    current = chat.history.currentId
    if current not in messages:
        current = max(messages, key=lambda name: nodes[name].time or "", default=None)
    models = [name for name in chat.models or () if name and name.strip()]
    title = exported.title or chat.title
    tags = exported.meta.get("tags") if isinstance(exported.meta, dict) else None
    return conversation_of(
        nodes,
        current,
        title=None if title == "New Chat" else title,
        model=models[0] if models else None,
        created=exported.created_at or (None if messages else chat.timestamp),
        updated=exported.updated_at,
        system=chat.system or (chat.params.system if chat.params else None),
        order=order_of(tags=tags, pinned=exported.pinned, archived=exported.archived),
    )


def _convert(message: OpenWebUIMessage) -> Node:
    content = _text_in(message.content)
    images, left_out = _attached(message)
    if message.role != "assistant":
        return Node(
            parent=message.parentId,
            role=message.role,
            text=content,
            time=message.timestamp,
            images=images,
            left_out=left_out,
        )
    # The text after the last end tag is handled separately: for each start tag, the pattern
    # would read all of it.
    rest = content.rpartition("</details>")[2].lstrip()
    detailed = content.removesuffix(rest)
    blocks: list[str] = []
    for kind, block in _DETAILS.findall(detailed):
        if kind == "reasoning":
            blocks.append(_QUOTED.sub("", html.unescape(_SUMMARY.sub("", block))).strip())
        else:
            left_out.append(TOOLS)
    visible = _DETAILS.sub(_shown, detailed) + rest
    if not visible.strip():
        visible = "\n\n".join(_output_texts(message.output, "message"))
    return Node(
        parent=message.parentId,
        role="assistant",
        text=visible,
        thinking="\n\n".join(blocks or _output_texts(message.output, "reasoning")),
        model=message.model,
        time=message.timestamp,
        images=images,
        left_out=left_out,
    )


def _shown(details: re.Match[str]) -> str:
    """Return what is shown of a collapsed part of an answer: the code that was run, or nothing."""
    if details[1] != "code_interpreter":
        return ""
    code = _SUMMARY.sub("", details[2]).strip()
    return f"{code}\n\n"


def _attached(message: OpenWebUIMessage) -> tuple[list[Image], list[str]]:
    """Return the images that the export contains, and the kinds of the other files and parts."""
    images: list[Image] = []
    left_out: list[str] = []
    for file in message.files or ():
        image = image_of_data_url(file.get("url"))
        if image is not None:
            images.append(image)
        else:
            left_out.append(IMAGES if file.get("type") == "image" else FILES)
    for part in message.content if isinstance(message.content, list) else ():
        image = image_of_part(part.get("image_url"))
        if image is not None:
            images.append(image)
        elif part.get("type") == "image_url":
            left_out.append(IMAGES)
        elif not isinstance(part.get("text"), str):
            left_out.append(OTHERS)
    return images, left_out


def _output_texts(output: Any, kind: str) -> list[str]:
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    texts = (
        _text_in(item.get("summary") or item.get("content"))
        for item in items
        if item.get("type") == kind
    )
    return [text for text in texts if text]


def _text_in(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
