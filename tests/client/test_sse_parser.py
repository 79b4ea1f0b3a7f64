"""Event parser for chunks of any size and unknown events; options of the client match the OpenAPI
document.
"""

import inspect
from typing import Any, get_type_hints

import pytest

from mochi_server.client import AsyncMochiClient, MochiClient, UnknownEvent, client
from mochi_server.client.streams import Parser
from mochi_server.events import ContentDelta, Done
from tests.support.cases import cases
from tests.support.server import RunningServer

SENT = (
    b'id: a1:1\nevent: content_delta\ndata: {"content":"\xc3\xbcber","role":"assistant"}\n\n: ping\n\n'
    b'id: a1:2\r\nevent: content_delta\r\ndata: {"content":"b",\r\ndata: "later": 1}\r\n\r\n'
    b'id: a1:3\nevent: applause\ndata: {"hands": 2}\n\nid: a1:4\nevent: done\ndata: {}\n\nevent: done\n'
)
READ = [
    ("a1:1", ContentDelta("über")),
    ("a1:2", ContentDelta("b")),
    ("a1:3", UnknownEvent("applause", {"hands": 2})),
    ("a1:4", UnknownEvent("done", {})),
]


@pytest.fixture(scope="module")
def schemas(shared_server: RunningServer) -> dict[str, Any]:
    document = shared_server.client.ok(
        shared_server.client.http.get(shared_server.client.http.base_url.join("/openapi.json"))
    )
    found: dict[str, Any] = document["components"]["schemas"]
    return found


@cases("size", [1, 2, 3, 7, 64, 10_000])
def test_parser_reads_events_from_chunks_of_any_size(size: int) -> None:
    parser = Parser()
    pieces = [SENT[start : start + size] for start in range(0, len(SENT), size)]
    assert [event for piece in pieces for event in parser.feed(piece)] == READ


def test_last_event_is_typed() -> None:
    assert list(Parser().feed(b'id: a:1\nevent: done\ndata: {"session_id":"x"}\n\n')) == [
        ("a:1", Done("x"))
    ]


def test_request_types_have_the_documented_fields(schemas: dict[str, Any]) -> None:
    assert set(get_type_hints(client.SessionOptions)) | {"model"} == set(
        schemas["SessionCreate"]["properties"]
    )
    named_otherwise = {"message", "wait_for_confirmation"}
    assert set(get_type_hints(client.TurnOptions)) | named_otherwise == set(
        schemas["ChatRequest"]["properties"]
    )


def test_both_clients_have_the_same_methods() -> None:
    def face(client: type) -> dict[str, list[str]]:
        methods = inspect.getmembers(client, inspect.isfunction)
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in methods
            if name[0] != "_"
        }

    one, two = face(MochiClient), face(AsyncMochiClient)
    two["close"] = two.pop("aclose")
    assert one == two
