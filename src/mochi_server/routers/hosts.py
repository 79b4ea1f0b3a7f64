"""Route `/hosts`."""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from mochi_server.dependencies import ClientDep
from mochi_server.inference.placement import Host
from mochi_server.web.routes import StrictRoute


class OllamaHost(BaseModel):
    """An Ollama host. A `draining` host was removed from the list of hosts: it gets no new turns."""

    name: str
    url: str = Field(description="URL without credentials.")
    state: Literal["up", "down", "draining"]
    reason: str | None = Field(description="Why the host is down, or null.")
    version: str = Field(description="Version of Ollama, empty if it is unknown.")
    running: int = Field(description="Number of requests of this server that run on the host.")
    queued: int = Field(description="Number of requests that wait in this server for a slot of the host.")
    slots: int | None = Field(description="Number of requests that the host takes at a time. Null means no limit.")

    @classmethod
    def of(cls, host: Host) -> "OllamaHost":
        queue, reason = host.queue, host.failure.message if host.failure else None
        return cls(
            name=host.name, url=host.client.endpoint.url, state=host.state, reason=reason,
            version=host.client.version, running=queue.running, queued=queue.waiting, slots=queue.limit,
        )  # fmt: skip


class HostList(BaseModel):
    """All Ollama hosts, in the configured order."""

    hosts: list[OllamaHost]


router = APIRouter(prefix="/hosts", tags=["models"], route_class=StrictRoute)


@router.get("")
async def list_hosts(client: ClientDep) -> HostList:
    """List the Ollama hosts with their states."""
    await client.is_reachable()
    return HostList(hosts=[OllamaHost.of(host) for host in client.hosts])
