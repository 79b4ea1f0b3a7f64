"""MCP servers that send malformed, huge and endless answers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.mcp.patient_server import PATIENT, PatientServer
from tests.mcp.test_servers import called, problems
from tests.support import hostile_mcp
from tests.support.api import Api
from tests.support.hostile_http import serving
from tests.support.mcp import hostile, write_mcp
from tests.support.waiting import until

MALFORMED = (
    "null",
    "number",
    "deep",
    "digits",
    "cut",
    "null_id",
    "array_id",
    "without_id",
    "broken_id",
    "padded_id",
)
FAULTS = {
    **dict.fromkeys(MALFORMED, "its response is not valid MCP: it is malformed"),
    "values": "its response is not valid MCP: it has more than 50,000 values",
    "blocks": "its response is not valid MCP: content: Input should be a valid list",
    "null_error": "Parse error.",
}
REPAIRED = {"surrogate": "?", "bytes": "\ufffd\ufffd\ufffd"}
"""Results whose invalid Unicode is replaced."""
UNKNOWN_ID = {"other_id": "its response is not valid MCP: no request has its id"}


@contextmanager
def hostile_http(data_dir: Path, body: str, *tools: str) -> Iterator[dict[str, Any]]:
    """Run an MCP server over HTTP and yield its configuration entry.

    `body` is "json" or "events".
    """
    answers = hostile_mcp.Hostile(str(data_dir / "hostile-0"), 0, [*tools])
    with serving(answers) as port:
        yield {"url": f"http://127.0.0.1:{port}/0/{body}"}


def assert_faults(api: Api, faults: dict[str, str]) -> None:
    began = time.monotonic()
    for name, message in faults.items():
        assert called(api, name)["error_message"].startswith(f"{name} failed: {message}"), name
        assert problems(api) == {}
    for name, text in {**REPAIRED, "echo": "echo"}.items():
        assert called(api, name)["result"] == text
    assert time.monotonic() - began < 30


def test_malformed_answer_fails_its_call_at_once(stub: StubServer, tmp_path: Path) -> None:
    write_mcp(tmp_path, hand=hostile(tmp_path, "echo", *FAULTS, *REPAIRED, *UNKNOWN_ID))
    with PatientServer(tmp_path, stub.url) as server:
        assert_faults(server.api(), FAULTS | UNKNOWN_ID)


@pytest.mark.parametrize("body", ["json", "events"])
def test_malformed_answer_over_http_fails_its_call_at_once(
    stub: StubServer, tmp_path: Path, body: str
) -> None:
    # The SDK ignores the ID of a response in an event stream, because each request has its own
    # stream.
    faults = FAULTS | UNKNOWN_ID if body == "json" else FAULTS
    with hostile_http(tmp_path, body, "echo", *faults, *REPAIRED) as entry:
        write_mcp(tmp_path, hand=entry)
        with PatientServer(tmp_path, stub.url) as server:
            assert_faults(server.api(), faults)


@pytest.mark.parametrize("body", ["json", "events"])
def test_compressed_answer_is_refused(stub: StubServer, tmp_path: Path, body: str) -> None:
    with hostile_http(tmp_path, body, "echo", "compressed") as entry:
        write_mcp(tmp_path, hand=entry)
        with PatientServer(tmp_path, stub.url) as server:
            api = server.api()
            refused = (
                "compressed failed: it sent a compressed response, although the request forbids it"
            )
            for encodings in (["gzip"], ["br"], ["gzip, gzip"], ["identity", "deflate"]):
                assert called(api, "compressed", encodings=encodings)["error_message"] == refused, (
                    encodings
                )
                assert called(api, "echo")["result"] == "echo", encodings


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "null",
            "its tool without a name cannot be used: its definition is not valid MCP: : Input "
            "should be",
        ),
        ("many", "it offers more than 1000 tools; the others are ignored"),
    ],
)
def test_malformed_tool_hides_no_other_tool(
    stub: StubServer, tmp_path: Path, kind: str, message: str
) -> None:
    write_mcp(tmp_path, hand=hostile(tmp_path, "echo", f"list_{kind}"))
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        assert "echo" in api.ok(api.http.get("/tools"))["tools"]
        assert message in problems(api)["hand"]
        assert called(api, "echo")["result"] == "echo"


def test_invalid_unicode_in_a_description_is_replaced(stub: StubServer, tmp_path: Path) -> None:
    write_mcp(tmp_path, hand=hostile(tmp_path, "echo", "list_surrogate"))
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        assert api.ok(api.http.get("/tools"))["tools"]["bad"]["description"] == "?"
        assert problems(api) == {}


def test_slow_pattern_in_an_output_schema_is_not_evaluated(
    stub: StubServer, tmp_path: Path
) -> None:
    write_mcp(tmp_path, hand=hostile(tmp_path, "list_slow_pattern"))
    with PatientServer(tmp_path, stub.url) as server:
        assert "aaa" in called(server.api(), "slow_pattern")["result"]


def test_endless_output_delays_neither_requests_nor_the_end(
    stub: StubServer, tmp_path: Path
) -> None:
    limits = replace(PATIENT, exit_seconds=0.1)  # while the output continues
    kinds = {kind: hostile(tmp_path, kind) for kind in ("flood", "flood_stderr")}
    write_mcp(tmp_path, **kinds)
    with PatientServer(tmp_path, stub.url, limits=limits) as server:
        api = server.api()
        assert set(kinds) <= set(api.ok(api.http.get("/tools"))["tools"])
        until(
            lambda: max(latencies(api, 10)) < 0.25
        )  # a busy machine delays some requests; the output continues
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 5


def latencies(api: Api, count: int) -> list[float]:
    """Return the durations of some health checks, in seconds."""
    durations = []
    for _ in range(count):
        began = time.monotonic()
        api.ok(api.http.get("/health/live"))
        durations.append(time.monotonic() - began)
    return durations
