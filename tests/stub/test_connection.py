"""Connections: pipelined requests, `Expect: 100-continue`, and answers that are larger than all
buffers.
"""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from mochi_stub import Gate, Reply, StubServer, Text
from tests.stub.requests import raw_connection, send_message
from tests.support.cases import cases
from tests.support.instructions import instruct, words


def test_pipelined_requests_are_answered_in_order(stub: StubServer) -> None:
    first = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    second = b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with raw_connection(stub, first + second) as connection:
        answered = connection.makefile("rb").read()
    assert answered.index(b"Ollama is running") < answered.index(b"404 page not found")


def test_stopping_stub_answers_no_further_pipelined_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate()
    body = b'{"model":"mochi","messages":[{"role":"user","content":"hello"}]}'
    request = (
        b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    )
    stub = StubServer(resolve=lambda _: Reply([Text("a"), gate]), speed=0).start()
    with raw_connection(stub, request * 2) as connection, ThreadPoolExecutor() as pool:
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        stopping = pool.submit(stub.stop, 5)
        with suppress(ConnectionError):  # until the stub has begun to stop
            while True:
                socket.create_connection((stub.host, stub.port)).close()
        gate.open()
        assert b"HTTP/1.1" not in connection.makefile("rb").read()
        stopping.result(10)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("headers", [b"", b"Connection: close\r\n"])
def test_body_that_is_longer_than_its_declared_length_is_refused(
    stub: StubServer, headers: bytes
) -> None:
    request = (
        b"POST /api/show HTTP/1.1\r\nHost: localhost\r\n" + headers + b"Content-Length: 15\r\n\r\n"
    )
    with raw_connection(stub, request + b'{"model":"m\xc3\xa4p"}') as connection:
        status = connection.makefile("rb").readline()
    assert status == b"HTTP/1.1 400 Bad Request\r\n"


@cases("headers", [b"", b"Host: localhost\r\n", b"Connection: keep-alive\r\n"])
def test_http_1_0_response_ends_with_the_connection(stub: StubServer, headers: bytes) -> None:
    body = b'{"model":"mochi-chat","messages":[{"role":"user","content":"hello"}]}'
    request = (
        b"POST /api/chat HTTP/1.0\r\n" + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body
    )
    with raw_connection(stub, request) as connection:
        head, lines = connection.makefile("rb").read().split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert not {b"transfer-encoding", b"connection"} & {
        line.split(b":")[0] for line in head.split(b"\r\n")
    }
    assert [json.loads(line)["done"] for line in lines.splitlines()][-1] is True


@pytest.mark.parametrize("expected", [b"100-continue", b"100-Continue"])
def test_expect_header_is_answered_with_100_continue(stub: StubServer, expected: bytes) -> None:
    headers = (
        b"Host: localhost\r\nExpect: %s\r\nConnection: close\r\nContent-Length: 15\r\n\r\n"
        % expected
    )
    with raw_connection(stub, b"POST /api/show HTTP/1.1\r\n" + headers) as connection:
        assert connection.recv(64) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b'{"model":"map"}')
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200 OK")


def test_reply_that_is_larger_than_all_buffers_is_complete(stub: StubServer) -> None:
    answer = send_message(stub, instruct(words(400_000)), stream=False)
    assert len(answer.json["message"]["content"].split()) == 400_002  # with the label at both ends
