"""Sample sessions and messages, and their files."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mochi_server.sessions import (
    AssistantMessage,
    ChatSession,
    Message,
    SessionCreationOptions,
    SessionStore,
    UserMessage,
)
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import user_message
from mochi_server.util.clock import new_id, now


def new_session(model: str = "qwen3:14b", system_prompt: str | None = None) -> ChatSession:
    return ChatSession.create(SessionCreationOptions(model=model, system_prompt=system_prompt))


def user(content: str) -> UserMessage:
    return user_message(content)


def assistant(content: str) -> AssistantMessage:
    return {
        "role": "assistant",
        "content": content,
        "model": "m",
        "message_id": new_id(),
        "timestamp": now(),
    }


def contents(session: ChatSession) -> list[str]:
    return [message["content"] for message in session.messages]


async def stored_session(store: SessionStore, *messages: Message) -> ChatSession:
    """Store a session with these messages and return it."""
    session = await store.create(new_session())
    return await appended(store, session.session_id, messages) if messages else session


async def appended(
    store: SessionStore, session_id: str, messages: Sequence[Message], **options: Any
) -> ChatSession:
    """Append messages to a session and return the changed session."""
    await store.write(session_id, Change(messages, **options))
    return await store.load(session_id)


def file_of(directory: Path, session_id: str) -> Path:
    return directory / f"{session_id}.json"


def log_of(directory: Path, session_id: str) -> Path:
    return directory / f".{session_id}.turn.jsonl"


def read_count(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count opened session files; the returned function returns the count."""
    opened: list[object] = []
    open_file = os.open

    def counting(path: Any, *arguments: Any, **keywords: Any) -> int:
        if str(path).endswith(".json"):
            opened.append(path)
        return open_file(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", counting)
    return lambda: len(opened)


def storage_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of the storage. Servers of other tests may log at the same time."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING" and record.name.startswith("mochi_server.storage")
    ]
