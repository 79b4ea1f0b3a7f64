"""Starting, stopping, ports, and the public names."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from typing import Any

import pytest

import mochi_stub
from mochi_stub import Exchange, StubServer
from mochi_stub.http import Request
from mochi_stub.journal import MAX_EXCHANGES, Journal
from tests.stub.requests import send_request


def test_used_port_is_an_error_at_once() -> None:
    with StubServer() as first, pytest.raises(OSError, match=r"in use"):
        StubServer(port=first.port).start()


def test_used_port_can_be_replaced_by_a_free_one() -> None:
    with StubServer() as first, StubServer(port=first.port, fall_back_to_free_port=True) as second:
        assert second.port != first.port
        assert send_request(second, "GET", "/").status == 200


def test_start_raises_the_error_that_prevents_it() -> None:
    threads = threading.active_count()
    names: Any = ["mochi"]
    stub = StubServer(models=names)
    with pytest.raises(AttributeError, match="name"):
        stub.start()
    assert threading.active_count() == threads
    with pytest.raises(ConnectionError):
        send_request(stub, "GET", "/")
    stub.stop()


def test_stopped_server_can_start_again() -> None:
    threads = threading.active_count()
    stub = StubServer()
    with stub:
        port = stub.port
        assert send_request(stub, "GET", "/").status == 200
    with pytest.raises(ConnectionError):
        send_request(stub, "GET", "/")
    assert threading.active_count() == threads
    with stub:
        assert stub.port == port
        assert send_request(stub, "GET", "/").status == 200
        assert len(stub.exchanges()) == 2


def test_stop_closes_a_connection_that_is_just_being_accepted() -> None:
    def connect_and_stop() -> None:
        client.connect((stub.host, stub.port))
        stub._grace.set_result(0)

    with (
        socket.socket() as client,
        StubServer() as stub,
    ):  # an open connection would be an unraisable warning
        stub._loop.call_soon_threadsafe(connect_and_stop)
        assert stub._thread is not None
        stub._thread.join(60)


def test_stopping_twice_or_before_start_does_nothing() -> None:
    stub = StubServer()
    stub.stop()
    with stub:
        pass
    stub.stop()


def test_ipv6_is_served() -> None:
    with StubServer(host="::1") as stub:
        assert stub.url == f"http://[::1]:{stub.port}"
        assert send_request(stub, "GET", "/").status == 200


def test_public_names_are_importable() -> None:
    assert all(getattr(mochi_stub, name) is not None for name in mochi_stub.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nope"):
        _ = mochi_stub.nope


def test_importing_the_package_loads_no_server() -> None:
    program = (
        "import sys, mochi_stub; print(*[name for name in ('uvicorn', 'asyncio', 'orjson', "
        "'mochi_server') if name in sys.modules])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert printed == "\n"


def test_journal_keeps_the_latest_thousand_requests() -> None:
    journal = Journal()
    for number in range(MAX_EXCHANGES + 5):
        journal.open(Request("GET", f"/{number}"))
    kept = journal.exchanges()
    assert (len(kept), kept[0].path) == (MAX_EXCHANGES, "/5")


def test_journal_snapshot_does_not_change() -> None:
    journal = Journal()
    record = journal.open(Request("GET", "/"))
    before = journal.exchanges()
    record.close("finished")
    assert before == [Exchange("GET", "/")]
    assert journal.exchanges() == [Exchange("GET", "/", outcome="finished")]
