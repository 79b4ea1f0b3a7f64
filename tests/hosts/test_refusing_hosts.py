"""Hosts that refuse chat requests with an answer that is not from Ollama, while another host is
healthy.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.hosts.conftest import Start
from tests.hosts.test_failover import state_of
from tests.support.api import Api, error_of, text_of
from tests.support.raw_ollama import RawOllama, line, stream_head, whole
from tests.support.waiting import until

LOGIN = b"<!DOCTYPE html>\n<html><title>Log in</title></html>"
REFUSALS = {
    "login page": whole(LOGIN, content_type="text/html"),
    "login page in one line": whole(LOGIN.replace(b"\n", b""), content_type="text/html"),
    "redirect": whole(b"", status="302 Found\r\nLocation: https://login.example/"),
    "permanent redirect": whole(b"", status="308 Permanent Redirect\r\nLocation: /login"),
    "bad request of a proxy": whole(LOGIN, status="400 Bad Request", content_type="text/html"),
    "expired key": whole(b'{"error":"invalid key"}', status="401 Unauthorized"),
    "forbidden": whole(b'{"error":"forbidden"}', status="403 Forbidden"),
    "wrong path": whole(b"404 page not found", status="404 Not Found", content_type="text/plain"),
    "wrong path of a proxy": whole(b'{"detail":"Not Found"}', status="404 Not Found"),
    "wrong method": whole(b"", status="405 Method Not Allowed"),
    "key of a proxy": whole(
        LOGIN, status="407 Proxy Authentication Required", content_type="text/html"
    ),
    "timeout of a proxy": whole(b"", status="408 Request Timeout"),
    "gone": whole(b"", status="410 Gone"),
    "body too large for a proxy": whole(
        LOGIN, status="413 Content Too Large", content_type="text/html"
    ),
    "too many requests": whole(b'{"error":"too many requests"}', status="429 Too Many Requests"),
}
VERSION = b'{"version":"0.33.3"}'


def answer(connection: socket.socket) -> None:
    connection.sendall(stream_head() + line("Fine.", done=True))


def refuse(response: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(response)


def refuse_first(refused: list[socket.socket]) -> Callable[[socket.socket], None]:
    """Return a handler that refuses the first request, appends it to ``refused``, and answers the
    following ones.
    """

    def handle(connection: socket.socket) -> None:
        if refused:
            answer(connection)
        else:
            refused.append(connection)
            connection.sendall(REFUSALS["expired key"])

    return handle


@contextmanager
def answering() -> Iterator[RawOllama]:
    """Run a host that answers."""
    with RawOllama(answer) as host:
        host.answers["/api/version"] = VERSION
        yield host


@pytest.fixture
def hosts() -> Iterator[list[RawOllama]]:
    """Two hosts that answer."""
    with answering() as first, answering() as second:
        yield [first, second]


def write_hosts(file: Path, *hosts: str) -> None:
    """Replace the file at once: the server reads it while the test runs, and sees each replacement
    as a change.
    """
    new = file.with_name("hosts.new")
    new.write_text("\n".join(hosts))
    new.replace(file)


def session_on(api: Api, name: str) -> str:
    """Return the ID of a session whose latest turn ran on the host, but which is not pinned any
    more.
    """
    session_id = str(api.create_session("raw")["session_id"])
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": name}))
    api.send_message(session_id, "Hello!")
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": None}))
    return session_id


def test_turn_leaves_a_host_that_refuses_it(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One server runs all turns.

    For each refusal, its list of hosts has a new host, which is up, and host b.
    """
    file = tmp_path / "hosts"
    failures: list[str] = []
    with answering() as other:
        write_hosts(file, f"b={other.url}")
        api = start(ollama_hosts=[f"@{file}"]).api()
        for number, (kind, refusal) in enumerate(REFUSALS.items()):
            name = f"a{number}"
            with answering() as refusing:
                write_hosts(file, f"{name}={refusing.url}", f"b={other.url}")
                session_id = session_on(api, name)
                refusing.chat = refuse(refusal)
                del refusing.answers[
                    "/api/version"
                ]  # so that the host does not return before its state is read
                text = text_of(api.stream_message(session_id, "And now?"))
                state = state_of(api, name)
            last_host = api.ok(api.http.get(f"/sessions/{session_id}/status"))["last_host"]
            is_logged = f"Ollama host left host={name} " in caplog.text
            found = (text, last_host, state, is_logged)
            if found != ("Fine.", {"name": "b", "reason": "failover"}, "down", True):
                failures.append(f"{kind}: {found}")
    assert failures == []


@pytest.mark.parametrize("protocol", ["/v1/chat/completions", "/v1/messages"])
def test_v1_request_leaves_a_host_that_refuses_it(
    start: Start, hosts: list[RawOllama], protocol: str
) -> None:
    server = start(f"a={hosts[0].url}", f"b={hosts[1].url}")
    refused: list[socket.socket] = []
    hosts[0].chat = hosts[1].chat = refuse_first(refused)
    body = {"model": "raw", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    api = server.api()
    response = api.http.post(f"{server.url}{protocol}", json=body)
    assert (response.status_code, len(refused)) == (200, 1)


def test_host_that_refuses_only_chats_returns_after_a_pause(
    start: Start, hosts: list[RawOllama], caplog: pytest.LogCaptureFixture
) -> None:
    """The refusing host answers all other routes, so that it returns between the turns."""
    caplog.set_level("INFO")
    api = start(f"a={hosts[0].url}", f"b={hosts[1].url}").api()
    session_id = session_on(api, "a")
    hosts[0].chat = refuse(REFUSALS["forbidden"])
    assert text_of(api.stream_message(session_id, "Hi")) == "Fine."
    until(lambda: "Ollama host returned host=a" in caplog.text)
    hosts[1].chat = refuse(REFUSALS["forbidden"])
    hosts[0].chat = answer
    assert text_of(api.stream_message(session_id, "Hi")) == "Fine."


def test_host_with_a_login_page_on_all_routes_is_left(start: Start, hosts: list[RawOllama]) -> None:
    hosts[0].answers = dict.fromkeys(("/api/tags", "/api/show", "/api/version"), LOGIN)
    hosts[0].chat = refuse(REFUSALS["login page"])
    api = start(f"a={hosts[0].url}", f"b={hosts[1].url}").api()
    assert text_of(api.stream_message(api.create_session("raw")["session_id"], "Hi")) == "Fine."
    assert state_of(api, "a") == "down"


NAMELESS = (
    b'{"message":{"role":"assistant","content":"","tool_calls":[{"function":{}}]},"done":false}\n'
)


@pytest.mark.parametrize(
    "response",
    [
        whole(b'{"error":"invalid options"}', status="400 Bad Request"),
        whole(b'{"error":"model \'raw\' not found"}', status="404 Not Found"),
        whole(b'{"error":"error parsing tool call: raw=\'{\', err=EOF"}', status="500 Error"),
        whole(b'{"error":"Failed to load image or audio file"}', status="500 Error"),
        stream_head() + NAMELESS,
    ],
    ids=[
        "invalid options",
        "missing model",
        "malformed call",
        "unreadable image",
        "call without a name",
    ],
)
def test_host_that_refuses_one_request_stays_up(
    start: Start, hosts: list[RawOllama], response: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    api = start(f"a={hosts[0].url}", f"b={hosts[1].url}").api()
    session_id = session_on(api, "a")
    hosts[0].chat = refuse(response)
    api.http.post(f"/chat/{session_id}", json={"message": "And now?"})
    assert "Ollama host left" not in caplog.text
    assert state_of(api, "a") == "up"


def test_host_whose_answer_ends_early_stays_up(
    start: Start, hosts: list[RawOllama], caplog: pytest.LogCaptureFixture
) -> None:
    """Ollama ends an answer with many equal tokens without a last line."""
    api = start(f"a={hosts[0].url}", f"b={hosts[1].url}").api()
    session_id = session_on(api, "a")
    text = line("no " * 31)
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)
    head = stream_head().replace(b"Connection: close", b"Transfer-Encoding: chunked")
    hosts[0].chat = refuse(head + chunks)
    response = api.http.post(f"/chat/{session_id}", json={"message": "And now?"})
    assert error_of(response) == (502, "OLLAMA_ERROR")
    assert "ended before it was done" in response.text
    assert "Ollama host left" not in caplog.text
    assert state_of(api, "a") == "up"


def test_error_of_hosts_that_all_refuse_names_each(start: Start, hosts: list[RawOllama]) -> None:
    api = start(f"a={hosts[0].url}", f"b={hosts[1].url}").api()
    session_id = session_on(api, "a")
    hosts[0].chat = refuse(REFUSALS["expired key"])
    hosts[1].chat = refuse(REFUSALS["redirect"])
    response = api.http.post(f"/chat/{session_id}", json={"message": "And now?"})
    assert error_of(response) == (502, "OLLAMA_ERROR")
    assert {*response.json()["error"]["details"]["hosts"]} == {"a", "b"}


def test_only_host_that_refuses_is_tried_again(start: Start, hosts: list[RawOllama]) -> None:
    api = start(hosts[0]).api()
    failures: list[str] = []
    for name, refusal in REFUSALS.items():
        session_id = api.create_session("raw")["session_id"]
        hosts[0].chat = refuse(refusal)
        error = error_of(api.http.post(f"/chat/{session_id}", json={"message": "Hello!"}))
        is_busy = b" 429 " in refusal
        if error != ((503, "OLLAMA_BUSY") if is_busy else (502, "OLLAMA_ERROR")):
            failures.append(f"{name}: {error}")
        hosts[0].chat = answer
        text = text_of(api.stream_message(session_id, "And now?"))
        if text != "Fine.":
            failures.append(f"{name}: {text!r}")
    assert failures == []


def test_host_stays_up_if_a_model_cannot_embed(start: Start) -> None:
    with StubServer(speed=0) as one, StubServer(speed=0) as two:
        api = start(f"a={one.url}", f"b={two.url}").api()
        body = {"model": "mochi-chat", "input": "x"}
        response = api.http.post(api.http.base_url.join("/v1/embeddings"), json=body)
        assert "Model 'mochi-chat' cannot compute embeddings." in response.text
        assert (state_of(api, "a"), state_of(api, "b")) == ("up", "up")
