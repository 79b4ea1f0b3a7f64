"""Router that ignores paths without its prefix."""

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import Scope


class PrefixRouter(APIRouter):
    """Router that ignores paths without its prefix. The routes are built when a path with the prefix is requested."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if self.prefix in scope["path"] else (Match.NONE, {})
