"""HEAD requests: every GET route answers them, with the headers of the GET response and without a
body.
"""

from pathlib import Path
from typing import Any

import httpx

from tests.support.api import Api
from tests.support.holding import GatedStub
from tests.support.raw_http import connect
from tests.support.server import RunningServer

PARAMETERS = {"session_id": "0123456789", "model_name": "mochi", "sha256": "0" * 64}
PAGES = ("/docs", "/openapi.json", "/health")


def test_every_get_route_answers_head(api: Api) -> None:
    from tests.support.openapi import routes

    paths = [route.path for route in routes() if route.method == "GET"]
    assert len(paths) > 20
    for path in (*PAGES, *paths):
        names = {part.partition("}")[0] for part in path.split("{")[1:]}
        url = str(api.http.base_url).removesuffix("/api/v1/") + path.format(
            **{n: PARAMETERS.get(n, "x") for n in names}
        )
        get, head = api.http.get(url), api.http.head(url)
        assert head.status_code == get.status_code != 405, url
        assert head.headers.get("content-type") == get.headers.get("content-type"), url
        assert head.content == b""


def test_head_has_the_length_of_the_body(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    get, head = api.http.get(f"/sessions/{session_id}"), api.http.head(f"/sessions/{session_id}")
    assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))


def test_head_of_other_methods_is_405_and_allow_lists_head(api: Api) -> None:
    assert api.http.head("/chat/0123456789/stop").status_code == 405
    assert api.http.put("/sessions").headers["allow"] == "GET, HEAD, POST"


def test_head_needs_a_key_where_get_does(tmp_path: Path) -> None:
    with RunningServer(tmp_path, "http://127.0.0.1:1", api_keys=("right",)) as server:
        assert httpx.head(f"{server.url}/api/v1/sessions").status_code == 401
        assert httpx.head(f"{server.url}/api/v1/health/live").status_code == 200


def test_head_of_a_stream_ends_and_does_not_stop_the_turn(
    holding: GatedStub, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, holding.stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            assert next(events).type == "content_delta"
            head: Any = server.api().http.head(f"/chat/{session_id}/stream")
            assert (head.status_code, head.headers["content-type"]) == (
                200,
                "text/event-stream; charset=utf-8",
            )
            holding.gate.open()
            assert list(events)[-1].type == "done"
        assert api.messages(session_id)[-1]["content"] == "one two three four"


def test_head_is_answered_before_the_end_of_a_body(server: RunningServer) -> None:
    head = b"HEAD /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(server.url) as connection:
        connection.sendall(head + b"5\r\nhello\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"0\r\n\r\n" + head.replace(b"HEAD", b"GET") + b"0\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
