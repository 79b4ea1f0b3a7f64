"""Result of an importer, and what the importers share: trees of messages, times and images."""

import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from mochi_server.constants import MAX_TAGS, MAX_TITLE_CHARS
from mochi_server.sessions.session import collapse_whitespace
from mochi_server.sessions.types import (
    AssistantMessage,
    Image,
    Message,
    Role,
    Tag,
    UserMessage,
)
from mochi_server.util.clock import as_text, new_id, now

_DATA_URL = re.compile(r"data:image/[\w.+-]{1,40}(?:;[^,;]{1,100}){0,4};base64,")
# Larger timestamps are in milliseconds, others in seconds; exports contain both.
_MIN_MILLISECONDS = 1e11
_TAG = TypeAdapter[str](Tag)

IMAGES = "images"
FILES = "files"
TOOLS = "tool calls and their results"
OTHERS = "contents of other kinds"
"""Kinds of content that an import may leave out."""


class OpenModel(BaseModel):
    """Base class of the Pydantic models for imported files.

    Known fields are validated. Others are allowed.
    """

    # Imports are rare, so the validators are built at the first one.
    model_config = ConfigDict(extra="allow", strict=True, defer_build=True)


def _from_unix(value: object) -> str | None:
    """Convert Unix seconds or milliseconds to the format of stored sessions. 0 means no time."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("Input should be a number")
    if value == 0:
        return None
    try:
        seconds = value / 1000 if value > _MIN_MILLISECONDS else value
        return as_text(datetime.fromtimestamp(seconds, timezone.utc))
    except (OverflowError, OSError, ValueError) as error:
        raise ValueError(f"{str(value)[:50]} is not a Unix time") from error


def _from_iso(value: object) -> str | None:
    """Convert an ISO 8601 time to the format of stored sessions. An empty text means no time."""
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ValueError("Input should be a valid string")
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
        return as_text(moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc))
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{value[:50]!r} is not an ISO 8601 time") from error


UnixTime = Annotated[str | None, BeforeValidator(_from_unix, json_schema_input_type=float | None)]
IsoTime = Annotated[str | None, BeforeValidator(_from_iso, json_schema_input_type=str | None)]
"""Times of exports, in the format of stored sessions after the validation."""


@dataclass(frozen=True)
class Node:
    """Message in the tree of an export.

    Nodes without a role are not messages, but can be between messages. ``left_out`` has the kind
    of each content that is not imported.
    """

    parent: str | None = None
    role: Role | None = None
    text: str = ""
    thinking: str = ""
    model: str | None = None
    time: str | None = None
    images: Sequence[Image] = ()
    left_out: Sequence[str] = ()

    @property
    def is_shown(self) -> bool:
        """Whether the node becomes a message. Answers without content are steps with tools."""
        if self.role == "assistant":
            return bool(self.text.strip() or self.thinking or self.images)
        return self.role is not None


@dataclass(frozen=True)
class Branch:
    """Messages of another branch, from the place where it leaves the shown one.

    ``after`` is the ID of the message before them, in the shown branch or in an earlier version. It
    is None for a version that begins with the first message.
    """

    after: str | None
    messages: Sequence[Message]


@dataclass(frozen=True)
class Order:
    """Tags, pin and archive of a conversation."""

    tags: Sequence[str] = ()
    pinned: bool = False
    archived: bool = False


def order_of(
    *,
    tags: object = None,
    pinned: object = None,
    archived: object = None,
) -> Order:
    """Read these fields of an export.

    Values that a session cannot have are left out.
    """
    names: list[str] = []
    if isinstance(tags, list):
        for tag in tags:
            name = _tag_of(tag)
            if name and name not in names:
                names.append(name)
    return Order(
        tags=names[:MAX_TAGS],
        pinned=pinned is True,
        archived=archived is True,
    )


def _tag_of(value: object) -> str:
    """Return the tag of a session, or an empty text if it is invalid."""
    if not isinstance(value, str):
        return ""
    try:
        return _TAG.validate_python(value.strip())
    except ValidationError:
        return ""


@dataclass(frozen=True)
class Conversation:
    """Conversation of an export.

    ``left_out`` has the number of contents of each kind that are not imported.
    """

    title: str | None
    model: str | None
    created_at: str
    updated_at: str
    messages: Sequence[Message]
    images: Sequence[Image]
    versions: Sequence[Branch]
    left_out: Mapping[str, int]
    order: Order = Order()


def conversation_of(
    nodes: Mapping[str, Node],
    current: str | None,
    *,
    title: str | None,
    model: str | None,
    created: str | None = None,
    updated: str | None = None,
    system: str | None = None,
    order: Order | None = None,
) -> Conversation:
    """Build a conversation from a tree of messages whose shown branch ends with ``current``.

    ``model`` is for a conversation whose messages name no model. ``system`` is for one without a
    system message. By default, the conversation begins at the earliest time of all nodes, or now,
    and ends at the time of the last message in the shown branch.
    """
    if not created:
        created = min((node.time for node in nodes.values() if node.time), default=now())
    shown, *others = _branches(nodes, current)
    message_ids: dict[str, str] = {}
    messages = _messages(nodes, shown, created, message_ids)
    if system and system.strip() and not any(each["role"] == "system" for each in messages):
        messages.insert(0, _message([Node(role="system", text=system)], new_id(), created))
    versions: list[Branch] = []
    node_ids = list(shown)
    for branch in others:
        node_ids += branch  # also of a branch without messages, whose tool calls are counted
        version = _version(nodes, branch, created, message_ids)
        if version.messages:
            versions.append(version)
    images, left_out = _contents(nodes, node_ids)
    models = [nodes[node_id].model for node_id in reversed(shown)]
    last_time = messages[-1]["timestamp"] if messages else created
    return Conversation(
        title=collapse_whitespace(title)[:MAX_TITLE_CHARS].strip() or None,
        model=next((name for name in (*models, model) if name and name.strip()), None),
        created_at=created,
        updated_at=updated or last_time,
        messages=messages,
        images=images,
        versions=versions,
        left_out=left_out,
        order=order or Order(),
    )


def _version(
    nodes: Mapping[str, Node], branch: Sequence[str], created: str, message_ids: dict[str, str]
) -> Branch:
    """Return a branch other than the shown one, and add its messages to ``message_ids``."""
    before = nodes[branch[0]].parent or ""
    messages = _messages(nodes, branch, created, message_ids)
    return Branch(message_ids.get(before), messages)


def _contents(
    nodes: Mapping[str, Node], node_ids: Iterable[str]
) -> tuple[list[Image], Counter[str]]:
    """Return the images of nodes, and the number of contents of each kind that are left out."""
    images: list[Image] = []
    left_out = Counter[str]()
    for node_id in node_ids:
        node = nodes[node_id]
        images += node.images
        left_out.update(node.left_out)
    return images, left_out


def tree_of(nodes_with_ids: Iterable[tuple[str, Node]]) -> dict[str, Node]:
    """Return nodes by ID. If they name no parents, each one follows the one before it.

    Raises ValueError if an ID occurs twice, or if a message is its own ancestor.
    """
    nodes: dict[str, Node] = {}
    chain: dict[str, Node] = {}
    previous = None
    for node_id, node in nodes_with_ids:
        if node_id in nodes:
            raise ValueError(f"message {node_id[:100]!r} occurs twice")
        nodes[node_id] = node
        chain[node_id] = replace(node, parent=previous)
        previous = node_id
    if not any(node.parent for node in nodes.values()):
        return chain
    _check_ancestors(nodes)
    return nodes


def _check_ancestors(nodes: Mapping[str, Node]) -> None:
    checked: set[str] = set()
    for start in nodes:
        path: set[str] = set()
        node_id: str | None = start
        while node_id is not None and node_id in nodes and node_id not in checked:
            if node_id in path:
                raise ValueError(f"message {node_id[:100]!r} is its own ancestor")
            path.add(node_id)
            node_id = nodes[node_id].parent
        checked |= path


def image_of_data_url(url: object) -> Image | None:
    """Return the image in a data URL, or None for other values and unsupported images."""
    if not isinstance(url, str) or not (prefix := _DATA_URL.match(url)):
        return None
    return image_of_base64(url[prefix.end() :])


def image_of_base64(data: object) -> Image | None:
    """Return the image in a base64 text, or None for other values and unsupported images."""
    if not isinstance(data, str):
        return None
    try:
        return Image.of(b64decode(data, validate=True))
    except ValueError:
        return None


def image_of_part(image_url: object) -> Image | None:
    """Return the image in the field ``image_url`` of a content part, in the format of OpenAI.

    Return None if it is not a data URL of a supported image.
    """
    return image_of_data_url(image_url.get("url") if isinstance(image_url, Mapping) else image_url)


def joined(texts: Sequence[Any], separator: str = "\n\n") -> str:
    """Join those of the values that are texts and not blank."""
    return separator.join(text for text in texts if isinstance(text, str) and text.strip())


def _branches(nodes: Mapping[str, Node], current: str | None) -> list[list[str]]:
    """Return the branch that ends with ``current``, and then the rest of each other branch.

    Each node is in one of them only. Nodes that ``tree_of`` has not checked may have a loop, which
    ends where it begins.
    """
    parents = {node.parent for node in nodes.values()}
    leaves = [node_id for node_id in nodes if node_id not in parents]
    seen: set[str] = set()

    def walk(node_id: str | None) -> list[str]:
        branch: list[str] = []
        while node_id is not None and node_id in nodes and node_id not in seen:
            seen.add(node_id)
            branch.append(node_id)
            node_id = nodes[node_id].parent
        return branch[::-1]

    shown = walk(current)
    others = [walk(leaf) for leaf in reversed(leaves)]
    return [shown, *filter(None, others)]


def _messages(
    nodes: Mapping[str, Node], branch: Sequence[str], created: str, message_ids: dict[str, str]
) -> list[Message]:
    """Convert a branch to messages, and add the ID of the message of each node to ``message_ids``.

    Successive nodes of an answer become one message.
    """
    groups: list[list[Node]] = []
    ids: list[str] = []
    for node_id in branch:
        node = nodes[node_id]
        if node.is_shown:
            previous_role = groups[-1][0].role if groups else None
            continues_answer = previous_role == "assistant" and node.role == "assistant"
            if not continues_answer:
                groups.append([])
                ids.append(new_id())
            groups[-1].append(node)
        last = ids[-1] if ids else message_ids.get(node.parent or "")
        if last is not None:
            message_ids[node_id] = last
    return [
        _message(group, message_id, created) for group, message_id in zip(groups, ids, strict=True)
    ]


def _message(group: Sequence[Node], message_id: str, created: str) -> Message:
    last = group[-1]
    text = joined([node.text for node in group])
    time = last.time or created
    if last.role == "system":
        return {"role": "system", "content": text, "message_id": message_id, "timestamp": time}
    message: AssistantMessage | UserMessage
    if last.role == "assistant":
        message = {
            "role": "assistant",
            "content": text,
            "message_id": message_id,
            "timestamp": time,
        }
        _add_thinking_and_model(message, group)
    else:
        message = {"role": "user", "content": text, "message_id": message_id, "timestamp": time}
    images: list[Image] = []
    for node in group:
        images += node.images
    if images:
        message["images"] = [image.reference for image in images]
    return message


def _add_thinking_and_model(answer: AssistantMessage, group: Sequence[Node]) -> None:
    thinking = joined([node.thinking for node in group])
    if thinking:
        answer["thinking"] = thinking
    model = group[-1].model
    if model:
        answer["model"] = model
