"""Internals of uvicorn and httptools on which `mochi_server.web.http_protocol` depends."""

import inspect
from importlib.metadata import requires, version
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.server import ServerState

from tests.support.cases import cases

CONNECTION_METHODS = (
    *(
        "connection_made",
        "connection_lost",
        "data_received",
        "on_message_begin",
        "on_header",
        "on_headers_complete",
    ),
    *(
        "on_body",
        "on_message_complete",
        "on_response_complete",
        "send_400_response",
        "_should_upgrade",
    ),
    *("_unset_keepalive_if_required", "_start_asgi_task"),
)
CONNECTION_ATTRIBUTES = (
    "client",
    "cycle",
    "headers",
    "loop",
    "parser",
    "pipeline",
    "scope",
    "transport",
)
CYCLE_ATTRIBUTES = (
    "disconnected",
    "keep_alive",
    "message_event",
    "response_complete",
    "response_started",
)
ADVICE = "Adapt src/mochi_server/web/http_protocol.py and the range of versions in pyproject.toml."


def missing(found: Any, names: tuple[str, ...]) -> str:
    absent = [name for name in names if not hasattr(found, name)]
    return (
        f"uvicorn {uvicorn.__version__}: {type(found).__name__} lacks {', '.join(absent)}. {ADVICE}"
        if absent
        else ""
    )


async def app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("no request is sent")


async def protocol() -> httptools_impl.HttpToolsProtocol:
    return httptools_impl.HttpToolsProtocol(
        uvicorn.Config(app, ws="none", log_config=None), ServerState(), {}
    )


def cycle(connection: httptools_impl.HttpToolsProtocol) -> httptools_impl.RequestResponseCycle:
    parameters = inspect.signature(httptools_impl.RequestResponseCycle).parameters
    return httptools_impl.RequestResponseCycle(**dict.fromkeys(parameters))  # type: ignore[arg-type]  # not called


async def test_uvicorn_has_the_internals_of_the_protocol() -> None:
    connection = await protocol()
    assert not (text := missing(connection, CONNECTION_METHODS + CONNECTION_ATTRIBUTES)), text
    assert not (text := missing(cycle(connection), CYCLE_ATTRIBUTES)), text


@cases("name", ["feed_data", "get_method", "should_upgrade"])
def test_httptools_has_the_internals_of_the_protocol(name: str) -> None:
    assert hasattr(httptools.HttpRequestParser, name), (
        f"httptools {version('httptools')} lacks {name}. {ADVICE}"
    )
    assert issubclass(httptools.HttpParserUpgrade, Exception), ADVICE


@cases("package", ["uvicorn", "httptools"])
def test_installed_version_is_in_the_tested_range(package: str) -> None:
    from packaging.requirements import Requirement

    stated = [Requirement(line) for line in requires("mochi-server") or ()]
    (requirement,) = [each for each in stated if each.name == package]
    assert "<" in str(requirement.specifier), f"pyproject.toml states no upper bound for {package}"
    assert version(package) in requirement.specifier
