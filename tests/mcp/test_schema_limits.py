"""Schemas of MCP servers and arguments that are made to take long to check."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from mochi_server.mcp.tool_mapping import McpTool, map_tools
from mochi_server.tools.schema import InvalidArguments
from mochi_server.util.schema_checks import SchemaChecks, start_worker
from mochi_stub import StubServer
from tests.api.test_tools import PendingApproval
from tests.mcp.patient_server import PatientServer, forked_checks
from tests.support import fork_server, schema_worker
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.lazy import LazyModule
from tests.support.mcp import by_hand, has_socket, is_alive, write_mcp
from tests.support.process import shared_fork_server
from tests.support.waiting import until

if TYPE_CHECKING:
    import mcp_types
else:  # only the worker that runs these tests imports the SDK
    mcp_types = LazyModule("mcp_types")

TOO_LONG = "the arguments cannot be checked: the check took longer than 0.3 s"
DOUBLING: dict[str, dict[str, Any]] = {
    "allOf": {"allOf": [{"$ref": "NEXT"}] * 2},
    "anyOf": {"anyOf": [{"$ref": "NEXT"}] * 2},
    "not": {"not": {"$ref": "NEXT"}, "if": {"$ref": "NEXT"}},
    "additionalProperties": {
        "additionalProperties": {"$ref": "NEXT"},
        "propertyNames": {"$ref": "NEXT"},
    },
    "dependentSchemas": {"dependentSchemas": {"$defs": {"$ref": "NEXT"}, "b": {"$ref": "NEXT"}}},
    "definitions": {"properties": {"definitions": {"$ref": "NEXT"}}, "contains": {"$ref": "NEXT"}},
}
"""Schemas that refer twice to the next definition."""
ITEMS = [{"a": number} for number in range(1_500)]
UNIQUE = {"properties": {"items": {"type": "array", "uniqueItems": True}}}


def doubled(node: dict[str, Any], reference: str = "#/$defs/d{}") -> dict[str, Any]:
    """Return a schema of a few kilobytes with 40 definitions. Each refers twice to the next."""
    text = json.dumps(node)
    definitions = {
        f"d{level}": {
            "$anchor": f"a{level}",
            **json.loads(text.replace("NEXT", reference.format(level + 1))),
        }
        for level in range(40)
    }
    return {
        "type": "object",
        "allOf": [{"$ref": reference.format(0)}],
        "$defs": definitions | {"d40": {"$anchor": "a40"}},
    }


def workers_of(checks: SchemaChecks) -> list[int]:
    """Return the IDs of the workers that run."""
    return [worker.pid for worker in checks._workers if is_alive(worker.pid)]


async def mapped(checks: SchemaChecks, *schemas: dict[str, Any]) -> tuple[list[McpTool], list[str]]:
    tools = [
        mcp_types.Tool(name=f"t{n}", input_schema={"type": "object", **schema})
        for n, schema in enumerate(schemas)
    ]
    return await map_tools(tools, checks)


@asynccontextmanager
async def pool(**limits: Any) -> AsyncIterator[SchemaChecks]:
    """Provide a pool of workers, which must end with it."""
    checks = SchemaChecks(
        start=schema_worker.start if fork_server.AVAILABLE else start_worker, **limits
    )
    yield checks
    workers = workers_of(checks)
    await checks.aclose()
    assert not any(map(is_alive, workers))


@pytest_asyncio.fixture
async def checks() -> AsyncIterator[SchemaChecks]:
    """A pool with the limits that users have."""
    async with pool() as checks:
        yield checks


async def test_only_tools_with_large_schemas_are_left_out(checks: SchemaChecks) -> None:
    large = [doubled(node) for node in DOUBLING.values()]
    large.append(doubled(DOUBLING["allOf"], "#a{}"))
    large.append({"properties": {f"p{number}": {"type": "string"} for number in range(20_000)}})
    large.append({"properties": {"a": {"enum": [*range(20_000)]}}})
    text = {"description": "x" * 10_000}
    large.append(
        {
            "properties": {f"p{n}": {"$ref": "#/$defs/text"} for n in range(200)},
            "$defs": {"text": text},
        }
    )
    usable, problems = await mapped(checks, *large, {"properties": {"a": {"type": "string"}}})
    assert problems == [
        f"its tool 't{number}' cannot be used: its schema is too large"
        for number in range(len(large))
    ]
    assert [tool.name for tool in usable] == [f"t{len(large)}"]


async def test_recursive_schema_is_usable(checks: SchemaChecks) -> None:
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/node"}, "a": {"type": "integer"}},
    }
    (tool,), problems = await mapped(
        checks, {"properties": {"list": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    )
    assert problems == []
    value: dict[str, Any] = {"a": 1}
    for _ in range(90):
        value = {"next": value}
    assert (await tool.schema.bind({"list": value})).args == ({"list": value},)
    with pytest.raises(InvalidArguments, match="'x' is not of type 'integer'"):
        await tool.schema.bind({"list": {"next": {"next": {"a": "x"}}}})


SLOW = ("uniqueItems", "patternProperties", "recursion", "unevaluatedProperties")


def slow_calls() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield schemas within the size limit and arguments that take long to check."""
    yield UNIQUE, {"items": ITEMS}
    pattern = {
        "properties": {"o": {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}}
    }
    yield pattern, {"o": {"a" * 40 + "!": 1}}
    twice = {"allOf": [{"properties": {"x": {"$ref": "#/$defs/n"}}}] * 2}
    value: dict[str, Any] = {}
    for _ in range(50):
        value = {"x": value}
    yield {"properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": twice}}, value
    nested: dict[str, Any] = {}
    for _ in range(14):  # each level evaluates the next several times
        nested = {"unevaluatedProperties": False, "allOf": [nested]}
    yield {"properties": {"o": nested}}, {"o": {}}


@cases(("schema", "arguments"), slow_calls(), ids=SLOW)
async def test_check_of_arguments_ends_with_its_process(
    schema: dict[str, Any], arguments: dict[str, Any]
) -> None:
    async with pool(argument_seconds=0.1) as checks:
        (tool,), problems = await mapped(checks, schema)
        (worker,) = workers_of(checks)
        before = time.process_time()
        with pytest.raises(InvalidArguments, match="the arguments cannot be checked: the check"):
            await tool.schema.bind(arguments)
        assert (problems, is_alive(worker)) == ([], False)
        assert time.process_time() - before < 0.5
    async with (
        pool() as checks
    ):  # with the time that users have, which a busy machine does not exceed
        (tool,), _ = await mapped(checks, schema)
        assert (await tool.schema.bind({})).args == ({},)


async def test_cancelled_check_ends_with_its_process(checks: SchemaChecks) -> None:
    (tool,), _ = await mapped(checks, UNIQUE)
    (worker,) = workers_of(checks)
    check = asyncio.ensure_future(tool.schema.bind({"items": ITEMS}))
    await asyncio.sleep(0)
    check.cancel()
    with pytest.raises(asyncio.CancelledError):
        await check
    assert not is_alive(worker)


async def test_workers_are_kept_limited_and_replaced(checks: SchemaChecks) -> None:
    (tool,), _ = await mapped(checks, UNIQUE)
    await asyncio.gather(*(tool.schema.bind({"items": [number]}) for number in range(10)))
    kept = workers_of(checks)
    assert len(kept) == 2
    await tool.schema.bind({"items": [1]})
    assert sorted(workers_of(checks)) == sorted(kept)
    for worker in kept:
        os.kill(worker, signal.SIGKILL)
    until(lambda: not any(map(is_alive, kept)))
    with suppress(InvalidArguments):  # the end of a process is noticed late
        await tool.schema.bind({"items": [1]})
    assert (await tool.schema.bind({"items": [1]})).args == ({"items": [1]},)


async def test_text_about_many_errors_is_limited(checks: SchemaChecks) -> None:
    (tool,), _ = await mapped(checks, {"properties": {"n": {"items": {"type": "integer"}}}})
    with pytest.raises(InvalidArguments) as caught:
        await tool.schema.bind({"n": ["x" * 10_000] * 100})
    assert len(str(caught.value)) < 25_000


@pytest.mark.parametrize("stuck", [False, True])
def test_worker_ends_without_its_server(stuck: bool) -> None:
    process, connection = shared_fork_server().connect("tests.support.schema_worker")
    with connection:
        request = [
            "check_arguments",
            0.1,
            {"schema": UNIQUE, "arguments": {"items": ITEMS * stuck}},
        ]
        connection.sendall(json.dumps(request).encode() + b"\n")
        connection.shutdown(socket.SHUT_WR)
        assert process.wait(60) == (-signal.SIGALRM if stuck else 0)


@pytest.fixture
def server(stub: StubServer, tmp_path: Path) -> Iterator[PatientServer]:
    """A server with tools whose schemas take long to check, and a good tool."""
    write_mcp(tmp_path, hand=by_hand(tmp_path, "doubling", "unique", "echo"))
    checks = partial(
        forked_checks, argument_seconds=0.3
    )  # without a limit, the check takes seconds
    with PatientServer(tmp_path, stub.url, schema_checks=checks) as server:
        yield server


def answering_during(api: Api, work: Any) -> Any:
    """Return the result of ``work``. Fail if the server does not respond fast while it runs."""
    with ThreadPoolExecutor() as threads:
        result, answers = threads.submit(work), 0
        while not wait([result], timeout=0.02).done:  # more requests would only cost CPU time
            api.ok(api.http.get("/health/live", timeout=1))
            answers += 1
    assert answers
    return result.result()


def test_server_responds_while_arguments_are_checked(server: PatientServer) -> None:
    with server.api() as api:
        listed = answering_during(api, lambda: api.ok(api.http.get("/tools")))
        assert (
            listed["groups"],
            [problem["message"].partition(": ")[2] for problem in listed["problems"]],
        ) == (
            {"hand": ["unique", "echo"]},
            ["its tool 'doubling' cannot be used: its schema is too large"],
        )
        settings = {"tool_group": "hand", "execution_policy": "always_confirm"}
        session_id = api.create_session("mochi", tool_settings=settings)["session_id"]
        prompt = instruct(calls("unique", items=ITEMS), calls("unique", items=[1]), words(2))
        with api.open_stream(session_id, prompt) as stream:
            pending = answering_during(api, lambda: PendingApproval(api, session_id, stream))
            edited = answering_during(
                api, lambda: pending.decide(approved=True, arguments={"items": ITEMS})
            )
            assert edited.status_code == 422
            assert TOO_LONG in edited.text
            api.ok(pending.decide(approved=True))
            events = pending.remaining_events()
        refused, called = (event.data for event in events if event.type == "tool_result")
        assert refused["error_message"].startswith(f"Wrong arguments for unique: {TOO_LONG}")
        assert called["success"] is True


def test_workers_have_no_sockets_and_end_with_the_server(stub: StubServer, tmp_path: Path) -> None:
    write_mcp(tmp_path, hand=by_hand(tmp_path, "unique"))
    with PatientServer(tmp_path, stub.url, schema_checks=SchemaChecks) as server:
        with server.api() as api:
            until(lambda: "unique" in api.ok(api.http.get("/tools"))["tools"])
        checks: SchemaChecks = server.app.state.services.mcp.checks
        (worker,) = workers_of(checks)
        assert b"mochi_server.util.schema_worker" in Path(f"/proc/{worker}/cmdline").read_bytes()
        assert not has_socket(worker, int(server.url.rpartition(":")[2]))
    assert not is_alive(worker)
