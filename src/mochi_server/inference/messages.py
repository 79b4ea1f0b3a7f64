"""Stored messages in Ollama's format."""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import anyio.to_thread
import orjson

from mochi_server.errors import BlobNotFound
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.ollama.types import ChatMessage, Encoded
from mochi_server.sessions.attachments import omission_note, text_in_prompt, with_files
from mochi_server.sessions.history import History
from mochi_server.sessions.types import (
    AttachmentReference,
    Message,
    attachments_of,
    images_of,
    readable_images_of,
    tool_calls_of,
)

_SENT_FIELDS = ("role", "content", "tool_calls", "tool_name", "tool_call_id")
UNREADABLE_IMAGES = "[Images are left out here, because the model could not decode them.]"
_NO_RESULT = "The call was interrupted and has no result."


def to_ollama_messages(messages: Sequence[Message], turn_start: int) -> list[ChatMessage]:
    """Convert messages to Ollama's format, with thinking only after index ``turn_start``.

    Results that are missing are added, and results after other messages move to their calls.
    Answers without content are left out.
    """
    sent: list[ChatMessage] = []
    missing: dict[str, str] = {}
    moved: set[int] = set()
    for index, message in enumerate(messages):
        if index in moved:
            continue
        if message["role"] == "tool":
            missing.pop(message.get("tool_call_id", ""), None)
        elif message["role"] != "system":  # results may follow a system message
            for call_id, position in _late_results(messages, index, missing).items():
                sent.append(_to_ollama(messages[position], with_thinking=False))
                moved.add(position)
                del missing[call_id]
            sent.extend(_missing_results(missing))
            missing = {}
            for call in tool_calls_of(message):
                if call.get("id"):
                    missing[call["id"]] = call["function"]["name"]
        has_content = message["content"] or tool_calls_of(message) or images_of(message)
        if has_content or message["role"] != "assistant":
            sent.append(_to_ollama(message, with_thinking=index > turn_start))
    return [*sent, *_missing_results(missing)]


def _to_ollama(message: Message, *, with_thinking: bool) -> ChatMessage:
    sent: ChatMessage = {}
    for name in _SENT_FIELDS:
        value = message.get(name)
        if value is not None:
            sent[name] = value  # type: ignore[literal-required]  # the key is not a literal
    if with_thinking and message["role"] == "assistant" and message.get("thinking"):
        sent["thinking"] = message["thinking"]
    if "images" in message:
        _add_images(sent, message)
    attachments = attachments_of(message)
    if attachments:
        sent["attachments"] = attachments
    return sent


def _add_images(sent: ChatMessage, message: Message) -> None:
    readable = readable_images_of(message)
    if readable:
        sent["images"] = readable
    left_out = len(images_of(message)) - len(readable)
    if left_out:
        sent["content"] = "\n".join(filter(None, (sent["content"], UNREADABLE_IMAGES)))


def _late_results(
    messages: Sequence[Message], start: int, missing: Collection[str]
) -> dict[str, int]:
    """Return the indexes from ``start`` of the results of the calls ``missing``, by call ID.

    A result after a later call with the same ID is the result of that call.
    """
    late: dict[str, int] = {}
    if not missing:
        return late
    expected = set(missing)
    for index in range(start, len(messages)):
        message = messages[index]
        for call in tool_calls_of(message):
            expected.discard(call.get("id", ""))
        if message["role"] != "tool":
            continue
        call_id = message.get("tool_call_id", "")
        if call_id in expected:
            late[call_id] = index
            expected.remove(call_id)
    return late


def _missing_results(names: Mapping[str, str]) -> list[ChatMessage]:
    return [
        {"role": "tool", "content": _NO_RESULT, "tool_name": name, "tool_call_id": call_id}
        for call_id, name in names.items()
    ]


class EncodedMessages(NamedTuple):
    """Messages encoded as JSON for Ollama, and their size.

    ``names_blobs`` is true if the JSON only names images or files, whose data each request adds.
    """

    encoded: Encoded
    size: PromptSize
    names_blobs: bool


def encode_messages(messages: Sequence[Message]) -> EncodedMessages:
    """Encode the messages of completed turns as JSON for Ollama.

    The thinking of the model is omitted.
    """
    converted = to_ollama_messages(messages, len(messages))
    objects = [orjson.dumps(message) for message in converted]
    return EncodedMessages(
        encoded=Encoded(b",".join(objects)),
        size=PromptSize.of(converted),
        names_blobs=any(map(_names_blobs, converted)),
    )


def _names_blobs(message: ChatMessage) -> bool:
    return "images" in message or "attachments" in message


def shows_images(history: History) -> bool:
    """Return whether a prompt with this history contains images that the model can read."""
    if any(block.cached(encode_messages).size.images for block in history.blocks):
        return True
    return any(map(readable_images_of, history.tail))


async def with_images(
    messages: Sequence[ChatMessage | Encoded], load: Callable[[str], Awaitable[bytes]]
) -> tuple[list[ChatMessage | Encoded], int]:
    """Replace image names in messages by base64 data.

    Messages that are already encoded stay the same, and missing images are left out. Return the
    messages and the number of missing images.
    """
    names: list[str] = []
    for message in messages:
        if isinstance(message, dict):
            names += message.get("images") or ()
    base64: dict[str, str] = {}
    for name in dict.fromkeys(names):
        with suppress(BlobNotFound):
            data = await load(name)
            encoded = await anyio.to_thread.run_sync(b64encode, data)
            base64[name] = encoded.decode()
    sent: list[ChatMessage | Encoded] = []
    for message in messages:
        if isinstance(message, dict) and message.get("images"):
            loaded = [base64[name] for name in message["images"] if name in base64]
            sent.append({**message, "images": loaded})
        else:
            sent.append(message)
    return sent, sum(name not in base64 for name in names)


async def with_attachments(
    messages: Sequence[ChatMessage | Encoded], load: Callable[[str], Awaitable[bytes]]
) -> tuple[list[ChatMessage | Encoded], int]:
    """Put the text of attached files before the content of their messages.

    Messages that are already encoded stay the same, and a note replaces a missing file. Return the
    messages and the number of missing files.
    """
    sent: list[ChatMessage | Encoded] = []
    missing = 0
    for message in messages:
        if not isinstance(message, dict) or "attachments" not in message:
            sent.append(message)
            continue
        files = []
        for attachment in message["attachments"]:
            text = await _load_text(attachment, load)
            if text is None:
                missing += 1
                text = omission_note(attachment, "is no longer stored")
            files.append(text)
        with_text: ChatMessage = {**message, "content": with_files(message["content"], files)}
        del with_text["attachments"]
        sent.append(with_text)
    return sent, missing


async def _load_text(
    attachment: AttachmentReference, load: Callable[[str], Awaitable[bytes]]
) -> str | None:
    """Return the text of a file between its marks, or None if it is no longer stored."""
    try:
        data = await load(attachment["text_sha256"])
    except BlobNotFound:
        return None
    text = await anyio.to_thread.run_sync(_decoded, data)
    return text_in_prompt(attachment, text)


def _decoded(data: bytes) -> str:
    return data.decode(errors="replace")
