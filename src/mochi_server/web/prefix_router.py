"""Router that is skipped for paths without its prefix."""

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import Scope


class PrefixRouter(APIRouter):
    """Router whose routes are neither built nor matched for paths without its prefix."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if self.prefix in scope["path"] else (Match.NONE, {})
