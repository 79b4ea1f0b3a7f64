"""Factory of the FastAPI application: services, routes, exception handlers and middleware."""

import logging
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from pydantic import SecretStr
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from mochi_server import __version__
from mochi_server.config import MochiServerSettings, environment_problems, with_given_host
from mochi_server.constants import API_PREFIX, TOTAL_HEADER
from mochi_server.container import DEFAULT_COMPONENTS, Components, build_services
from mochi_server.ollama.injected_client import ChatClient, StructuredClient
from mochi_server.protocols import load_protocols
from mochi_server.routers import ALIASED, API, ROOT
from mochi_server.routers.health import WITHOUT_KEY
from mochi_server.services.keys import KeyRing
from mochi_server.util.net import is_loopback
from mochi_server.web.api_docs import PUBLIC_PAGES, add_docs, document
from mochi_server.web.middleware import (
    LOCAL_ORIGINS,
    answer_head,
    check_requests,
    head_check,
    host_check,
    ignore_trailing_slash,
    json_check,
    key_check,
    limit_bodies,
    origin_check,
    user_check,
)
from mochi_server.web.request_log import HEADER, RequestLogMiddleware, hide_query
from mochi_server.web.routes import add_handlers, any_error

_DOCUMENT_LOCK = threading.Lock()

logger = logging.getLogger(__name__)


def create_app(
    settings: MochiServerSettings | None = None,
    *,
    insecure: bool = False,
    ollama_client: ChatClient | None = None,
    instructor_client: StructuredClient | None = None,
    components: Components = DEFAULT_COMPONENTS,
    **overrides: Any,
) -> FastAPI:
    """Return the ASGI application.

    ``overrides`` are settings by name. They take precedence over ``settings`` and environment
    variables. If ``insecure`` is true, API keys are optional. ``ollama_client`` answers in place of
    Ollama, for example in tests, and ``instructor_client`` writes the summaries. ``components``
    replace parts and limits that have no setting, such as the session stores. If the settings
    contain no key and listen on an address that other machines can reach, the app generates a key
    and logs it at its start.

    Raises ``pydantic.ValidationError`` for invalid settings, ``KeysFileInvalid`` for an invalid
    keys file.
    """
    overrides = with_given_host(overrides)
    if settings is None:
        settings = MochiServerSettings(**overrides)
        for problem in environment_problems(os.environ):
            logger.warning("%s", problem)
    elif overrides:
        settings = MochiServerSettings(**{**settings.model_dump(exclude_unset=True), **overrides})

    settings, generated_key = with_key(settings, insecure=insecure)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if generated_key is not None:
            logger.warning(
                "API key generated for this run: %s. Set MOCHI_API_KEYS to choose the keys.",
                generated_key,
            )
        _replace_closed_services(app)
        try:
            await app.state.services.open()
            yield
        finally:
            await app.state.services.aclose()

    middleware = _middleware(settings, lambda: app.state.services.keys, insecure=insecure)
    if settings.store_url:  # several servers can share the database
        from mochi_server.cluster.middleware import ClusterMiddleware  # noqa: PLC0415 - its driver is optional

        middleware = [
            Middleware(
                ClusterMiddleware, guards=middleware, peers=lambda: app.state.services.stores.peers
            )
        ]
    middleware[:0] = [Middleware(ignore_trailing_slash), Middleware(answer_head)]
    app: FastAPI = _App(
        title="mochi-server",
        version=__version__,
        description="A headless chat backend for Ollama.",
        lifespan=lifespan,
        middleware=middleware,
        generate_unique_id_function=lambda route: route.name,
        redirect_slashes=False,  # ``ignore_trailing_slash`` removes them
        openapi_url=None,  # ``add_docs`` adds the pages
    )
    app.state.settings, app.state.ollama_client = settings, ollama_client
    app.state.components = components = replace(
        components, instructor_client=instructor_client or components.instructor_client
    )
    app.state.services = build_services(settings, ollama_client, components)
    app.state.protocols = list(load_protocols())
    add_handlers(app)
    _include_routers(app)
    add_docs(app)
    return app


def _include_routers(app: FastAPI) -> None:
    # Routers are included directly, because FastAPI matches nested routers once per level.
    for router in API:
        app.include_router(router, prefix=API_PREFIX, responses=any_error())
    for protocol in app.state.protocols:
        app.include_router(
            protocol.router, prefix=protocol.prefix, responses=any_error(protocol.errors)
        )
    for router in ROOT:
        app.include_router(router, responses=any_error())
    for router in ALIASED:
        app.include_router(router, include_in_schema=False)


def _replace_closed_services(app: FastAPI) -> None:
    if app.state.services.is_closed:  # the app starts again
        state = app.state
        state.services = build_services(state.settings, state.ollama_client, state.components)


def with_key(
    settings: MochiServerSettings, *, insecure: bool
) -> tuple[MochiServerSettings, str | None]:
    """Return settings with a generated API key, and the key.

    If the settings need none, return them and None.
    """
    if settings.api_keys or settings.api_keys_file or insecure or is_loopback(settings.host):
        return settings, None
    key = secrets.token_urlsafe(24)
    return settings.model_copy(update={"api_keys": (SecretStr(key),)}), key


class _App(FastAPI):
    """FastAPI app with an extended OpenAPI document.

    The app also logs requests that end with an unexpected error. FastAPI's spans do not contain the
    queries of requests.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hide_query(scope)
        await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        with _DOCUMENT_LOCK:  # simultaneous first requests make one document
            self.openapi_schema = self.openapi_schema or document(self)
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        def on_ended(method: str, status: int | None, error: str | None) -> None:
            self.state.services.metrics.request_ended(method, status, error)

        return RequestLogMiddleware(super().build_middleware_stack(), on_ended)


def _middleware(
    settings: MochiServerSettings, key_ring: Callable[[], KeyRing], *, insecure: bool
) -> list[Middleware]:
    """Return the middleware, outermost first.

    A web page can read only the errors of the middleware inside ``CORSMiddleware``.
    """
    origins = settings.allowed_origins
    keys = key_check(key_ring, insecure=insecure, exempt=WITHOUT_KEY | PUBLIC_PAGES)
    hosts = [host_check(origins)] if is_loopback(settings.host) else []
    return [
        Middleware(check_requests, checks=[head_check, *hosts, origin_check(origins), user_check]),
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_origin_regex=LOCAL_ORIGINS,
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=[
                HEADER,
                "request-id",
                TOTAL_HEADER,
                "Retry-After",
                "Content-Disposition",
            ],
        ),
        Middleware(check_requests, checks=[keys, json_check]),
        Middleware(limit_bodies, max_bytes=settings.max_body_bytes),
    ]
