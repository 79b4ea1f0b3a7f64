"""Connections: pipelined requests, `Expect: 100-continue`, and answers that are larger than all buffers."""

from __future__ import annotations

from mochi_stub import StubServer
from tests.stub.requests import raw_connection, send_message
from tests.support.instructions import instruct, words


def test_pipelined_requests_are_answered_in_order(stub: StubServer) -> None:
    first = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    second = b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with raw_connection(stub, first + second) as connection:
        answered = connection.makefile("rb").read()
    assert answered.index(b"Ollama is running") < answered.index(b"404 page not found")


def test_expect_header_is_answered_with_100_continue(stub: StubServer) -> None:
    headers = b"Host: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 15\r\n\r\n"
    with raw_connection(stub, b"POST /api/show HTTP/1.1\r\n" + headers) as connection:
        assert connection.recv(64) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b'{"model":"map"}')
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200 OK")


def test_reply_that_is_larger_than_all_buffers_is_complete(stub: StubServer) -> None:
    answer = send_message(stub, instruct(words(400_000)), stream=False)
    assert len(answer.json["message"]["content"].split()) == 400_002  # with the label at both ends
