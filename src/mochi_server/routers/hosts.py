"""Route `/hosts`."""

from typing import Any, Literal

from fastapi import APIRouter
from pydantic import AliasPath, Field

from mochi_server.dependencies import ServicesDep
from mochi_server.schemas.common import Schema
from mochi_server.web.routes import StrictRoute


class OllamaHost(Schema):
    """An Ollama host.

    Its URL has no credentials. A `draining` host was removed from the list: it gets no new turns.
    """

    name: str
    url: str = Field(validation_alias=AliasPath("client", "endpoint", "url"))
    state: Literal["up", "down", "draining"]
    reason: str | None = Field(
        None, validation_alias=AliasPath("failure", "message")
    )  # of the state `down`
    running: int = Field(validation_alias=AliasPath("queue", "running"))
    queued: int = Field(validation_alias=AliasPath("queue", "waiting"))


class HostList(Schema):
    """All Ollama hosts, with the numbers of this server's requests that run on them or wait for
    them.
    """

    hosts: list[OllamaHost]


router = APIRouter(prefix="/hosts", tags=["models"], route_class=StrictRoute)


@router.get("", response_model=HostList)
async def list_hosts(services: ServicesDep) -> dict[str, Any]:
    """List the Ollama hosts with their states."""
    await services.fleet.is_reachable()
    return {"hosts": services.fleet.hosts}
