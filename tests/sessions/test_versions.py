"""Versions of a history, in all stores."""

import shutil
from pathlib import Path

import pytest

from mochi_server.errors import BlobNotFound, SessionNotFound
from mochi_server.sessions import (
    Attachment,
    Blob,
    ChatSession,
    FileSessionStore,
    Image,
    Message,
    SessionCreationOptions,
    SessionManager,
    SessionQuery,
    SessionStore,
)
from mochi_server.sessions import versions as limits
from mochi_server.sessions.change import Change, VersionChange
from mochi_server.sessions.session import edited, user_message
from mochi_server.sessions.types import attachments_of
from mochi_server.sessions.versions import Versions, count_versions, within
from tests.sessions.samples import (
    appended,
    assistant,
    contents,
    file_of,
    new_session,
    stored_session,
    user,
)
from tests.support.images import PNG

PICTURE = Image.of(PNG)
TEXT = Blob.hashed(b"Minutes", "text/plain")
DOCUMENT = Attachment("a.pdf", Blob.hashed(b"%PDF-", "application/pdf"), TEXT, 5, 7)


async def edit(store: SessionStore, session_id: str, index: int, *texts: str) -> None:
    """Edit a user message and append an answer to it."""
    session = await store.load(session_id)
    await store.write(session_id, edited(session, index, texts[0]))
    answers = [assistant(text) for text in texts[1:]]
    if answers:
        await store.write(session_id, Change(answers))


async def regenerate(store: SessionStore, session_id: str, start: int, text: str) -> int:
    change = Change([assistant(text)], start=start, versions=VersionChange())
    return await store.write(session_id, change)


async def select(store: SessionStore, session_id: str, text: str) -> None:
    """Show the version whose first message has this text."""
    session = await store.load(session_id)
    ids = [message["message_id"] for message in session.history]
    for version in await store.load_versions(session_id):
        if version.inside is None and version.messages[0]["content"] == text:
            change = Change(
                version.messages,
                start=ids.index(version.message_id),
                versions=VersionChange(selected=version.version_id),
            )
            await store.write(session_id, change)
            return
    raise AssertionError(f"there is no version {text!r} in the history")


def texts_of(versions: Versions) -> list[list[str]]:
    return [[message["content"] for message in version.messages] for version in versions]


def counts_of(session: ChatSession) -> list[tuple[str, int, int]]:
    """Return the text, the count and the number of the shown version for each place."""
    texts = {message["message_id"]: message["content"] for message in session.history}
    counts = count_versions(session.metadata.versions, session.history)
    return [(texts[name], each.count, each.shown) for name, each in counts.items()]


async def test_session_without_changes_has_no_versions(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("1"))
    assert await store.load_versions(session.session_id) == ()
    assert session.metadata.versions is None


async def test_edit_and_regeneration_keep_what_they_replace(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("1"), user("b"), assistant("2"))
    session_id = session.session_id
    assert await regenerate(store, session_id, 3, "2b") == 0
    await edit(store, session_id, 0, "A", "one")
    loaded = await store.load(session_id)
    assert contents(loaded) == ["A", "one"]
    assert counts_of(loaded) == [("A", 2, 2)]
    versions = await store.load_versions(session_id)
    assert texts_of(versions) == [["2"], ["a", "1", "b", "2b"]]
    assert versions[0].inside == versions[1].version_id


async def test_selected_version_has_what_came_after_it(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("1"), user("b"), assistant("2"))
    session_id = session.session_id
    await regenerate(store, session_id, 3, "2b")
    await edit(store, session_id, 0, "A", "one")
    await select(store, session_id, "a")
    loaded = await store.load(session_id)
    assert contents(loaded) == ["a", "1", "b", "2b"]
    assert loaded.revision != session.revision
    assert counts_of(loaded) == [("2b", 2, 2), ("a", 2, 1)]
    await select(store, session_id, "2")
    assert contents(await store.load(session_id)) == ["a", "1", "b", "2"]
    await select(store, session_id, "A")
    assert contents(await store.load(session_id)) == ["A", "one"]
    assert texts_of(await store.load_versions(session_id)) == [["2b"], ["a", "1", "b", "2"]]


async def test_order_of_versions_does_not_depend_on_which_is_shown(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("1"))
    session_id = session.session_id
    await regenerate(store, session_id, 1, "2")
    await regenerate(store, session_id, 1, "3")
    for number, text in enumerate(["1", "2"], 1):
        await select(store, session_id, text)
        assert counts_of(await store.load(session_id)) == [(text, 3, number)]


async def test_other_changes_of_the_history_keep_no_version(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("1"))
    session_id = session.session_id
    await regenerate(store, session_id, 1, "2")
    before = await store.load_versions(session_id)
    loaded = await store.load(session_id)
    await store.write(session_id, Change([user("system"), *loaded.messages], start=0))
    assert await store.load_versions(session_id) == before
    assert counts_of(await store.load(session_id)) == [("2", 2, 2)]


async def test_repeated_write_keeps_one_version(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("1"))
    change = Change([assistant("2")], start=1, versions=VersionChange())
    await store.write(session.session_id, change)
    await store.write(session.session_id, change)
    assert texts_of(await store.load_versions(session.session_id)) == [["1"]]


async def test_versions_of_a_message_are_deleted_with_those_inside(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("1"), user("b"), assistant("2"))
    session_id = session.session_id
    await regenerate(store, session_id, 3, "2b")
    await edit(store, session_id, 0, "A", "one")
    await regenerate(store, session_id, 1, "two")
    loaded = await store.load(session_id)
    place = loaded.history[0]["message_id"]
    await store.write(session_id, Change(versions=VersionChange(deleted=place)))
    after = await store.load(session_id)
    assert contents(after) == ["A", "two"]
    assert texts_of(await store.load_versions(session_id)) == [["one"]]
    assert counts_of(after) == [("two", 2, 2)]


async def test_oldest_versions_exceed_the_number(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("0"))
    session_id = session.session_id
    removed = [
        await regenerate(store, session_id, 1, str(number))
        for number in range(1, limits.MAX_VERSIONS + 3)
    ]
    assert removed == [0] * limits.MAX_VERSIONS + [1, 1]
    versions = await store.load_versions(session_id)
    assert len(versions) == limits.MAX_VERSIONS
    assert texts_of(versions)[0] == ["2"]
    counts = counts_of(await store.load(session_id))
    assert counts == [
        (str(limits.MAX_VERSIONS + 2), limits.MAX_VERSIONS + 1, limits.MAX_VERSIONS + 1)
    ]


async def test_oldest_versions_exceed_the_size(store: SessionStore) -> None:
    large = "x" * (limits.MAX_BYTES // 2)
    session = await stored_session(store, user("a"), assistant(f"0{large}"))
    assert await regenerate(store, session.session_id, 1, f"1{large}") == 0
    assert await regenerate(store, session.session_id, 1, "2") == 1
    versions = await store.load_versions(session.session_id)
    assert [text[:2] for (text,) in texts_of(versions)] == ["1x"]


async def test_image_of_a_version_stays_until_the_version_is_deleted(
    store: SessionStore,
) -> None:
    picture = user_message("look", [PICTURE])
    session = await stored_session(store)
    session_id = session.session_id
    await appended(store, session_id, [picture, assistant("1")], images=[PICTURE])
    await store.write(session_id, Change([user("no picture")], start=0, versions=VersionChange()))
    assert await store.load_image(PICTURE.sha256) == PNG
    await select(store, session_id, "look")
    assert await store.load_image(PICTURE.sha256) == PNG
    await select(store, session_id, "no picture")
    (place,) = (await store.load(session_id)).history
    await store.write(session_id, Change(versions=VersionChange(deleted=place["message_id"])))
    with pytest.raises(BlobNotFound):
        await store.load_image(PICTURE.sha256)


async def test_file_of_a_version_stays_until_the_version_is_deleted(store: SessionStore) -> None:
    session = await stored_session(store)
    session_id = session.session_id
    asked = user_message("read", attachments=[DOCUMENT])
    await appended(store, session_id, [asked, assistant("1")], images=DOCUMENT.blobs)
    await store.write(session_id, Change([user("no file")], start=0, versions=VersionChange()))
    await select(store, session_id, "read")
    assert attachments_of((await store.load(session_id)).messages[0]) == [DOCUMENT.reference]
    await select(store, session_id, "no file")
    for blob in DOCUMENT.blobs:
        assert await store.load_image(blob.sha256) == blob.data
    (place,) = (await store.load(session_id)).history
    await store.write(session_id, Change(versions=VersionChange(deleted=place["message_id"])))
    for blob in DOCUMENT.blobs:
        with pytest.raises(BlobNotFound):
            await store.load_image(blob.sha256)


async def test_deleted_session_has_no_versions_and_no_images(store: SessionStore) -> None:
    session = await stored_session(store)
    picture = user_message("look", [PICTURE])
    await appended(store, session.session_id, [picture], images=[PICTURE])
    await edit_without_images(store, session.session_id)
    await store.delete(session.session_id)
    with pytest.raises(SessionNotFound):
        await store.load_versions(session.session_id)
    with pytest.raises(BlobNotFound):
        await store.load_image(PICTURE.sha256)


async def edit_without_images(store: SessionStore, session_id: str) -> None:
    await store.write(session_id, Change([user("other")], start=0, versions=VersionChange()))


async def test_search_ignores_versions(store: SessionStore) -> None:
    session = await stored_session(store, user("aubergine"), assistant("1"))
    await edit_without_images(store, session.session_id)
    assert (await store.list(SessionQuery(text="aubergine"))).total == 0
    assert "versions" not in (await store.list(SessionQuery())).entries[0]


async def test_created_session_has_the_versions_of_its_file(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("1"), user("b"), assistant("2"))
    await regenerate(store, session.session_id, 3, "2b")
    await edit(store, session.session_id, 0, "A", "one")
    versions = await store.load_versions(session.session_id)
    copied = await store.load(session.session_id)
    copied.extra["versions"] = [version.to_dict() for version in versions]
    stored = await store.create(copied)
    assert stored.extra == {}
    assert await store.load_versions(stored.session_id) == versions
    assert counts_of(await store.load(stored.session_id)) == counts_of(copied)
    del copied.extra["versions"]
    await store.put(copied)
    assert await store.load_versions(copied.session_id) == ()
    assert (await store.load(copied.session_id)).metadata.versions is None


async def test_damaged_versions_are_left_out(store: SessionStore) -> None:
    session = new_session()
    session.messages.append(user("a"))
    place = session.messages[0]["message_id"]
    good = {"version_id": "v", "message_id": place, "messages": [{"role": "user", "content": "b"}]}
    session.extra["versions"] = [None, {}, good | {"messages": []}, good | {"version_id": 3}, good]
    stored = await store.create(session)
    assert texts_of(await store.load_versions(stored.session_id)) == [["b"]]


async def test_versions_outside_of_a_part_of_the_history(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("1"), user("b"), assistant("2"))
    await regenerate(store, session.session_id, 3, "2b")
    versions = await store.load_versions(session.session_id)
    history = (await store.load(session.session_id)).history
    assert within(versions, history) == versions
    assert within(versions, history[:3]) == ()


async def test_version_of_a_turn_survives_a_crash(
    files: FileSessionStore, sessions_dir: Path, tmp_path: Path
) -> None:
    session = await stored_session(files, user("a"), assistant("1"), user("b"), assistant("2"))
    async with files.hold(session.session_id, run_id="r"):
        await files.write(session.session_id, Change([assistant("3")]))
        await regenerate(files, session.session_id, 3, "2b")
        crashed = Path(shutil.copytree(sessions_dir, tmp_path / "crashed"))
    with SessionManager(crashed) as copied:
        assert counts_of(copied.load_session(session.session_id)) == [("2b", 2, 2)]
    assert texts_of(await files.load_versions(session.session_id)) == [["2", "3"]]


async def test_file_of_a_session_without_versions_does_not_mention_them(
    files: FileSessionStore, sessions_dir: Path
) -> None:
    session = await stored_session(files, user("a"), assistant("1"))
    assert b"versions" not in file_of(sessions_dir, session.session_id).read_bytes()


def test_manager_keeps_versions(manager: SessionManager) -> None:
    message: Message = user("a")
    session = manager.create_session(SessionCreationOptions(model="m"))
    manager.append_messages(session.session_id, [message, assistant("1")])
    changed = manager.edit_message(session.session_id, 0, "A")
    assert counts_of(changed) == [("A", 2, 2)]
