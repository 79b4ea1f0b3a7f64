"""Ollama fails once, in many ways: the turn ends with the documented error, the message is kept,
the next turn works.

`tests/api/test_bad_ollama.py` checks the error messages in more detail.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Failure, Reply, Text, ToolCalls
from tests.support.api import Api, Event, text_of, types_of
from tests.support.raw_ollama import RawOllama, line, stream_head, whole
from tests.support.server import RunningServer
from tests.support.tools import write_tools

Chat = Callable[[socket.socket], None]
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
)
STALL_SECONDS = 0.5
QUIET = {
    "summarization_enabled": False
}  # a summary of an earlier test would take the scripted failure
BUSY = {"server busy", "slow down"}
RETRY = "Too Many Requests\r\nRetry-After: 30"


def sends(*data: bytes) -> Chat:
    return lambda connection: connection.sendall(b"".join(data))


def stays_silent(connection: socket.socket) -> None:
    connection.recv(1)  # returns when the server closes the connection


def stalls(connection: socket.socket) -> None:
    connection.sendall(stream_head() + line("Hi "))
    connection.recv(1)


def resets(connection: socket.socket) -> None:
    piece = line("Hi ")
    connection.sendall(CHUNKED + b"%x\r\n%s\r\n" % (len(piece), piece))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def trickles(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in stream_head() + line("süß ", done=False) + line("🙂", done=True):
        connection.sendall(bytes([byte]))


BREAKS: dict[str, tuple[Chat, str, str]] = {
    "503": (
        sends(whole(b'{"error":"server busy"}', status="503 Service Unavailable")),
        "",
        "server busy",
    ),
    "429 with a header": (
        sends(whole(b'{"error":"slow down"}', status=f"429 {RETRY}")),
        "",
        "slow down",
    ),
    "500 without a body": (sends(whole(b"", status="500 Internal Server Error")), "", "status 500"),
    "an error of unknown form": (
        sends(whole(b'{"error":{"code":7}}', status="500 Oh")),
        "",
        "no message",
    ),
    "no HTTP at all": (sends(b"\x00\x01\x02 what?\r\n\r\n"), "", "connection to Ollama broke"),
    "silence before the first byte": (stays_silent, "", "sent no data before the timeout"),
    "silence in the middle": (stalls, "Hi ", "sent no data before the timeout"),
    "a reset": (resets, "Hi ", "connection to Ollama broke"),
    "a line without end": (
        sends(stream_head(), line("Hi "), b"x" * (9 * 1024 * 1024)),
        "Hi ",
        "a line of more than",
    ),
    "a list for a line": (sends(stream_head(), line("Hi "), b"[1]\n"), "Hi ", "not JSON"),
    "bytes that are no UTF-8": (
        sends(stream_head(), line("Hi "), b'{"message":"\xff"}\n'),
        "Hi ",
        "not JSON",
    ),
    "an error after text": (
        sends(stream_head(), line("Hi "), b'{"error":"CUDA error"}\n'),
        "Hi ",
        "CUDA error",
    ),
}
ODDITIES: dict[str, tuple[Chat, str]] = {
    "done twice": (sends(stream_head(), line("Hi", done=True), line(" twice", done=True)), "Hi"),
    "text after done": (
        sends(stream_head(), line("Hi", done=True) + line(" late"), b"{rubbish"),
        "Hi",
    ),
    "one byte at a time": (trickles, "süß 🙂"),
    "fields of other types": (
        sends(
            stream_head(),
            b'{"message":7}\n{"message":{"content":["x"],"thinking":1}}\n',
            line("Hi", done=True),
        ),
        "Hi",
    ),
    "counters that are no numbers": (
        sends(stream_head(), b'{"message":{"content":"Hi"},"done":true,"eval_count":"x"}'),
        "Hi",
    ),
}


class BreakingOllama:
    """An Ollama whose next chat fails as the test says; the chats after it work."""

    def __init__(self) -> None:
        self._behaviours: list[Chat] = []
        self.raw = RawOllama(self._chat)

    def break_once(self, chat: Chat) -> None:
        """Handle the next chat request like this."""
        self._behaviours = [chat]

    def _chat(self, connection: socket.socket) -> None:
        chat = (
            self._behaviours.pop()
            if self._behaviours
            else sends(stream_head(), line("Fine.", done=True))
        )
        chat(connection)


@pytest.fixture(scope="module")
def ollama() -> Iterator[BreakingOllama]:
    ollama = BreakingOllama()
    with ollama.raw:
        yield ollama


@pytest.fixture(scope="module")
def impatient(ollama: BreakingOllama, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client of a server that waits only a moment for Ollama."""
    directory = tmp_path_factory.mktemp("impatient")
    with RunningServer(
        directory, ollama.raw.url, ollama_stall_timeout_seconds=STALL_SECONDS, **QUIET
    ) as server:
        yield server.api()


@pytest.fixture(scope="module")
def patient(ollama: BreakingOllama, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A client of a server with default settings."""
    with RunningServer(tmp_path_factory.mktemp("patient"), ollama.raw.url, **QUIET) as server:
        yield server.api()


def _break(name: str) -> Any:
    # tests/unit/test_ollama_lines.py and test_ollama_stalls.py test the same limits in the first
    # tier.
    expensive = name == "a line without end" or name.startswith("silence")
    return pytest.param(*BREAKS[name], id=name, marks=pytest.mark.slow if expensive else ())


@pytest.mark.parametrize(("chat", "text", "reason"), [_break(name) for name in BREAKS])
def test_failing_ollama_ends_turn_and_next_turn_works(
    ollama: BreakingOllama, impatient: Api, chat: Chat, text: str, reason: str
) -> None:
    session_id = impatient.create_session("raw")["session_id"]

    ollama.break_once(chat)
    events = impatient.stream_message(session_id, "Hello!")

    assert text_of(events) == text
    assert failure(events)[0] == ("OLLAMA_BUSY" if reason in BUSY else "OLLAMA_ERROR")
    assert reason in failure(events)[1]
    stored = [(m["content"], m.get("interrupted")) for m in impatient.messages(session_id)]
    assert stored == [("Hello!", None)] + ([(text, True)] if text else [])
    assert impatient.send_message(session_id, "Once more")["message"]["content"] == "Fine."


@pytest.mark.parametrize(("chat", "text"), ODDITIES.values(), ids=ODDITIES)
def test_unusual_response_of_ollama_is_an_answer(
    ollama: BreakingOllama, patient: Api, chat: Chat, text: str
) -> None:
    session_id = patient.create_session("raw")["session_id"]

    ollama.break_once(chat)
    events = patient.stream_message(session_id, "Hello!")

    assert [event.type for event in events if event.type != "content_delta"] == [
        "message_complete",
        "done",
    ]
    assert text_of(events) == text
    assert [m["content"] for m in patient.messages(session_id)] == ["Hello!", text]
    assert patient.send_message(session_id, "Once more")["message"]["content"] == "Fine."


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (Failure("model 'mochi' not found", 404), "MODEL_NOT_FOUND"),
        (
            Failure("model requires more system memory (9.0 GiB) than is available (1.0 GiB)"),
            "OLLAMA_ERROR",
        ),
        (Failure("llama runner process has terminated: signal: killed"), "OLLAMA_ERROR"),
    ],
    ids=["the model is gone", "memory is gone", "the runner is gone"],
)
def test_failure_between_model_calls_keeps_earlier_messages(
    tmp_path: Path, end: Failure, code: str
) -> None:
    def resolve(prompt: Prompt) -> Reply:
        if prompt.user_text == "Once more":
            return Reply.of("Fine.")
        return Reply([end]) if prompt.messages[-1].role == "tool" else Reply([Text("Wait. "), CALL])

    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0, resolve=resolve) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        settings = {"tools": ["look"], "execution_policy": "never_confirm"}
        session_id = api.create_session("mochi", tool_settings=settings)["session_id"]

        events = api.stream_message(session_id, "Hello!")

        found, message = failure(events)
        assert found == code
        if code == "OLLAMA_ERROR":
            assert message.startswith(f"Ollama failed (500): {end.message}. ")
        assert [(m["role"], m["content"]) for m in api.messages(session_id)] == [
            ("user", "Hello!"),
            ("assistant", "Wait. "),
            ("tool", "Nothing to see."),
        ]
        assert api.send_message(session_id, "Once more")["message"]["content"] == "Fine."


def failure(events: list[Event]) -> tuple[str, str]:
    """Return code and message of the error event that ends a stream before `done`."""
    assert types_of(events[-2:]) == ["error", "done"]
    return events[-2].data["code"], events[-2].data["message"]


CALL = ToolCalls([ToolCall("look", {})])
TOOLS = '''
    def look() -> str:
        """Look."""
        return "Nothing to see."

    __all__ = ["look"]
'''
