"""Log lines about wrong answers of Ollama."""

from collections.abc import Iterator

import pytest

from tests.api.test_bad_ollama import sends
from tests.support.cases import cases
from tests.support.raw_ollama import RawOllama, line, stream_head, whole
from tests.support.server import RunningServer


@pytest.fixture(scope="module")
def raw_ollama() -> Iterator[RawOllama]:
    with RawOllama(sends()) as ollama:
        yield ollama


@pytest.fixture(scope="module")
def raw_server(raw_ollama: RawOllama, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server in front of an Ollama whose chat handler each test sets."""
    data_dir = tmp_path_factory.mktemp("raw")
    with RunningServer(data_dir, raw_ollama.url, summarization_enabled=False) as server:
        yield server


@cases(
    ("answer", "logged"),
    [
        (
            whole(b'{"error":"requires more memory"}', status="500 Oh"),
            "Ollama failed model=raw status=500: requires more memory",
        ),
        (
            stream_head() + line("My answer") + b'{"error":"parsing tool call: raw=\'My answer\', err=EOF"}\n',
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
    raw_server: RunningServer, raw_ollama: RawOllama, caplog: pytest.LogCaptureFixture, answer: bytes, logged: str
) -> None:
    caplog.clear()
    raw_ollama.chat = sends(answer)
    api = raw_server.client
    session_id = api.create_session("raw")["session_id"]
    api.http.post(f"/chat/{session_id}", json={"message": "My prompt"})
    assert [message for message in caplog.messages if message.startswith(logged)]
    assert "My prompt" not in caplog.text
    assert "My answer" not in caplog.text
