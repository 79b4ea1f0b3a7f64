"""Imports of the exports of other programs.

The files in `exports` are written by hand after public descriptions of the formats.
"""

import codecs
import copy
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.images import PNG, base64_image, sha256_of
from tests.support.keys import headers, write_keys
from tests.support.server import RunningServer

EXPORTS = Path(__file__).parent / "exports"
JSON = "application/json"
ZIP = "application/zip"
DATA_URL = f"data:image/png;base64,{base64_image(PNG)}"
Change = Callable[[Any], Any]


def load(name: str) -> Any:
    return orjson.loads((EXPORTS / f"{name}.json").read_bytes())


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def chatgpt_zip() -> bytes:
    """Return a ZIP file like that of ChatGPT, with the images of a conversation."""
    files = {path.name: path.read_bytes() for path in (EXPORTS / "chatgpt").glob("*.png")}
    files["conversations.json"] = (EXPORTS / "chatgpt/images.json").read_bytes()
    files["user.json"] = b"{}"
    return zipped(files)


def send(api: Api, content: bytes, media_type: str = JSON) -> Any:
    return api.http.post("/sessions/import", content=content, headers={"Content-Type": media_type})


@dataclass
class Expected:
    """What becomes of the first conversation of a file.

    A message is its role, its content and, if it has these, its thinking and its model.
    """

    title: str | None
    created_at: str
    messages: list[tuple[str, ...]]
    left_out: dict[str, int] = field(default_factory=dict)
    missing_model: str | None = None
    images: int = 0


EXPECTED = {
    "chatgpt/branches": Expected(
        "Sourdough starter",
        "2024-12-31T23:59:59.000000+00:00",
        [
            ("user", "How often do I feed a rye starter?"),
            ("assistant", "Once a day at 24 °C.", "o3"),
            ("user", "And in the fridge?"),
            ("assistant", "Once a week.", "o3"),
        ],
        {"custom instructions and memories": 1},
        "o3",
    ),
    "chatgpt/reasoning": Expected(
        "Sum of squares",
        "2025-01-01T00:00:00.000000+00:00",
        [
            ("user", "What is the sum of the first ten squares?"),
            (
                "assistant",
                "```python\nprint(sum(n * n for n in range(1, 11)))\n```\n\nThe sum is 385.",
                "Choosing a method\nThe formula is n(n+1)(2n+1)/6.\n\nChecking\nI run the code as "
                "well.",
                "o4-mini",
            ),
        ],
        {"custom instructions and memories": 1, "tool calls and their results": 3},
        "o4-mini",
    ),
    "chatgpt/images": Expected(
        "Colour of a tile",
        "2025-01-01T00:00:00.000000+00:00",
        [
            ("user", "Which colour is this tile?"),
            ("assistant", "It is red.", "gpt-4o"),
            ("user", "Draw a green one."),
            ("assistant", "Here is a green tile.", "gpt-4o"),
            ("user", "And this?"),
        ],
        {"files": 1, "contents of other kinds": 1, "tool calls and their results": 1, "images": 1},
        "gpt-4o",
        images=2,
    ),
    "claude/plain": Expected(
        "Planting bulbs",
        "2025-03-01T09:00:00.123456+00:00",
        [
            ("user", "When do I plant tulips?"),
            ("assistant", "In autumn.\n\nChoose a sunny place."),
            ("user", "How deep?"),
            ("assistant", "Fifteen centimetres."),
        ],
    ),
    "claude/tools": Expected(
        "Tide table",
        "2025-04-01T08:00:00.000000+00:00",
        [
            ("user", "Write a function that converts feet to metres."),
            (
                "assistant",
                "Here is the function:\n\n```python\ndef to_metres(feet):\n    return feet * 0.3048"
                "\n```\n\nIt takes a number.",
                "One foot is 0.3048 m.",
            ),
        ],
        {"tool calls and their results": 1},
    ),
    "claude/branches": Expected(
        "Notes on birds",
        "2025-05-01T10:00:00.000000+00:00",
        [
            ("user", "Summarize my notes.\n\nnotes.txt:\n````\nRobin: 3\nWren: ```1```\n````"),
            ("assistant", "Three robins and one wren."),
            ("user", "Which is rarer?"),
            ("assistant", "The wren."),
        ],
        {"files": 1},
        "claude-sonnet-4-5",
    ),
    "librechat/tree": Expected(
        "Names for a boat",
        "2025-01-05T12:00:00.000000+00:00",
        [
            ("system", "Answer with one word."),
            ("user", "Name a boat."),
            ("assistant", "Petrel.", "gpt-4-turbo"),
            ("user", "Why?"),
            ("assistant", "Seabird.", "gpt-4-turbo"),
        ],
        {},
        "gpt-4-turbo",
    ),
    "librechat/list": Expected(
        "Prime numbers",
        "2025-02-01T12:00:00.000000+00:00",
        [
            ("user", "Is 91 prime?"),
            (
                "assistant",
                "No: 7 * 13.\n\n```python\n91 % 7\n```",
                "91 = 7 * 13.",
                "deepseek-reasoner",
            ),
        ],
        {"tool calls and their results": 1},
        "deepseek-reasoner",
    ),
    "librechat/images": Expected(
        "What is on these pictures?",
        "2025-03-01T12:00:00.000000+00:00",
        [
            ("user", "What is on these pictures?"),
            ("assistant", "A blue pixel. I draw another.", "llava"),
        ],
        {"images": 2, "files": 1},
        "llava",
    ),
    "open_webui/reasoning": Expected(
        "Weather at the lake",
        "2025-02-19T21:20:00.000000+00:00",
        [
            ("system", "Be brief."),
            ("user", "Is it raining at the lake?"),
            ("assistant", "No, it is dry.", "I look it up.", "qwen3:8b"),
        ],
        {"tool calls and their results": 1},
        "qwen3:8b",
    ),
    "open_webui/branches": Expected(
        "Two models",
        "2025-02-19T21:20:00.000000+00:00",
        [
            ("user", "Name a tree."),
            ("assistant", "Birch.", "llama3.2:3b"),
            ("user", "Another."),
            ("assistant", "Ash.", "llama3.2:3b"),
        ],
        {},
        "llama3.2:3b",
    ),
    "open_webui/images": Expected(
        "A pixel",
        "2025-02-19T21:20:00.000000+00:00",
        [("user", "Which colour?"), ("assistant", "Yellow.", "It is bright.", "llava:7b")],
        {"files": 1, "images": 1},
        "llava:7b",
        images=1,
    ),
}


def shown(message: dict[str, Any]) -> tuple[str, ...]:
    parts = [message["role"], message["content"], message.get("thinking"), message.get("model")]
    return tuple(part for part in parts if part is not None)


@pytest.mark.parametrize("name", EXPECTED)
def test_export_becomes_a_session_that_goes_on(api: Api, name: str) -> None:
    expected = EXPECTED[name]
    if name == "chatgpt/images":
        imported = api.ok(send(api, chatgpt_zip(), ZIP), 201)
    else:
        imported = api.ok(send(api, (EXPORTS / f"{name}.json").read_bytes()), 201)
    session_id = imported["sessions"][0]["session_id"]
    session = api.session(session_id)
    assert (session["title"], session["created_at"]) == (expected.title, expected.created_at)
    assert [shown(message) for message in session["messages"]] == expected.messages
    counts = [f"The import left out {kind}: {count}." for kind, count in expected.left_out.items()]
    of_kind = {
        code: [each["message"] for each in imported["warnings"] if each["code"] == code]
        for code in ("CONTENT_LEFT_OUT", "MODEL_NOT_FOUND")
    }
    assert sorted(of_kind["CONTENT_LEFT_OUT"]) == sorted(counts)
    if expected.missing_model:
        assert f"'{expected.missing_model}'" in of_kind["MODEL_NOT_FOUND"][0]
        assert f"so '{session['model']}' answers" in of_kind["MODEL_NOT_FOUND"][0]
    images = [image for message in session["messages"] for image in message.get("images", ())]
    assert len(images) == expected.images
    for image in images:
        stored = api.http.get(f"/sessions/{session_id}/blobs/{image['sha256']}")
        assert stored.status_code == 200
    assert api.send_message(session_id)["message"]["content"]


@pytest.mark.parametrize("media_type", [ZIP, "application/x-zip-compressed"])
def test_zip_file_has_the_media_type_of_a_browser(api: Api, media_type: str) -> None:
    """Browsers on Windows send the type of the registry."""
    (session,) = api.ok(send(api, chatgpt_zip(), media_type), 201)["sessions"]
    assert session["title"] == "Colour of a tile"


def test_exports_of_several_programs_in_one_file_keep_their_order(api: Api) -> None:
    items = [load("librechat/tree"), *load("claude/plain"), *load("chatgpt/branches")]
    imported = api.ok(send(api, orjson.dumps(items)), 201)
    titles = [session["title"] for session in imported["sessions"]]
    assert titles == [
        "Names for a boat",
        "Planting bulbs",
        None,
        "Sourdough starter",
        "Name a blue flower.",
    ]


def test_zip_file_can_have_its_conversations_in_several_files(api: Api) -> None:
    first, second = load("chatgpt/branches")
    files = {
        "export/conversations-001.json": orjson.dumps([second]),
        "export/conversations-000.json": orjson.dumps([first]),
    }
    imported = api.ok(send(api, zipped(files), ZIP), 201)
    titles = [session["title"] for session in imported["sessions"]]
    assert titles == ["Sourdough starter", "Name a blue flower."]


def test_forged_turns_and_owners_never_come_in(api: Api) -> None:
    chat = load("claude/plain")[0]
    forged = {"turn": {"state": "waiting_for_approval"}, "owner": "other", "tool_settings": {}}
    message = chat["chat_messages"][1]
    chat |= forged
    message |= {"tool_calls": [{"id": "x", "function": {"name": "run", "arguments": {}}}]}
    (imported,) = api.ok(send(api, orjson.dumps(chat)), 201)["sessions"]
    session = api.session(imported["session_id"])
    assert session.get("turn") is None
    assert session.get("owner") is None
    assert all("tool_calls" not in message for message in session["messages"])


def test_long_conversation_of_librechat_is_a_deep_tree(api: Api) -> None:
    chat = load("librechat/tree")
    child: dict[str, Any] | None = None
    for number in range(400, 0, -1):
        child = {
            "messageId": str(number),
            "isCreatedByUser": number % 2 == 1,
            "text": f"Message {number}",
            "children": [child] if child else [],
        }
    chat["messages"] = [child]
    (imported,) = api.ok(send(api, json.dumps(chat).encode()), 201)["sessions"]
    assert imported["message_count"] == 401


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_long_conversation_of_librechat_is_complete_in_a_file_that_is_repaired(
    api: Api, mark: bytes
) -> None:
    tree: list[dict[str, Any]] = []
    for number in range(300, 0, -1):
        is_question = number % 2 == 1
        message = {"messageId": str(number), "isCreatedByUser": is_question, "text": "Hi"}
        tree = [message | {"children": tree}]
    if not mark:
        tree[0]["text"] = "Hi \ud83d"
    chat = {"conversationId": "c", "messagesTree": tree}
    for content in (chat, [chat]):
        (imported,) = api.ok(send(api, mark + json.dumps(content).encode()), 201)["sessions"]
        assert imported["message_count"] == 300


def test_successive_answers_become_one_message(api: Api) -> None:
    chat = load("claude/plain")[0]
    text = [{"type": "text", "text": "x" * 100}]
    chat["chat_messages"] = [
        {"uuid": str(number), "sender": "assistant", "content": text} for number in range(1_000)
    ]
    (imported,) = api.ok(send(api, orjson.dumps(chat)), 201)["sessions"]
    assert imported["message_count"] == 1


def test_import_without_ollama_keeps_the_name_of_the_model(tmp_path: Path) -> None:
    with RunningServer(tmp_path, "http://127.0.0.1:9") as server:
        api = server.api()
        imported = api.ok(send(api, orjson.dumps(load("librechat/tree"))), 201)
        assert imported["sessions"][0]["model"] == "gpt-4-turbo"
        assert "Ollama lists no models." in imported["warnings"][-1]["message"]


def test_sessions_belong_to_the_key_that_imports(tmp_path: Path, stub: StubServer) -> None:
    keys = write_keys(tmp_path / "keys.yaml", ann={}, bob={})
    with RunningServer(tmp_path, stub.url, api_keys_file=str(keys)) as server:
        ann = server.api(headers=headers("ann"))
        bob = server.api(headers=headers("bob"))
        imported = ann.ok(send(ann, chatgpt_zip(), ZIP), 201)["sessions"]
        assert ann.ok(ann.http.get("/sessions"))["sessions"] == imported
        assert bob.ok(bob.http.get("/sessions"))["sessions"] == []
        path = f"/sessions/{imported[0]['session_id']}"
        assert error_of(bob.http.get(path)) == (404, "SESSION_NOT_FOUND")
        assert ann.ok(ann.http.get(path))["messages"][0]["images"]


def with_parts(program: str, parts: list[dict[str, Any]]) -> Any:
    """Return an export with one message of these content parts."""
    if program == "LibreChat":
        message = {"messageId": "m", "isCreatedByUser": True, "content": parts}
        return {"conversationId": "c", "messages": [message]}
    if program == "Claude":
        return {"chat_messages": [{"uuid": "m", "sender": "human", "content": parts}]}
    messages = {"m": {"role": "user", "content": parts}}
    return {"chat": {"history": {"currentId": "m", "messages": messages}}}


def part_with(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def block_with(data: object) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


REMOTE = "https://images.example/a.png"


@cases(
    ("program", "contained", "others", "left_out"),
    [
        (
            "LibreChat",
            part_with(DATA_URL),
            [part_with(REMOTE), {"type": "image_url", "image_url": None}],
            {"images": 2},
        ),
        (
            "Open WebUI",
            part_with(DATA_URL),
            [part_with(REMOTE), {"type": "audio"}],
            {"images": 1, "contents of other kinds": 1},
        ),
        (
            "Claude",
            block_with(base64_image(PNG)),
            [block_with("?"), {"type": "image", "source": 5}, {"type": "audio"}],
            {"images": 2, "contents of other kinds": 1},
        ),
    ],
)
def test_images_in_content_are_imported_or_counted(
    api: Api,
    program: str,
    contained: dict[str, Any],
    others: list[dict[str, Any]],
    left_out: dict[str, int],
) -> None:
    text = {"type": "text", "text": "Which colour?"}
    export = with_parts(program, [text, contained, *others])
    imported = api.ok(send(api, json.dumps(export).encode()), 201)
    (message,) = api.messages(imported["sessions"][0]["session_id"])
    assert message["content"] == "Which colour?"
    assert [image["sha256"] for image in message["images"]] == [sha256_of(PNG)]
    counts = [f"The import left out {kind}: {count}." for kind, count in left_out.items()]
    assert sorted(warning["message"] for warning in imported["warnings"]) == sorted(counts)


@cases(
    ("name", "fields", "expected"),
    [
        ("chatgpt/branches", {"is_archived": True, "is_starred": None}, ([], False, True)),
        ("chatgpt/branches", {"is_archived": False, "is_starred": True}, ([], True, False)),
        ("claude/plain", {"is_starred": True}, ([], True, False)),
        (
            "open_webui/branches",
            {"pinned": True, "archived": True, "meta": {"tags": [" home ", "to do", "home"]}},
            (["home", "to do"], True, True),
        ),
        (
            "open_webui/branches",
            {"pinned": 1, "archived": "yes", "meta": {"tags": [5, "", "a\0", "a" * 101, "b"]}},
            (["b"], False, False),
        ),
        (
            "open_webui/branches",
            {"meta": {"tags": ["旅\u3000行", "to\u00a0do", "👨\u200d👩\u200d👧", "a\u0085b"]}},
            (["旅\u3000行", "to\u00a0do", "👨\u200d👩\u200d👧"], False, False),
        ),
        ("open_webui/branches", {"meta": {"tags": "home"}}, ([], False, False)),
        ("open_webui/branches", {"meta": None}, ([], False, False)),
        ("open_webui/branches", {"meta": {"tags": [*map(str, range(60))]}}, (None, False, False)),
    ],
)
def test_tags_pins_and_the_archive_are_imported(
    api: Api,
    name: str,
    fields: dict[str, Any],
    expected: tuple[list[str] | None, bool, bool],
) -> None:
    export = first(load(name)) | fields
    (session, *_) = api.ok(send(api, json.dumps([export]).encode()), 201)["sessions"]
    tags, pinned, archived = expected
    assert session["tags"] == ([*map(str, range(50))] if tags is None else tags)
    assert (session["pinned"], session["archived"]) == (pinned, archived)


@cases(
    ("text", "is_user", "expected"),
    [
        (":::thinking\nI add.\n\nTwice.\n:::\n\nFour.", False, ("Four.", "I add.\n\nTwice.")),
        ("\n:::thinking\nI add.\n:::", False, ("", "I add.")),
        (":::thinking\nI add. Four.", False, (":::thinking\nI add. Four.", None)),
        ("Write :::thinking\nx\n:::", False, ("Write :::thinking\nx\n:::", None)),
        (":::thinking\nx\n:::\nWhy?", True, (":::thinking\nx\n:::\nWhy?", None)),
    ],
)
def test_librechat_can_have_the_thinking_in_the_text(
    api: Api, text: str, is_user: bool, expected: tuple[str, str | None]
) -> None:
    message = {"messageId": "m", "isCreatedByUser": is_user, "text": text}
    export = {"conversationId": "c", "messages": [message]}
    imported = api.ok(send(api, json.dumps(export).encode()), 201)
    (stored,) = api.messages(imported["sessions"][0]["session_id"])
    assert (stored["content"], stored.get("thinking")) == expected


def test_open_webui_can_have_code_that_it_ran_in_the_text(api: Api) -> None:
    ran = (
        '<details type="code_interpreter" done="true" output="&quot;1&quot;">\n'
        "<summary>Analyzed</summary>\n```python\nprint(1)\n```\n</details>\nIt prints 1."
    )
    messages = {"m": {"role": "assistant", "content": ran}}
    export = [{"title": "Code", "chat": {"history": {"messages": messages, "currentId": "m"}}}]
    imported = api.ok(send(api, json.dumps(export).encode()), 201)
    (stored,) = api.messages(imported["sessions"][0]["session_id"])
    assert stored["content"] == "```python\nprint(1)\n```\n\nIt prints 1."
    (warning,) = imported["warnings"]
    assert warning["message"] == "The import left out tool calls and their results: 1."


def test_question_of_claude_can_have_its_text_beside_unknown_blocks(api: Api) -> None:
    spoken = {"type": "voice_note", "text": "spoken"}
    question = {"uuid": "a", "sender": "human", "text": "Why?", "content": [spoken]}
    export = [{"uuid": "c", "name": "Voice", "chat_messages": [question]}]
    imported = api.ok(send(api, json.dumps(export).encode()), 201)
    (stored,) = api.messages(imported["sessions"][0]["session_id"])
    assert stored["content"] == "Why?"


def block_of_claude(uuid: str, parent: str | None, **block: Any) -> dict[str, Any]:
    """Return a message of Claude with one block. The IDs of users' messages begin with ``u``."""
    sender = "human" if uuid.startswith("u") else "assistant"
    return {
        "uuid": uuid,
        "sender": sender,
        "content": [block],
        "parent_message_uuid": parent,
    }


@cases("is_continued", [False, True])
def test_branch_that_continues_an_answer_is_left_out(api: Api, is_continued: bool) -> None:
    """As a version, it would be a second answer in a row."""
    messages = [
        block_of_claude("u1", None, type="text", text="Question"),
        block_of_claude("a1", "u1", type="text", text="Part one"),
        block_of_claude("b1", "a1", type="text", text="Old second part"),
        block_of_claude("ub", "b1", type="text", text="Old question"),
        block_of_claude("b2", "ub", type="text", text="Old answer"),
        block_of_claude("b3", "ub", type="text", text="Other answer"),
        block_of_claude("a2", "a1", type="text", text="New second part"),
    ]
    if is_continued:
        messages.append(block_of_claude("u2", "a2", type="text", text="Next question"))
        messages.append(block_of_claude("a3", "u2", type="text", text="Next answer"))
    imported = api.ok(send(api, orjson.dumps([{"chat_messages": messages}])), 201)
    session = api.session(imported["sessions"][0]["session_id"])
    texts = [message["content"] for message in session["messages"]]
    assert texts[:2] == ["Question", "Part one\n\nNew second part"]
    assert session["versions"] == {}
    (warning,) = imported["warnings"]
    assert warning["message"] == "The import left out versions: 2."


def test_tool_call_of_another_branch_is_counted(api: Api) -> None:
    messages = [
        block_of_claude("u1", None, type="text", text="Question"),
        block_of_claude("t1", "u1", type="tool_use", name="search", input={}),
        block_of_claude("a1", "u1", type="text", text="Answer"),
    ]
    imported = api.ok(send(api, orjson.dumps([{"chat_messages": messages}])), 201)
    (warning,) = imported["warnings"]
    assert warning["message"] == "The import left out tool calls and their results: 1."


# Damaged exports


def first(items: Any) -> Any:
    return items[0] if isinstance(items, list) else items


def at(*path: str | int, to: Any) -> Change:
    """Return a change that sets a value of the first conversation."""

    def change(items: Any) -> Any:
        target = first(items)
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = to
        return items

    return change


def without(name: str) -> Change:
    def change(items: Any) -> Any:
        del first(items)[name]
        return items

    return change


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def repeated(name: str) -> Change:
    """Return a change that adds the first message a second time."""

    def change(items: Any) -> Any:
        first(items)[name].append(first(items)[name][0])
        return items

    return change


COMMON: dict[str, tuple[Change, str]] = {
    "a second item that is a number": (lambda items: [first(items), 5], "Item 1"),
    "a second item without fields": (lambda items: [first(items), {}], "Item 1"),
    "an item in a list": (lambda items: [[first(items)]], "Item 0"),
    "nested too deeply": (at("extra", to=nested(500)), "Item 0"),
    "no conversations": (lambda _: [], "no sessions"),
}
DAMAGES: dict[str, dict[str, tuple[Change, str]]] = {
    "chatgpt/branches": COMMON
    | {
        "no mapping": (without("mapping"), "mapping: Field required"),
        "mapping is null": (at("mapping", to=None), "mapping"),
        "mapping is a list": (at("mapping", to=[]), "mapping"),
        "mapping is empty": (at("mapping", to={}), "no nodes"),
        "node is a number": (at("mapping", "a4", to=4), "mapping.a4"),
        "loop": (at("mapping", "root", "parent", to="a4"), "its own ancestor"),
        "own parent": (at("mapping", "a4", "parent", to="a4"), "'a4' is its own ancestor"),
        "missing parent": (at("mapping", "a4", "parent", to="gone"), "no node 'gone'"),
        "missing current node": (at("current_node", to="gone"), "no node 'gone'"),
        "current node is a list": (at("current_node", to=[]), "current_node"),
        "unknown author": (at("mapping", "a4", "message", "author", "role", to="king"), "role"),
        "no author": (at("mapping", "a4", "message", "author", to=None), "author"),
        "content is null": (at("mapping", "a4", "message", "content", to=None), "content"),
        "content is a text": (at("mapping", "a4", "message", "content", to="Hi"), "content"),
        "no content type": (at("mapping", "a4", "message", "content", to={}), "content_type"),
        "parts are a text": (
            at("mapping", "a4", "message", "content", "parts", to="Hi"),
            "parts",
        ),
        "part is a number": (
            at("mapping", "a4", "message", "content", "parts", to=[5]),
            "parts",
        ),
        "huge time": (at("mapping", "a4", "message", "create_time", to=1e300), "not a Unix time"),
        "huge integer": (at("update_time", to=10**400), "not a Unix time"),
        "time is a text": (at("create_time", to="yesterday"), "create_time"),
        "time is an object": (at("create_time", to={}), "create_time: Input should be a number"),
        "title is a number": (at("title", to=5), "title"),
    },
    "claude/branches": COMMON
    | {
        "messages are null": (at("chat_messages", to=None), "chat_messages"),
        "messages are an object": (at("chat_messages", to={}), "chat_messages"),
        "message is null": (at("chat_messages", 1, to=None), "chat_messages.1"),
        "no ID": (at("chat_messages", 1, to={"sender": "human"}), "chat_messages.1.uuid"),
        "duplicate ID": (repeated("chat_messages"), "'b1' occurs twice"),
        "unknown author": (at("chat_messages", 1, "sender", to="king"), "sender"),
        "no author": (at("chat_messages", 1, "sender", to=None), "sender"),
        "loop": (at("chat_messages", 0, "parent_message_uuid", to="b6"), "its own ancestor"),
        "own parent": (at("chat_messages", 0, "parent_message_uuid", to="b1"), "own ancestor"),
        "missing current message": (
            at("current_leaf_message_uuid", to="gone"),
            "no message 'gone'",
        ),
        "content is a text": (at("chat_messages", 1, "content", to="Hi"), "content"),
        "block is null": (at("chat_messages", 1, "content", to=[None]), "content.0"),
        "block without type": (at("chat_messages", 1, "content", to=[{}]), "content.0.type"),
        "text is a number": (
            at("chat_messages", 1, "content", 0, "text", to=5),
            "content.0.text",
        ),
        "attachments are a text": (at("chat_messages", 0, "attachments", to="a"), "attachments"),
        "file is a number": (at("chat_messages", 0, "files", to=[5]), "files"),
        "huge time": (
            at("chat_messages", 0, "created_at", to="99999-01-01T00:00:00Z"),
            "not an ISO 8601 time",
        ),
        "time is a number": (at("created_at", to=1e300), "created_at"),
        "time is an object": (at("created_at", to={}), "created_at: Input should be a valid"),
        "name is a list": (at("name", to=[]), "name"),
    },
    "librechat/tree": COMMON
    | {
        "no messages": (without("messages"), "messages: Field required"),
        "messages are null": (at("messages", to=None), "messages"),
        "messages are a text": (at("messages", to="Hi"), "messages"),
        "message is a number": (at("messages", to=[5]), "messages.0"),
        "child is null": (at("messages", 0, "children", to=[None]), "messages.1"),
        "no ID": (at("messages", 0, "messageId", to=None), "messageId"),
        "duplicate ID": (repeated("messages"), "'l1' occurs twice"),
        "unknown author": (at("messages", 0, "isCreatedByUser", to="king"), "isCreatedByUser"),
        "no author": (at("messages", 0, "isCreatedByUser", to=None), "isCreatedByUser"),
        "loop": (at("messages", 0, "parentMessageId", to="l6"), "its own ancestor"),
        "own parent": (at("messages", 0, "parentMessageId", to="l1"), "its own ancestor"),
        "text is a list": (at("messages", 0, "text", to=[]), "text"),
        "content is a text": (at("messages", 0, "content", to="Hi"), "content"),
        "part is null": (at("messages", 0, "content", to=[None]), "content.0"),
        "part without type": (at("messages", 0, "content", to=[{}]), "content.0.type"),
        "files are a text": (at("messages", 0, "files", to="a"), "files"),
        "huge time": (at("messages", 0, "createdAt", to="+999999-01-01"), "ISO 8601 time"),
        "time is a number": (at("messages", 0, "createdAt", to=1e300), "createdAt"),
        "options are a list": (at("options", to=[]), "options"),
        "conversation ID is null": (at("conversationId", to=None), "conversationId"),
    },
    "open_webui/branches": COMMON
    | {
        "no history": (at("chat", to={}), "chat.history"),
        "chat is null": (at("chat", to=None), "chat"),
        "chat is a list": (at("chat", to=[]), "chat"),
        "history is null": (at("chat", "history", to=None), "chat.history"),
        "no messages": (at("chat", "history", to={}), "chat.history.messages"),
        "messages are a list": (at("chat", "history", "messages", to=[]), "history.messages"),
        "message is a number": (at("chat", "history", "messages", "x-q", to=5), "messages.x-q"),
        "current ID is a list": (at("chat", "history", "currentId", to=[]), "currentId"),
        "unknown author": (
            at("chat", "history", "messages", "x-q", "role", to="king"),
            "role",
        ),
        "content is a number": (
            at("chat", "history", "messages", "x-q", "content", to=5),
            "content",
        ),
        "parent is a number": (
            at("chat", "history", "messages", "x-q", "parentId", to=5),
            "parentId",
        ),
        "files are a text": (at("chat", "history", "messages", "x-q", "files", to="a"), "files"),
        "huge time": (
            at("chat", "history", "messages", "x-q", "timestamp", to=1e300),
            "not a Unix time",
        ),
        "time is a text": (at("created_at", to="yesterday"), "created_at"),
        "title is a number": (at("title", to=5), "title"),
    },
}


def files_of(data: bytes) -> dict[str, tuple[bytes, str, str]]:
    """Return damaged files with an export: the bytes, the media type and a part of the error."""
    good = zipped({"conversations.json": data})
    encrypted = bytearray(good)
    encrypted[6] |= 1  # the flag in the local header
    encrypted[good.index(b"PK\x01\x02") + 8] |= 1
    return {
        "cut JSON": (data[: len(data) // 2], JSON, "not valid JSON"),
        "UTF-16": (data.decode().encode("utf-16"), JSON, "UTF-8"),
        "text": (b"Exported conversations", JSON, "not valid JSON"),
        "empty": (b"", JSON, "not valid JSON"),
        "deep": (b"[" * 100_000, JSON, "not valid JSON"),
        "cut ZIP": (good[:-30], ZIP, "ZIP file cannot be read"),
        "ZIP with a damaged member": (good.replace(good[60:70], b"\xff" * 10), ZIP, "ZIP file"),
        "encrypted ZIP": (bytes(encrypted), ZIP, "ZIP file cannot be read"),
        "ZIP without conversations": (zipped({"user.json": data}), ZIP, "no conversations.json"),
        "ZIP with UTF-16": (
            zipped({"conversations.json": data.decode().encode("utf-16")}),
            ZIP,
            "'conversations.json' in the ZIP file",
        ),
        "ZIP bomb": (zipped({"conversations.json": b" " * 33_600_000}), ZIP, "unpacks to more"),
    }


def assert_refused(api: Api, content: bytes, media_type: str, part: str, case: str) -> None:
    before = api.http.get("/sessions?limit=1").headers["X-Total-Count"]
    response = send(api, content, media_type)
    assert error_of(response) in [(422, "VALIDATION_ERROR"), (413, "BODY_TOO_LARGE")], case
    message = response.json()["error"]["message"]
    assert part in message, f"{case}: {message}"
    assert len(message) < 400, f"{case}: {message}"
    assert api.http.get("/sessions?limit=1").headers["X-Total-Count"] == before, case


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_conversation_is_named_and_nothing_is_stored(api: Api, name: str) -> None:
    assert len(DAMAGES[name]) >= 20
    for case, (change, part) in DAMAGES[name].items():
        damaged = change(copy.deepcopy(load(name)))
        assert_refused(api, json.dumps(damaged).encode(), JSON, part, case)


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_file_is_refused_and_nothing_is_stored(api: Api, name: str) -> None:
    data = (EXPORTS / f"{name}.json").read_bytes()
    for case, (content, media_type, part) in files_of(data).items():
        assert_refused(api, content, media_type, part, case)
