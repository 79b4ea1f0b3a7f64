"""Route `/hosts`."""

from fastapi import APIRouter

from mochi_server.dependencies import ClientDep
from mochi_server.models.hosts import HostList, HostOut
from mochi_server.web.routes import StrictRoute

router = APIRouter(prefix="/hosts", tags=["models"], route_class=StrictRoute)


@router.get("")
async def list_hosts(client: ClientDep) -> HostList:
    """List the Ollama hosts with their states."""
    await client.is_reachable()
    return HostList(hosts=[HostOut.of(host) for host in client.hosts])
