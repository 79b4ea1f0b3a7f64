"""Servers for tests, which run in a thread of the test process, and replays of recorded
sessions.
"""

import threading
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource
from starlette.routing import BaseRoute
from typing_extensions import Self

from mochi_server.app import create_app
from mochi_server.cli.scenario import differences, load_recording, recorded_tool
from mochi_server.cli.server import listen, local_url, uvicorn_config
from mochi_server.client import MochiClient
from mochi_server.config import MochiServerSettings
from mochi_server.tools.discovery import ToolCatalogue

__all__ = ["ThreadedServer", "check_scenario"]


class GivenSettings(MochiServerSettings):
    """Settings that are not read from the environment."""

    @classmethod
    def settings_customise_sources(  # type: ignore[override]  # the sources are passed by name
        cls, _: type[BaseSettings], init_settings: PydanticBaseSettingsSource, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class ThreadedServer:
    """Server in a thread. Use it as a context manager.

    Args:
        settings: Settings of the server, by name. The other settings have their default values,
            except that the server uses a free port and background summaries are disabled. The
            server ignores the environment variables of settings. For ``client``, pass
            ``api_keys``, not only a keys file.

    Attributes:
        url: URL of the server.
    """

    def __init__(self, **settings: Any) -> None:
        own_defaults = {
            "port": 0,
            "summarization_enabled": False,
            # Without a value, the setting would follow `OLLAMA_HOST`.
            "ollama_host": MochiServerSettings.model_fields["ollama_host"].default,
        }
        values = GivenSettings(**own_defaults | settings)
        self._listener = listen(values.host, values.port)
        host, port = self._listener.getsockname()[:2]
        self.url = local_url(host, port)
        values = values.model_copy(update={"port": port})
        keys = [key.get_secret_value() for key in values.api_keys]
        self._key = keys[0] if keys else None
        self.app = create_app(values)
        share_routes(self.app)
        self._server = uvicorn.Server(uvicorn_config(self.app, values))
        self._thread = threading.Thread(
            target=self._server.run, args=([self._listener],), daemon=True
        )

    @cached_property
    def client(self) -> MochiClient:
        """Client of this server.

        The client is closed when the ``with`` block of the server ends.
        """
        return MochiClient(self.url, api_key=self._key)

    def __enter__(self) -> Self:
        """Start the server. Raises RuntimeError if it does not start."""
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        if not self._server.started:
            raise RuntimeError(f"the server at {self.url} did not start; its log has the reason")
        return self

    def __exit__(self, *_: object) -> None:
        if "client" in self.__dict__:
            self.client.close()
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


_BUILT: dict[tuple[int, str], BaseRoute] = {}
"""Included routers of the first app, by the ID of the router and its prefix."""


def share_routes(app: FastAPI) -> None:
    """Use the included routers of the first app in this process.

    FastAPI builds the routes of each app again at their first request, which takes longer than most
    tests. The routes have no state: handlers find their app in the request.
    """
    app.router.routes[:] = [_first_built(route) for route in app.router.routes]


def _first_built(route: BaseRoute) -> BaseRoute:
    """Return the included router of the first app that had it, or another route as it is."""
    router = getattr(route, "original_router", None)  # undocumented
    context = getattr(route, "include_context", None)
    if router is None or context is None:
        return route
    return _BUILT.setdefault((id(router), context.prefix), route)


def check_scenario(path: Path, **settings: Any) -> None:
    """Replay a scenario with the recorded results of tools.

    Raises ``AssertionError`` for the first difference, and ``ValueError`` if the recording beside
    ``path`` cannot be read.

    ``path`` is a file of ``mochi-server export-scenario``. ``settings`` are settings of the server,
    by name.
    """
    __tracebackhide__ = True  # pytest then shows only the message
    recorded = load_recording(path)
    results = []
    for turn in recorded["turns"]:
        results += turn["tools"]
    names = {result["tool"] for result in results}
    tools = {name: recorded_tool(name, results) for name in names}
    recorded["session"]["tool_settings"] |= {"tools": sorted(tools), "tool_group": None}
    recorded["session"]["agent_settings"] = None  # the recorded tools include the agents
    with ThreadedServer(**settings) as server:
        server.app.state.services.tools.discovery.cached = ToolCatalogue(tools)
        for number, difference in enumerate(differences(recorded, server.client), 1):
            if difference:
                raise AssertionError(
                    f"turn {number} differs from the recorded session:\n{difference}"
                )
