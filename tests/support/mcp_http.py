"""MCP server over streamable HTTP or SSE with the official SDK, in a thread."""

import threading
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer


def _server() -> "MCPServer":
    # Importing the SDK takes 0.6 s, which only the process that runs these tests should spend.
    from mcp import MCPError
    from mcp.server.mcpserver import Context, MCPServer
    from mcp_types import ToolAnnotations

    server = MCPServer("over HTTP")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def shout(text: str) -> str:
        """Say it loud."""
        return text.upper()

    @server.tool()
    def much() -> str:
        """Say much."""
        return "x" * 1_000_000

    @server.tool()
    def refuse(code: int) -> str:
        """Refuse with a code."""
        raise MCPError(code, "Not today.")

    @server.tool()
    async def learn(context: Context) -> str:
        """Learn to whisper."""
        server.add_tool(whisper)
        await context.notify_tools_changed()
        return "learnt"

    def whisper(text: str) -> str:
        """Say it softly."""
        return text.lower()

    return server


class HttpMcp:
    """MCP server on a real socket; use it as a context manager. Port 0 selects a free one.

    With `over_sse`, it has only the older transport.
    """

    def __init__(self, port: int = 0, *, over_sse: bool = False) -> None:
        self._path = "/sse" if over_sse else "/mcp"
        self.headers: list[dict[str, str]] = []  # of each request
        self._app = _server().sse_app() if over_sse else _server().streamable_http_app()
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._record,
                port=port,
                log_config=None,
                interface="asgi3",
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    async def _record(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await self._app(scope, receive, send)

    @property
    def port(self) -> int:
        return int(self._server.servers[0].sockets[0].getsockname()[1])

    @property
    def entry(self) -> dict[str, str]:
        """Return the entry for `mcp.json`."""
        return {"url": f"http://127.0.0.1:{self.port}{self._path}"}

    def __enter__(self) -> "HttpMcp":
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the MCP server did not start"
            self._thread.join(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(60)
