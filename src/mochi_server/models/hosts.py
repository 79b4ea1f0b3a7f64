"""Schemas of the Ollama hosts."""

from typing import Literal

from pydantic import BaseModel, Field

from mochi_server.inference.gateway import ModelHost


class HostOut(BaseModel):
    """An Ollama host. The URL contains no credentials."""

    name: str
    url: str
    state: Literal["up", "down", "draining"] = Field(
        description="A `draining` host was removed from the list of hosts: it gets no new turns."
    )
    reason: str | None = Field(description="Why the host is down, or null.")
    version: str | None = Field(description="Version of Ollama, or null if it is unknown.")
    running: int = Field(description="Number of requests of this server that run on the host.")
    queued: int = Field(description="Number of requests that wait in this server for a slot of the host.")
    slots: int | None = Field(description="Number of requests that the host takes at a time. Null means no limit.")
    loaded_models: list[str]

    @classmethod
    def of(cls, host: ModelHost) -> "HostOut":
        return cls(
            name=host.name,
            url=host.client.endpoint.url,
            state=host.state,
            reason=host.failure.message if host.failure else None,
            version=host.client.version or None,
            running=host.queue.running,
            queued=host.queue.waiting,
            slots=host.queue.limit,
            loaded_models=[*(host.client.last_windows or ())],
        )


class HostList(BaseModel):
    """All Ollama hosts, in the order of the configuration."""

    hosts: list[HostOut]
