"""Router that ignores paths without its prefix."""

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import Scope


class PrefixRouter(APIRouter):
    """Router that matches no path without its prefix. It builds its routes only for a path with the prefix."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if self.prefix in scope["path"] else (Match.NONE, {})
