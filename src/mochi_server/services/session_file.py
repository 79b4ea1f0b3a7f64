"""What a session's file must hold to be imported. Stored files may be odd, and are read as well as they can be."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from mochi_server.sessions.types import Role


class _Open(BaseModel):
    """What is not named here is kept as it is."""

    model_config = ConfigDict(extra="allow", strict=True)


class FileCallFunction(_Open):
    """What is called, with what."""

    name: str
    arguments: dict[str, Any]


class FileCall(_Open):
    """A tool call as Ollama writes it."""

    id: str
    function: FileCallFunction


class FileMessage(_Open):
    """A message of a session file."""

    role: Role
    content: str
    message_id: str | None = None
    timestamp: str | None = None
    tool_calls: list[FileCall] | None = None


class FileMetadata(_Open):
    """The head of a session file."""

    model: Annotated[str, Field(min_length=1, max_length=500)]


class SessionFile(_Open):
    """A session as it is stored and exported: `metadata`, which is what lists show of it, and its `messages`.

    In exports, `blobs` are the images that messages name: base64 of their bytes, by their SHA-256 in hex.
    """

    metadata: FileMetadata
    messages: list[FileMessage]
    blobs: dict[str, str] | None = None
