"""Classes of routes and routers."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.routing import Match
from starlette.types import Scope

from mochi_server.models.common import reject_unknown


class BodyReleasingRoute(APIRoute):
    """Route that frees the request body when the handler returns, not only after the response has been streamed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(self.request_for_handler(request))

        return handle

    def request_for_handler(self, request: Request) -> Request:
        """Return a copy of the request. Only the copy stores the body."""
        return Request(request.scope, request.receive)


class StrictRoute(BodyReleasingRoute):
    """Route that rejects unknown query parameters. The error names the nearest known parameter."""

    def request_for_handler(self, request: Request) -> Request:
        if request.scope["query_string"]:
            known = [parameter.alias for parameter in self.dependant.query_params]
            try:
                reject_unknown(request.query_params, known, kind="query parameter")
            except ValidationError as error:
                problems = [{**problem, "loc": ("query", *problem["loc"])} for problem in error.errors()]
                raise RequestValidationError(problems) from error
        return super().request_for_handler(request)


class PrefixRouter(APIRouter):
    """Router that ignores paths without its prefix. The routes are built when a path with the prefix is requested."""

    def __init__(self, *, prefix: str, tags: list[str]) -> None:
        super().__init__(prefix=prefix, tags=[*tags], route_class=StrictRoute)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if self.prefix in scope["path"] else (Match.NONE, {})
