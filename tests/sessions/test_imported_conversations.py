"""Conversations of other programs: the same sessions in all stores, and their other branches."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mochi_server.services.importers import Branch, Conversation, archive, importer_of
from mochi_server.services.importers.imported import (
    left_out_warnings,
    new_session,
    placed_versions,
)
from mochi_server.sessions import Message
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


async def test_other_branches_are_stored_as_versions(store: SessionStore) -> None:
    conversation = first_conversation("chatgpt/branches")
    (stored,) = await store.create_all([new_session(conversation, [])])
    versions = await store.load_versions(stored.session_id)
    places = {message["message_id"]: message["content"] for message in conversation.messages}
    first = conversation.messages[0]["content"]
    answer = conversation.messages[1]["content"]
    found = {places[version.message_id]: len(version.messages) for version in versions}
    assert found == {answer: 2, first: 2}


def test_branch_of_another_branch_is_a_version_inside_it() -> None:
    messages = [message_of(name) for name in ("q", "a", "q1", "a1", "q2", "q3")]
    q, a, q1, a1, q2, q3 = messages
    conversation = Conversation(
        title=None,
        model="m",
        created_at=q["timestamp"],
        updated_at=q["timestamp"],
        messages=[q, a],
        images=[],
        versions=[Branch("q", [q1, a1]), Branch("q1", [q2]), Branch("a", [q3])],
        left_out={},
    )
    outer, inner = placed_versions(conversation)
    assert (outer.message_id, outer.inside) == ("a", None)
    assert (inner.message_id, inner.inside) == ("a1", outer.version_id)
    (warning,) = left_out_warnings([conversation], [], Counter())[:1]
    assert warning.message == "The import left out versions: 1."


def message_of(name: str) -> Message:
    time = "2025-01-01T00:00:00.000000+00:00"
    return {"role": "user", "content": name, "message_id": name, "timestamp": time}
