"""Images and files of the messages that a client sent.

Clients send the whole conversation with each request. Only the newest user message is refused for
content that the server cannot read. Otherwise, such a conversation could not continue. A user
message before an assistant message is never the newest.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import Field

from mochi_server.errors import ValidationFailed
from mochi_server.protocols.parts import Notice, omitted_content
from mochi_server.protocols.sent_messages import SentMessages, decode_images
from mochi_server.schemas.common import Body
from mochi_server.services.attachments import DEFAULT_NAME, EncodedFile, read_attachments
from mochi_server.sessions.attachments import Attachment, text_in_prompt
from mochi_server.sessions.images import Location
from mochi_server.sessions.types import Image, Message

_Data = TypeVar("_Data")
HIDDEN_DOCUMENT = "[A document is not shown, because this server cannot read it.]"
HIDDEN_IMAGE = "[An image is not shown, because this server cannot read it.]"
_LEFT_OUT = Notice(
    "warning",
    {
        "code": "DOCUMENT_LEFT_OUT",
        "message": "This server cannot read some of the documents. The model receives a note "
        "instead.",
    },
)


class SentFile(Body):
    """Fields of a file with text, or a PDF, in OpenAI's APIs."""

    filename: str = DEFAULT_NAME
    file_id: Any = Field(None, description="Not supported. Use `file_data`.")
    file_data: str | None = None

    @property
    def encoded(self) -> EncodedFile | None:
        """The file, or None if the request has no data of it."""
        if self.file_data is None:
            return None
        return EncodedFile(self.filename, self.file_data)


async def with_images(
    sent: SentMessages, urls: Mapping[int, Mapping[Location, str | None]]
) -> SentMessages:
    """Return ``sent`` with the images in ``urls``, which are encoded.

    ``urls`` has the images of each message by its index, with their paths. None is an image without
    data. Only in the newest user message must they be readable. A note replaces each other
    unreadable image. It is added to the message in ``sent`` itself.

    Raises ``ValidationFailed`` for such an image of the newest user message.
    """
    images: dict[int, tuple[Image, ...]] = {}
    hidden: Counter[str] = Counter()
    newest = sent.last_user_index
    for index, encoded in urls.items():
        if index == newest:
            first_path = next(iter(encoded))
            content_path = first_path[:3]  # such as ("messages", 0, "content")
            present = _present(encoded)
            images[index] = await decode_images(present, content_path)
            continue
        readable: list[Image] = []
        for path, url in encoded.items():
            with suppress(ValidationFailed):
                image = _present({path: url})
                readable += await decode_images(image, path)
        images[index] = tuple(readable)
        unreadable = len(encoded) - len(readable)
        if unreadable:
            hidden["image"] += unreadable
            _add_texts(sent.messages[index], [HIDDEN_IMAGE] * unreadable)
    return replace(sent, images=images, notices=[*sent.notices, *omitted_content(hidden)])


async def with_files(
    sent: SentMessages, files: Mapping[int, Mapping[Location, EncodedFile | None]]
) -> SentMessages:
    """Return ``sent`` with ``files``, which the function reads. None is a file without data.

    ``files`` has the files of each message by its index, with their paths. Files of tool results
    become text. Only in the newest user message must files be readable. A note replaces each other
    unreadable file. Such texts and notes are added to the message in ``sent`` itself.

    Raises ``ValidationFailed`` for such a file of the newest user message.
    """
    attachments: dict[int, tuple[Attachment, ...]] = {}
    notices = [*sent.notices]
    newest = sent.last_user_index
    for index, encoded in files.items():
        message = sent.messages[index]
        if index == newest:
            present = _present(encoded)
            attachments[index] = await read_attachments(present)
            continue
        readable: list[Attachment] = []
        texts: list[str] = []
        for path, file in encoded.items():
            try:
                document = _present({path: file})
                (attachment,) = await read_attachments(document)
            except ValidationFailed:
                texts.append(HIDDEN_DOCUMENT)
                continue
            if message["role"] == "user":
                readable.append(attachment)
            else:
                texts.append(text_in_prompt(attachment.reference, attachment.text.data.decode()))
        attachments[index] = tuple(readable)
        if HIDDEN_DOCUMENT in texts and _LEFT_OUT not in notices:
            notices.append(_LEFT_OUT)
        _add_texts(message, texts)
    return replace(sent, attachments=attachments, notices=notices)


def _present(encoded: Mapping[Location, _Data | None]) -> dict[Location, _Data]:
    """Return ``encoded``. Raises ``ValidationFailed`` if a file or an image has no data."""
    present: dict[Location, _Data] = {}
    for path, data in encoded.items():
        if data is None:
            raise ValidationFailed.at(
                path,
                "the request must contain the file itself; this server reads no files by ID or URL",
            )
        present[path] = data
    return present


def _add_texts(message: Message, texts: Sequence[str]) -> None:
    content = message["content"]
    message["content"] = "\n".join([content, *texts] if content else texts)
