"""FastAPI dependencies of the routes: the settings and services of the app."""

from typing import Annotated, Any

from fastapi import Depends, Request

from mochi_server.config import MochiServerSettings
from mochi_server.container import Services
from mochi_server.ollama.client import OllamaClient
from mochi_server.sessions import SessionManager


def get_settings(request: Request = None) -> MochiServerSettings:  # type: ignore[assignment]  # FastAPI passes it
    """Return the settings of the app.

    Without an app of `create_app`, read them from the environment variables.
    """
    if request:
        settings = getattr(request.app.state, "settings", None)
        if isinstance(settings, MochiServerSettings):  # another app may store its own settings
            return settings
    defaults: dict[str, Any] = {}
    return MochiServerSettings(**defaults)


def get_ollama_client(
    settings: Annotated[MochiServerSettings, Depends(get_settings)],
    request: Request = None,  # type: ignore[assignment]  # FastAPI passes it
) -> OllamaClient:
    """Return a synchronous client of the app's Ollama server.

    It is closed when it is no longer referenced.

    If `create_app` received an ``ollama_client``, return that client.
    """
    if request and _has_services(request):  # another app may store a client of its own
        injected: OllamaClient | None = request.app.state.ollama_client
        if injected is not None:
            return injected
    return OllamaClient(settings.ollama_host)


def get_session_manager(
    settings: Annotated[MochiServerSettings, Depends(get_settings)],
) -> SessionManager:
    """Return a manager of the app's session files.

    Raises ValueError if the app stores sessions in a database.
    """
    if settings.store_url:
        raise ValueError(
            "The sessions are in a database. Use the services of the app in place of a "
            "SessionManager."
        )
    return SessionManager(settings.resolved_sessions_dir)


async def get_services(request: Request) -> Services:
    """Return the services of the app.

    Raises RuntimeError in an app that `create_app` has not created.
    """
    if not _has_services(request):
        raise RuntimeError(
            "This app has no services of mochi-server. A router works only in the app of "
            "create_app(): mount that app, as docs/how-to/use-as-a-library.md shows."
        )
    services: Services = request.app.state.services
    return services


def _has_services(request: Request) -> bool:
    """Return whether `create_app` has created the app of the request."""
    services = getattr(request.app.state, "services", None)
    return isinstance(services, Services)


ServicesDep = Annotated[Services, Depends(get_services)]
