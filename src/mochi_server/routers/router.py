"""A router that requests for other paths pass by."""

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import Scope


class Router(APIRouter):
    """Its routes are looked at only where its prefix is in the path: most requests are for another one."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if self.prefix in scope["path"] else (Match.NONE, {})
