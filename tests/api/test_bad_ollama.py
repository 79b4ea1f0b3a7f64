"""Ollama that is down or misbehaves: the specified error, no lost messages, and a working next
turn.
"""

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Cut, Failure, Part, Reply, Text
from tests.support.api import Api, error_of, text_of, types_of
from tests.support.cases import cases
from tests.support.raw_ollama import RawOllama, line, stream_head, whole
from tests.support.server import RunningServer

INTERNAL = re.compile(r"[{}<>]|\w+Error\b|aiohttp|payload|map\[|llama-server", re.IGNORECASE)
"""Text of an HTTP library or of a model runner. Error messages do not contain it."""
PIECES = [f"piece {n} " for n in range(10)]


def sends(*data: bytes) -> Callable[[socket.socket], None]:
    """Return a chat handler that sends these bytes and closes the connection."""

    def chat(connection: socket.socket) -> None:
        for part in data:
            connection.sendall(part)

    return chat


MISBEHAVIOURS = {
    "answers 500": (
        sends(whole(b'{"error":"kaput"}', status="500 Internal Server Error")),
        "",
        "kaput",
    ),
    "answers 500 in HTML": (
        sends(whole(b"<h1>Bad Gateway</h1>", status="502 Bad Gateway", content_type="text/html")),
        "",
        "status 502",
    ),
    "answers 200 in HTML": (
        sends(whole(b"<h1>Hello</h1>\n", content_type="text/html")),
        "",
        "not JSON",
    ),
    "closes without an answer": (sends(), "", "connection to Ollama broke"),
    "ends after its head": (sends(stream_head()), "", "ended before it was done"),
    "ends in mid-line": (sends(stream_head(), line("Hi "), line("there")[:20]), "Hi ", "not JSON"),
    "ends without done": (
        sends(stream_head(), line("Hi "), line("there")),
        "Hi there",
        "before it was done",
    ),
    "sends an error of its model runner": (
        sends(
            stream_head(),
            line("Hi"),
            b'{"error":"llama-server chat error: map[code:500 message:kaput]"}\n',
        ),
        "Hi",
        "kaput",
    ),
    "answers 400 with JSON of its model runner": (
        sends(
            whole(
                b'{"error":"{\\"error\\":{\\"code\\":400,\\"message\\":\\"bad image\\"}}"}',
                status="400 Bad Request",
            )
        ),
        "",
        "bad image",
    ),
    "sends a number for a line": (sends(stream_head(), line("Hi"), b"42\n"), "Hi", "not JSON"),
    "sends an error object": (
        sends(stream_head(), line("Hi"), b'{"error":{"message":"odd"}}\n'),
        "Hi",
        "odd",
    ),
    "sends tool calls that are none": (
        sends(
            stream_head(), line("Hi"), b'{"message":{"content":"","tool_calls":5},"done":false}\n'
        ),
        "Hi",
        "tool call",
    ),
    "sends tool calls without a name": (
        sends(
            stream_head(), line("Hi"), b'{"message":{"tool_calls":[{"function":{}}]},"done":true}\n'
        ),
        "Hi",
        "tool call",
    ),
    "resets in mid-chunk": (
        sends(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"%x\r\n%s" % (len(line("Hi")) + 10, line("Hi")),
        ),
        "Hi",
        "connection to Ollama broke",
    ),
}


@pytest.fixture(scope="module")
def raw_ollama() -> Iterator[RawOllama]:
    with RawOllama(sends()) as ollama:
        yield ollama


@pytest.fixture(scope="module")
def raw_server(
    raw_ollama: RawOllama, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server in front of an Ollama whose chat handler each test sets."""
    data_dir = tmp_path_factory.mktemp("raw")
    with RunningServer(data_dir, raw_ollama.url, summarization_enabled=False) as server:
        yield server


@cases(("chat", "said", "reason"), MISBEHAVIOURS.values(), ids=MISBEHAVIOURS)
def test_stream_ends_with_error_and_keeps_partial_text(
    raw_server: RunningServer,
    raw_ollama: RawOllama,
    chat: Callable[[socket.socket], None],
    said: str,
    reason: str,
) -> None:
    raw_ollama.chat = chat
    api = raw_server.client
    session_id = imported(api, "raw")

    events = api.stream_message(session_id, "Hello!")

    assert types_of(events[-2:]) == ["error", "done"]
    assert events[-2].data["code"] == "OLLAMA_ERROR"
    assert reason in events[-2].data["message"]
    assert not INTERNAL.search(events[-2].data["message"])
    assert text_of(events) == said
    stored = [(m["role"], m["content"], m.get("interrupted")) for m in api.messages(session_id)]
    assert stored == [("user", "Hello!", None)] + ([("assistant", said, True)] if said else [])


IN_EACH_STATE = ("answers 500", "ends after its head", "ends in mid-line")
"""Misbehaviours before the answer, before its first token and after it."""


@cases(
    ("chat", "said", "reason"), [MISBEHAVIOURS[name] for name in IN_EACH_STATE], ids=IN_EACH_STATE
)
def test_collected_turn_gets_502(
    raw_server: RunningServer,
    raw_ollama: RawOllama,
    chat: Callable[[socket.socket], None],
    said: str,
    reason: str,
) -> None:
    raw_ollama.chat = chat
    api = raw_server.client
    session_id = api.create_session("raw")["session_id"]

    response = api.http.post(f"/chat/{session_id}", json={"message": "Hello!"})

    assert error_of(response) == (502, "OLLAMA_ERROR")
    assert reason in response.json()["error"]["message"]
    assert not INTERNAL.search(response.json()["error"]["message"])
    assert len(api.messages(session_id)) == (2 if said else 1)


IS_STORED = "The message is stored: send the request without `message` to get the answer."


@cases(
    ("chat", "advice"),
    [
        (
            sends(whole(b'{"error":"busy"}', status="429 Too Many Requests")),
            "Ollama is busy: busy. Try again in 2 seconds.",
        ),
        (
            sends(stream_head(), b"what?\x00\n"),
            "Ollama sent a line that is not JSON. Try again. If it fails again, see Ollama's log.",
        ),
        (MISBEHAVIOURS["ends in mid-line"][0], "Try again. If it fails again, see Ollama's log."),
        (MISBEHAVIOURS["answers 500"][0], "kaput"),
        (
            sends(whole(b'{"error":"model not found"}', status="404 Not Found")),
            "There is no chat model 'raw'. To install 'raw', run `ollama pull raw`.",
        ),
    ],
    ids=["busy", "not JSON", "in a line", "fails", "lacks the model"],
)
def test_message_of_a_failed_turn_is_not_sent_twice(
    raw_server: RunningServer,
    raw_ollama: RawOllama,
    chat: Callable[[socket.socket], None],
    advice: str,
) -> None:
    raw_ollama.chat = chat
    api = raw_server.client
    session_id = imported(api, "raw")
    collected = imported(api, "raw")
    streamed = api.stream_message(session_id, "Hello!")[-2].data["message"]
    response = api.http.post(f"/chat/{collected}", json={"message": "Hello!"})
    regenerated = api.http.post(f"/chat/{collected}").json()["error"]["message"]

    assert regenerated.endswith(advice)
    assert streamed == f"{regenerated.rstrip('.')}. {IS_STORED}"
    assert response.json()["error"]["message"] == streamed

    key = {"Idempotency-Key": "k"}
    keyed = api.http.post(f"/chat/{imported(api, 'raw')}", json={"message": "Hello!"}, headers=key)
    assert "with its Idempotency-Key" in keyed.json()["error"]["message"]

    raw_ollama.chat = sends(stream_head(), line("Hi!"), line("", done=True))
    for stored in (session_id, collected):
        api.send_message(stored)
        assert [m["content"] for m in api.messages(stored)] == ["Hello!", "Hi!"]


def test_error_of_a_request_with_its_conversation_has_no_advice_about_the_message(
    raw_server: RunningServer, raw_ollama: RawOllama
) -> None:
    raw_ollama.chat = sends(whole(b'{"error":"busy"}', status="429 Too Many Requests"))
    body = {"model": "raw", "messages": [{"role": "user", "content": "Hello!"}]}
    response = raw_server.client.http.post(f"{raw_server.url}/v1/chat/completions", json=body)
    assert response.json()["error"]["message"] == "Ollama is busy: busy. Try again in 2 seconds."


@pytest.fixture
def answered_session(raw_server: RunningServer, raw_ollama: RawOllama) -> str:
    """A session with one turn."""
    raw_ollama.chat = sends(stream_head(), line("Hi!"), line("", done=True))
    session_id = str(raw_server.client.create_session("raw")["session_id"])
    raw_server.client.send_message(session_id, "Hello!")
    return session_id


@cases(
    "message", [{"content": 5}, {"content": ["{}"]}, {"content": "{}", "tool_calls": 5}, 5], ids=str
)
def test_summary_with_odd_types_is_502(
    raw_server: RunningServer, raw_ollama: RawOllama, answered_session: str, message: object
) -> None:
    raw_ollama.chat = sends(stream_head(), orjson.dumps({"message": message, "done": True}) + b"\n")
    response = raw_server.client.http.post(f"/sessions/{answered_session}/summarize")
    assert error_of(response) == (502, "OLLAMA_ERROR")


ENDS: dict[str, list[Part]] = {
    "error": [Text(PIECES), Failure("kaput")],
    "cut": [Text(PIECES), Cut()],
    "early": [Failure("out of memory")],
}
"""Failing replies by the message that causes them."""


@pytest.fixture(scope="module")
def failing_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client of a server in front of a stub that sends `ENDS`."""

    def resolve(prompt: Prompt) -> Reply:
        return Reply(ENDS[prompt.user_text]) if prompt.user_text in ENDS else Reply.of("Fine.")

    data_dir = tmp_path_factory.mktemp("failing")
    with StubServer(speed=0, resolve=resolve) as stub, RunningServer(data_dir, stub.url) as server:
        yield server.client


@cases("end", ["error", "cut"])
def test_text_before_failure_is_stored_and_next_turn_works(failing_api: Api, end: str) -> None:
    session_id = failing_api.create_session("mochi")["session_id"]

    events = failing_api.stream_message(session_id, end)

    assert types_of(events) == ["content_delta"] * 10 + ["error", "done"]
    assert failing_api.messages(session_id)[-1]["content"] == "".join(PIECES)
    assert failing_api.send_message(session_id, "Go on")["message"]["content"] == "Fine."


def test_early_failure_has_message_of_ollama(failing_api: Api) -> None:
    session_id = failing_api.create_session("mochi")["session_id"]
    response = failing_api.http.post(f"/chat/{session_id}", json={"message": "early"})
    assert error_of(response) == (502, "OLLAMA_ERROR")
    assert response.json()["error"]["message"] == (
        f"Ollama failed (500): out of memory. {IS_STORED}"
    )
    assert response.json()["error"]["details"] == {"upstream_status": 500}


def imported(api: Api, model: str) -> str:
    """Import an empty session. The server does not look for its model."""
    file = {"metadata": {"model": model}, "messages": []}
    return str(
        api.ok(api.http.post("/sessions/import", json=file), 201)["sessions"][0]["session_id"]
    )


def test_message_is_stored_while_ollama_is_down(tmp_path: Path) -> None:
    with StubServer(speed=0) as stub:
        port = stub.port
    with RunningServer(tmp_path, f"http://127.0.0.1:{port}") as server:
        api = server.client
        session_id = imported(api, "mochi")
        assert api.ok(api.http.get("/health"))["ollama_connected"] is False
        events = api.stream_message(session_id, "Hello!")
        assert types_of(events) == ["error", "done"]
        assert events[0].data["code"] == "OLLAMA_UNREACHABLE"
        assert error_of(api.http.post(f"/chat/{session_id}")) == (502, "OLLAMA_UNREACHABLE")
        assert error_of(api.http.get("/models")) == (502, "OLLAMA_UNREACHABLE")
        assert error_of(api.http.post("/sessions", json={"model": "mochi"})) == (
            502,
            "OLLAMA_UNREACHABLE",
        )
        assert [m["content"] for m in api.messages(session_id)] == ["Hello!"]

        with StubServer(port=port, speed=0):
            assert api.send_message(session_id)["message"]["content"].endswith("Hello!")
            assert [m["role"] for m in api.messages(session_id)] == ["user", "assistant"]


def test_silent_ollama_ends_turn_after_stall_timeout(tmp_path: Path) -> None:
    def hang(connection: socket.socket) -> None:
        connection.sendall(stream_head() + line("Hi"))
        connection.recv(1)  # returns when the server gives up

    with (
        RawOllama(hang) as ollama,
        RunningServer(tmp_path, ollama.url, ollama_stall_timeout_seconds=1) as server,
    ):
        api = server.api()
        session_id = api.create_session("raw")["session_id"]
        events = api.stream_message(session_id, "Hello!")
        assert types_of(events) == ["content_delta", "error", "done"]
        assert "sent no data" in events[1].data["message"]


def test_removed_model_is_404_and_stores_nothing(api: Api) -> None:
    session_id = imported(api, "removed")
    response = api.http.post(f"/chat/{session_id}/stream", json={"message": "Hello!"})
    assert error_of(response) == (404, "MODEL_NOT_FOUND")
    assert api.messages(session_id) == []


@cases(
    ("answer", "logged"),
    [
        (
            whole(b'{"error":"requires more memory"}', status="500 Oh"),
            "Ollama failed model=raw status=500: requires more memory",
        ),
        (
            stream_head()
            + line("My answer")
            + b'{"error":"parsing tool call: raw=\'My answer\', err=EOF"}\n',
            "Ollama failed model=raw status=-: parsing tool call: raw='***', err=EOF",
        ),
        (
            stream_head() + line("My answer")[:40],
            "Ollama failed model=raw status=-: Ollama sent a line that is not JSON.",
        ),
    ],
    ids=["before the answer", "in the answer", "in a line"],
)
def test_log_names_model_status_and_reason_but_no_conversation(
    raw_server: RunningServer,
    raw_ollama: RawOllama,
    caplog: pytest.LogCaptureFixture,
    answer: bytes,
    logged: str,
) -> None:
    caplog.clear()
    raw_ollama.chat = sends(answer)
    api = raw_server.client
    session_id = api.create_session("raw")["session_id"]
    api.http.post(f"/chat/{session_id}", json={"message": "My prompt"})
    assert [message for message in caplog.messages if message.startswith(logged)]
    assert "My prompt" not in caplog.text
    assert "My answer" not in caplog.text
