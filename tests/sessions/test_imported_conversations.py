"""Conversations of other programs: the same sessions in all stores, and their other branches."""

from pathlib import Path
from typing import Any

import pytest

from mochi_server.services.importers import Conversation, archive, importer_of
from mochi_server.services.importers.imported import new_session
from mochi_server.sessions.store import SessionStore

EXPORTS = Path(__file__).parents[1] / "api/exports"


def first_conversation(name: str) -> Conversation:
    items, files = archive.read((EXPORTS / f"{name}.json").read_bytes(), 0)
    item: Any = items[0]
    importer = importer_of(item)
    assert importer is not None
    return importer.parse(importer.model.model_validate(importer.flatten(item)), files)


@pytest.mark.parametrize(
    "name", ["chatgpt/reasoning", "claude/tools", "librechat/tree", "open_webui/images"]
)
async def test_store_keeps_an_imported_conversation(store: SessionStore, name: str) -> None:
    conversation = first_conversation(name)
    (stored,) = await store.create_all([new_session(conversation, [])])
    loaded = await store.load(stored.session_id)
    assert loaded.messages == conversation.messages
    assert loaded.metadata.title == conversation.title
    assert loaded.metadata.created_at == conversation.created_at
    for image in conversation.images:
        assert await store.load_image(image.sha256) == image.data


def test_versions_begin_where_they_leave_the_shown_branch() -> None:
    conversation = first_conversation("chatgpt/branches")
    regenerated, edited = conversation.versions
    assert regenerated.after == conversation.messages[0]["message_id"]
    assert [message["content"] for message in regenerated.messages] == [
        "Every twelve hours.",
        "Why?",
    ]
    assert edited.after is None
    assert [message["content"] for message in edited.messages] == [
        "How do I feed a starter?",
        "Feed it once a day.",
    ]
