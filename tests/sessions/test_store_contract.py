"""Contract of all session stores."""

import pytest

from mochi_server.errors import BlobNotFound, SessionBusy, SessionConflict, SessionNotFound
from mochi_server.sessions import (
    AgentSettings,
    Attachment,
    Blob,
    ChatSession,
    Image,
    SessionQuery,
    SessionStore,
    ToolExecutionPolicy,
    ToolSettings,
)
from mochi_server.sessions.change import Change
from mochi_server.sessions.session import user_message, with_system_prompt, without_system_prompt
from mochi_server.sessions.turn import StoredTurn
from mochi_server.util.clock import timestamp
from tests.sessions.samples import appended, assistant, contents, new_session, stored_session, user
from tests.support.cases import cases
from tests.support.images import GIF, PNG

NO_IDS = [
    "0123456789",
    "",
    "abc",
    "ABCDEF0123",
    "../../../etc",
    "0123456789\n",
    "012345678g",
    "0123456789.json",
]
SHOWN, OTHER = Image.of(PNG), Image.of(GIF)
TEXT = Blob.hashed(b"Minutes", "text/plain")
PDF = Attachment("a.pdf", Blob.hashed(b"%PDF-", "application/pdf"), TEXT, 5, 7)
NOTES = Attachment("a.txt", Blob.hashed(b"Notes", "text/plain"), Blob.hashed(b"Notes", ""), 5, 5)


async def test_created_session_loads_as_it_was_created(store: SessionStore) -> None:
    created = await store.create(new_session(system_prompt="Be brief."))
    assert await store.load(created.session_id) == created
    assert contents(created) == ["Be brief."]
    assert created.metadata.message_count == 1


async def test_used_session_id_is_replaced(store: SessionStore) -> None:
    session = new_session()
    first = await store.create(session)
    session.metadata.model = "other"
    second = await store.create(session)
    assert first.session_id != second.session_id
    assert (await store.load(first.session_id)).model == "qwen3:14b"
    assert (await store.load(second.session_id)).model == "other"


async def test_put_session_replaces_another_unchanged(store: SessionStore) -> None:
    session = new_session(system_prompt="Be brief.")
    session.metadata.updated_at = "2024-05-06T07:08:09.123456+00:00"
    assert await store.put(session) == await store.load(session.session_id) == session
    session.messages.append(user("Hello"))
    session.metadata.message_count = 2
    assert await store.put(session) == await store.load(session.session_id) == session
    assert (await store.list(SessionQuery())).entries == [session.summary_object()]


@cases("session_id", NO_IDS)
async def test_every_operation_on_unknown_session_is_not_found(
    store: SessionStore, session_id: str
) -> None:
    for verb in (
        store.load(session_id),
        store.write(session_id, Change([user("hi")])),
        store.write(session_id, Change([], start=0)),
        store.patch(session_id, {"title": "x"}),
        store.write(session_id, Change(partial=assistant("so far"))),
        store.delete(session_id),
    ):
        with pytest.raises(SessionNotFound):
            await verb
    with pytest.raises(SessionNotFound):
        async with store.hold(session_id):
            pass


async def test_appended_messages_are_at_the_end_and_counted(store: SessionStore) -> None:
    session = await stored_session(store, user("a"))
    changed = await appended(store, session.session_id, [assistant("b"), user("c")])
    assert contents(changed) == ["a", "b", "c"]
    assert changed.metadata.message_count == 3
    assert timestamp(changed.metadata.updated_at) > timestamp(session.metadata.updated_at)
    assert await store.load(session.session_id) == changed


async def test_replaced_tail_keeps_earlier_messages(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("b"), user("c"))
    changed = await appended(store, session.session_id, [assistant("B")], start=1)
    assert contents(changed) == ["a", "B"]
    assert changed.metadata.message_count == 2
    assert await store.load(session.session_id) == changed


async def test_replacing_from_the_beginning_replaces_everything(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("b"))
    assert (await appended(store, session.session_id, [], start=0)).messages == []
    assert (await store.load(session.session_id)).metadata.message_count == 0


async def test_change_based_on_an_older_revision_is_a_conflict(store: SessionStore) -> None:
    old = await stored_session(store, user("a"))
    new = await appended(store, old.session_id, [assistant("b")], revision=old.revision)
    for verb in (
        store.write(old.session_id, Change([user("late")], revision=old.revision)),
        store.write(old.session_id, Change([], start=0, revision=old.revision)),
        store.patch(old.session_id, {"title": "late"}, revision=old.revision),
    ):
        with pytest.raises(SessionConflict):
            await verb
    assert await store.load(old.session_id) == new


async def test_patches_of_different_fields_are_merged(store: SessionStore) -> None:
    session = await stored_session(store, user("a"))
    await store.patch(session.session_id, {"title": "Plans"})
    settings = ToolSettings(tools=["add"], execution_policy=ToolExecutionPolicy.NEVER_CONFIRM)
    await store.patch(
        session.session_id, {"tool_settings": settings, "agent_settings": AgentSettings()}
    )
    changed = await store.patch(
        session.session_id, {"model": "llama3", "options": {"temperature": 0.5}}
    )
    assert await store.load(session.session_id) == changed
    assert (changed.metadata.title, changed.model, changed.metadata.tool_settings) == (
        "Plans",
        "llama3",
        settings,
    )
    assert changed.metadata.options == {"temperature": 0.5}
    assert changed.revision == session.revision
    assert timestamp(changed.metadata.updated_at) > timestamp(session.metadata.updated_at)


async def test_null_patch_resets_a_field_to_its_default(store: SessionStore) -> None:
    session = await stored_session(store)
    await store.patch(
        session.session_id, {"title": "x", "tool_settings": ToolSettings(tools=["add"])}
    )
    changed = await store.patch(session.session_id, {"title": None, "tool_settings": None})
    assert changed.metadata.title is None
    assert changed.metadata.tool_settings == ToolSettings()


@cases("fields", [{"colour": 1}, {"session_id": "x"}, {"message_count": 9}, {"model": None}])
async def test_patch_of_unknown_field_raises(
    store: SessionStore, fields: dict[str, object]
) -> None:
    session = await stored_session(store)
    with pytest.raises(ValueError, match=r"fields|model"):
        await store.patch(session.session_id, fields)
    assert await store.load(session.session_id) == session


async def test_surrogates_are_replaced_or_combined(store: SessionStore) -> None:
    session = await stored_session(store, user("broken \ud83d here, \ud83d\ude00 whole"))
    changed = await store.patch(session.session_id, {"title": "\udc00"})
    assert contents(changed) == ["broken \ufffd here, \U0001f600 whole"]
    assert changed.metadata.title == "\ufffd"
    assert await store.load(session.session_id) == changed


async def test_stored_session_is_isolated_from_objects(store: SessionStore) -> None:
    message = user("a")
    session = await store.create(new_session())
    async with store.hold(session.session_id, run_id="r"):
        returned = await appended(store, session.session_id, [message])
        message["content"] = "changed"
        returned.messages[0]["content"] = "changed"
        returned.metadata.context_window_config["adjustment_history"].append("changed")
        next_one = await appended(store, session.session_id, [assistant("b")])
    for found in (next_one, await store.load(session.session_id)):
        assert contents(found) == ["a", "b"]
        assert found.metadata.context_window_config["adjustment_history"] == []


async def test_deleted_session_is_not_found(store: SessionStore) -> None:
    session = await stored_session(store, user("a"))
    await store.delete(session.session_id)
    with pytest.raises(SessionNotFound):
        await store.load(session.session_id)
    assert (await store.list(SessionQuery())).total == 0


async def test_list_is_sorted_by_the_last_change_and_paged(store: SessionStore) -> None:
    ids = [(await stored_session(store, user(str(number)))).session_id for number in range(5)]
    await store.patch(ids[1], {"title": "touched"})
    expected = [ids[1], ids[4], ids[3], ids[2], ids[0]]
    everything = await store.list(SessionQuery())
    assert [entry["session_id"] for entry in everything.entries] == expected
    page = await store.list(SessionQuery(limit=2, offset=1))
    assert [entry["session_id"] for entry in page.entries] == expected[1:3]
    assert page.total == everything.total == 5
    assert (await store.list(SessionQuery(offset=9))).entries == []


async def test_list_entries_match_the_sessions(store: SessionStore) -> None:
    session = await stored_session(store, user("hello"))
    page = await store.list(SessionQuery())
    assert page.entries == [session.summary_object()]
    assert page.entries[0]["preview"] == "hello"


async def test_empty_store_lists_nothing(store: SessionStore) -> None:
    page = await store.list(SessionQuery())
    assert (page.entries, page.total) == ([], 0)


async def test_list_and_search_of_one_owner(store: SessionStore) -> None:
    ids = {}
    for owner in ("ann", "bob", None):
        session = new_session("Hello")
        session.metadata.owner = owner
        ids[owner] = (await store.create(session)).session_id
        await store.patch(ids[owner], {"title": f"Boats of {owner}"})
    for query, owners in (
        (SessionQuery(owner="ann"), ["ann"]),
        (SessionQuery(owner="ann", text="boats"), ["ann"]),
        (SessionQuery(owner="ann", text="bob"), []),
        (SessionQuery(owner="ann", limit=1, offset=1), []),
        (SessionQuery(text="boats"), [None, "bob", "ann"]),
    ):
        page = await store.list(query)
        assert [entry.get("owner") for entry in page.entries] == owners
        assert page.total == (1 if query.offset else len(owners))
    assert (await store.load(ids["ann"])).metadata.owner == "ann"
    with pytest.raises(ValueError, match="owner"):
        await store.patch(ids["ann"], {"owner": "bob"})


async def test_running_turn_is_read_without_its_partial_answer(store: SessionStore) -> None:
    session = await stored_session(store)
    async with store.hold(session.session_id, run_id="r"):
        await store.write(session.session_id, Change([user("a")]))
        await store.write(session.session_id, Change(partial=assistant("so f")))
        assert contents(await store.load(session.session_id)) == ["a"]
        await store.write(session.session_id, Change([assistant("so far")]))
        assert contents(await store.load(session.session_id)) == ["a", "so far"]
        (entry,) = (await store.list(SessionQuery())).entries
        assert entry["message_count"] == 2
    assert contents(await store.load(session.session_id)) == ["a", "so far"]


async def test_checkpoint_alone_changes_neither_history_nor_time(store: SessionStore) -> None:
    session = await stored_session(store, user("a"))
    async with store.hold(session.session_id, run_id="r"):
        await store.write(session.session_id, Change(partial=assistant("so f")))
        assert await store.load(session.session_id) == session


async def test_patch_during_a_turn_is_merged_with_it(store: SessionStore) -> None:
    session = await stored_session(store)
    async with store.hold(session.session_id, run_id="r"):
        await store.patch(session.session_id, {"title": "before"})
        spoken = await appended(store, session.session_id, [user("a")], revision=session.revision)
        await store.patch(session.session_id, {"title": "during"})
        await store.write(session.session_id, Change([assistant("b")], revision=spoken.revision))
        assert (await store.load(session.session_id)).metadata.title == "during"
    ended = await store.load(session.session_id)
    assert ended.metadata.title == "during"
    assert contents(ended) == ["a", "b"]


async def test_turn_may_replace_earlier_messages(store: SessionStore) -> None:
    session = await stored_session(store, user("a"), assistant("old"))
    async with store.hold(session.session_id, run_id="r"):
        await store.patch(session.session_id, {"title": "t"})
        await store.write(session.session_id, Change([assistant("new")], start=1))
        await store.write(session.session_id, Change([user("A")], start=0))
        await store.write(session.session_id, Change([assistant("newest")]))
    assert contents(await store.load(session.session_id)) == ["A", "newest"]


async def test_system_prompt_moves_the_position_of_the_turn(store: SessionStore) -> None:
    session_id = (await stored_session(store, user("a"))).session_id
    await store.write(session_id, Change([assistant("b")], turn=StoredTurn(["r"], "failed", 1)))
    for content in ("Be brief.", "Be kind."):
        await store.write(session_id, with_system_prompt(await store.load(session_id), content))
        assert await first_of_turn(store, session_id) == 2
    for _ in range(2):
        await store.write(session_id, without_system_prompt(await store.load(session_id)))
        assert await first_of_turn(store, session_id) == 1


async def first_of_turn(store: SessionStore, session_id: str) -> int:
    turn = (await store.load(session_id)).metadata.turn
    assert turn is not None
    return turn.first


async def test_deleting_during_a_turn_is_final(store: SessionStore) -> None:
    session = await stored_session(store)
    async with store.hold(session.session_id, run_id="r"):
        await store.write(session.session_id, Change([user("a")]))
        await store.write(session.session_id, Change([assistant("b")]))
        await store.delete(session.session_id)
        with pytest.raises(SessionNotFound):
            await store.write(session.session_id, Change([user("c")]))
        with pytest.raises(SessionNotFound):
            await store.write(session.session_id, Change(partial=assistant("c")))
    with pytest.raises(SessionNotFound):
        await store.load(session.session_id)
    assert (await store.list(SessionQuery())).total == 0


async def test_second_turn_is_refused_with_the_run_id(store: SessionStore) -> None:
    session = await stored_session(store)
    async with store.hold(session.session_id, run_id="first"):
        for run_id in ("second", None):
            with pytest.raises(SessionBusy) as caught:
                async with store.hold(session.session_id, run_id=run_id):
                    pass
            assert caught.value.details["run_id"] == "first"
    async with store.hold(session.session_id, run_id="second"):
        pass


FOUND = {
    "flour": [0, 1],
    "FLOUR": [0, 1],
    "lou": [0, 1],
    "flour bread": [0],
    "  bread \t flour ": [0],
    "sourdough": [0],
    "brot": [2],
    "STRASSE": [2],
    "straße": [2],
    "caf\u00e9": [2],
    "cafe": [2],
    "cafe\u0301": [2],
    "\u65e5\u672c": [2],
    "\U0001f600": [2],
    "c++": [1],
    '"quoted"': [1],
    "it's 100%": [1],
    "a_b*": [1],
    "plan": [1],
    "flour brot": [],
    "flourish": [],
    "a%b": [],
    "a_b%": [],
    "NEAR(flour": [],
    '"': [1],
    "qwen3:14b": [],
}


async def sessions_to_search(store: SessionStore) -> list[str]:
    baking = await stored_session(
        store, user("Sourdough bread"), assistant("Take flour and water.")
    )
    code = await stored_session(store, user('Is C++ "quoted"? It\'s 100% a_b*; Flour.'))
    await store.patch(code.session_id, {"title": "My PLAN"})
    world = await stored_session(
        store, user("Brot, Stra\u00dfe, cafe\u0301"), assistant("\u4eca\u65e5\u672c \U0001f600")
    )
    return [baking.session_id, code.session_id, world.session_id]


async def found(store: SessionStore, text: str) -> list[str]:
    return sorted(
        entry["session_id"] for entry in (await store.list(SessionQuery(text=text))).entries
    )


async def test_search_finds_sessions_that_have_every_word(store: SessionStore) -> None:
    ids = await sessions_to_search(store)
    results = {text: await found(store, text) for text in FOUND}
    assert results == {
        text: sorted(ids[number] for number in numbers) for text, numbers in FOUND.items()
    }


@pytest.mark.parametrize("text", ["", "  ", "\0\n\t"])
async def test_blank_search_finds_every_session(store: SessionStore, text: str) -> None:
    ids = await sessions_to_search(store)
    assert await found(store, text) == sorted(ids)


@pytest.mark.parametrize(
    "text",
    [
        "AND",
        "OR (",
        "a NOT",
        "*",
        "x:y",
        "-",
        "^",
        "\0",
        "a\0b",
        "{}",
        "'; DROP TABLE sessions",
        "\ud800",
        "xyz " * 2500,
    ],
)
async def test_search_accepts_every_query(store: SessionStore, text: str) -> None:
    ids = await sessions_to_search(store)
    assert set(await found(store, text)) <= set(ids)
    assert await found(store, "bread") == [ids[0]]


async def test_search_results_are_sorted_by_last_change_and_paged(store: SessionStore) -> None:
    ids = [
        (await stored_session(store, user(f"apple {number % 2}"))).session_id for number in range(6)
    ]
    await store.patch(ids[2], {"title": "touched"})
    expected = [ids[2], ids[4], ids[0]]
    page = await store.list(SessionQuery(text="apple 0"))
    assert ([entry["session_id"] for entry in page.entries], page.total) == (expected, 3)
    page = await store.list(SessionQuery(text="apple 0", limit=1, offset=1))
    assert ([entry["session_id"] for entry in page.entries], page.total) == (expected[1:2], 3)
    assert page.entries == [(await store.load(ids[4])).summary_object()]
    assert (await store.list(SessionQuery(text="apple 0", offset=9))).entries == []


async def test_search_finds_changed_text(store: SessionStore) -> None:
    session = await stored_session(store, user("apple"), assistant("banana"))
    assert await found(store, "banana") == [session.session_id]
    await store.write(session.session_id, Change([assistant("cherry")], start=1))
    assert (await found(store, "banana"), await found(store, "cherry")) == (
        [],
        [session.session_id],
    )
    await store.patch(session.session_id, {"title": "damson"})
    assert await found(store, "damson apple") == [session.session_id]
    async with store.hold(session.session_id, run_id="r"):
        await store.write(session.session_id, Change([user("elder")]))
        await store.write(session.session_id, Change([assistant("fig")]))
        assert await found(store, "elder fig") == [session.session_id]
    assert await found(store, "elder fig") == [session.session_id]
    await store.delete(session.session_id)
    assert await found(store, "apple") == []


async def test_words_are_found_anywhere_in_long_sessions(store: SessionStore) -> None:
    filler = [assistant(f"{number} " + "lorem ipsum " * 100) for number in range(60)]
    session = await stored_session(
        store, user("first"), *filler[:30], user("middle" * 5000), *filler[30:], user("last")
    )
    assert await found(store, "first middle last 59") == [session.session_id]
    await store.write(session.session_id, Change([assistant("afterwards")]))
    assert await found(store, "first middle afterwards") == [session.session_id]


async def test_title_comes_from_first_message_or_summary_unless_set(store: SessionStore) -> None:
    async def title() -> str | None:
        ((entry,), loaded) = (
            (await store.list(SessionQuery())).entries,
            await store.load(session.session_id),
        )
        assert entry["title"] == loaded.summary_object()["title"]
        return str(entry["title"]) if entry["title"] is not None else None

    session = await stored_session(store)
    assert await title() is None
    await store.write(
        session.session_id,
        Change([user(" What  is\n the capital of France? "), assistant("Paris.")]),
    )
    assert await title() == "What is the capital of France?"
    await store.patch(
        session.session_id, {"summary": {"summary": "About Paris. And more.", "topics": []}}
    )
    assert await title() == "About Paris"
    await store.patch(session.session_id, {"title": "Set by hand"})
    await store.patch(session.session_id, {"summary": {"summary": "Another.", "topics": []}})
    assert await title() == "Set by hand"
    await store.patch(session.session_id, {"title": None})
    assert await title() == "Another"


async def test_image_is_stored_with_the_message_that_names_it(store: SessionStore) -> None:
    session = await stored_session(store)
    changed = await appended(
        store, session.session_id, [user_message("see", [SHOWN, SHOWN])], images=[SHOWN, SHOWN]
    )
    assert dict(changed.messages[0])["images"] == [SHOWN.reference, SHOWN.reference]
    assert await store.load(session.session_id) == changed
    assert await store.load_image(SHOWN.sha256) == SHOWN.data


async def test_image_is_stored_with_the_tail_that_names_it(store: SessionStore) -> None:
    session = await stored_session(store)
    await store.write(session.session_id, Change([user("look"), assistant("at what?")]))
    changed = await appended(
        store, session.session_id, [user_message("this", [SHOWN])], start=1, images=[SHOWN]
    )
    assert dict(changed.messages[-1])["images"] == [SHOWN.reference]
    assert await store.load_image(SHOWN.sha256) == SHOWN.data


@cases(
    "name", ["", "..", "../" + "0" * 61, "0" * 64, "0" * 63, SHOWN.sha256.upper(), "\u0660" * 64]
)
async def test_unknown_image_is_not_found(store: SessionStore, name: str) -> None:
    with pytest.raises(BlobNotFound):
        await store.load_image(name)


async def test_image_is_deleted_with_the_last_message_naming_it(store: SessionStore) -> None:
    one, two = await session_with_image(store), await session_with_image(store)
    await store.write(one.session_id, Change([user("instead")], start=0))
    assert await store.load_image(SHOWN.sha256) == SHOWN.data
    await store.write(two.session_id, Change([user_message("again", [SHOWN])], images=[SHOWN]))
    await store.write(two.session_id, Change([], start=1))
    assert await store.load_image(SHOWN.sha256) == SHOWN.data
    await store.delete(two.session_id)
    with pytest.raises(BlobNotFound):
        await store.load_image(SHOWN.sha256)


async def test_copy_of_a_session_keeps_the_image(store: SessionStore) -> None:
    session = await session_with_image(store)
    copy = await store.create(session)
    await store.delete(session.session_id)
    assert await store.load_image(SHOWN.sha256) == SHOWN.data
    await store.delete(copy.session_id)
    with pytest.raises(BlobNotFound):
        await store.load_image(SHOWN.sha256)


async def test_put_session_stores_its_images(store: SessionStore) -> None:
    session = new_session()
    session.messages.append(user_message("see", [SHOWN]))
    for _ in range(2):  # for a new session, and instead of an existing one
        put = await store.put(session, images=[SHOWN])
        assert dict(put.messages[0])["images"] == [SHOWN.reference]
        assert await store.load(session.session_id) == put
        assert await store.load_image(SHOWN.sha256) == SHOWN.data


async def test_image_of_a_running_turn_is_not_deleted(store: SessionStore) -> None:
    session, other = await stored_session(store, user("a")), await session_with_image(store)
    async with store.hold(session.session_id, run_id="r"):
        await store.write(session.session_id, Change([user("b")]))
        await store.write(
            session.session_id, Change([user_message("see", [SHOWN])], images=[SHOWN])
        )
        await store.delete(other.session_id)
        await store.patch(session.session_id, {"title": "t"})
        assert await store.load_image(SHOWN.sha256) == SHOWN.data
    assert await store.load_image(SHOWN.sha256) == SHOWN.data


async def test_image_that_no_message_names_is_deleted_with_others(store: SessionStore) -> None:
    """A failed regeneration has such images."""
    session = await session_with_image(store)
    await store.write(session.session_id, Change([], images=[OTHER]))
    await store.delete(session.session_id)
    with pytest.raises(BlobNotFound):
        await store.load_image(OTHER.sha256)


async def test_image_of_a_refused_change_is_not_required(store: SessionStore) -> None:
    session = await session_with_image(store)
    with pytest.raises(SessionConflict):
        await store.write(
            session.session_id,
            Change([user_message("late", [OTHER])], revision="0", images=[OTHER]),
        )
    with pytest.raises(BlobNotFound):
        await store.load_image(OTHER.sha256)


async def session_with_image(store: SessionStore) -> ChatSession:
    """Store a session with a message that has an image."""
    session = await stored_session(store)
    return await appended(store, session.session_id, [user_message("see", [SHOWN])], images=[SHOWN])


async def test_new_session_stores_images_of_its_messages(store: SessionStore) -> None:
    session = new_session()
    session.messages.append(user_message("see", [SHOWN]))
    created = await store.create(session, images=[SHOWN])
    assert dict(created.messages[0])["images"] == [SHOWN.reference]
    assert await store.load_image(SHOWN.sha256) == SHOWN.data
    await store.delete(created.session_id)
    with pytest.raises(BlobNotFound):
        await store.load_image(SHOWN.sha256)


async def test_file_is_stored_with_its_text_and_deleted_with_its_message(
    store: SessionStore,
) -> None:
    session = await stored_session(store)
    message = user_message("read", attachments=[PDF, NOTES])
    blobs = [*PDF.blobs, *NOTES.blobs]

    changed = await appended(store, session.session_id, [message], images=blobs)

    assert dict(changed.messages[0])["attachments"] == [PDF.reference, NOTES.reference]
    assert await store.load(session.session_id) == changed
    for blob in blobs:
        assert await store.load_image(blob.sha256) == blob.data
    await store.delete(session.session_id)
    for blob in blobs:
        with pytest.raises(BlobNotFound):
            await store.load_image(blob.sha256)
