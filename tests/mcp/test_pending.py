"""Responses of MCP servers with unknown IDs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import mcp_types

    from mochi_server.mcp import messages
else:  # only the worker that runs these tests imports the SDK
    mcp_types = LazyModule("mcp_types")
    messages = LazyModule("mochi_server.mcp.messages")


def parsed(**message: object) -> mcp_types.JSONRPCMessage:
    return mcp_types.jsonrpc_message_adapter.validate_json(
        json.dumps({"jsonrpc": "2.0", **message})
    )


def with_pending(*ids: int) -> messages.PendingRequests:
    requests = messages.PendingRequests()
    for request_id in ids:
        requests.sent(parsed(id=request_id, method="tools/call"))
    return requests


def test_unknown_id_fails_the_only_request() -> None:
    received = with_pending(7).received(parsed(id="other", result={}))
    assert (received.id, received.error.code) == (7, -32700)


def test_error_without_id_fails_the_only_request() -> None:
    received = with_pending(7).received(parsed(id=None, error={"code": -1, "message": "No."}))
    assert (received.id, received.error.message) == (7, "No.")


def test_unknown_id_fails_none_of_two_requests() -> None:
    response = parsed(id="other", result={})
    assert with_pending(7, 8).received(response) is response


@pytest.mark.parametrize("late", [7, "7"])
def test_late_response_fails_no_other_request(late: int | str) -> None:
    requests = with_pending(7)
    requests.sent(parsed(method="notifications/cancelled", params={"requestId": 7}))
    requests.sent(parsed(id=8, method="tools/call"))
    response = parsed(id=late, result={})
    assert requests.received(response) is response


def test_response_after_many_later_requests_is_returned() -> None:
    requests = with_pending(0)
    for later in range(1, 2000):
        requests.sent(parsed(id=later, method="tools/call"))
        requests.received(parsed(id=later, result={}))
    response = parsed(id=0, result={})
    assert requests.received(response) is response


def test_request_of_the_server_fails_no_request() -> None:
    request = parsed(id="other", method="ping")
    assert with_pending(7).received(request) is request


@pytest.mark.parametrize(
    "line",
    [
        b'{"level":"error","id":"x","error":"This is a line of a log."',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{',
    ],
)
async def test_malformed_text_that_is_no_response_is_ignored(line: bytes) -> None:
    found = await messages.decode(line)
    assert found is None or with_pending(7).received(found) is found


@pytest.mark.parametrize("malformed_id", [b"007", b'"\x01"', b'"\xff"'])
async def test_malformed_id_fails_the_only_request(malformed_id: bytes) -> None:
    found = await messages.decode(b'{"id":' + malformed_id + b',"code":1}')
    received = with_pending(7).received(found)
    assert (received.id, received.error.code) == (7, -32700)
