"""Cloud models on several hosts: they need no memory, and the refusal of their provider concerns no
other model.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from mochi_stub import Model, Remote, StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Failure, Reply
from tests.hosts.conftest import Start
from tests.hosts.test_failover import state_of
from tests.support.api import Api, text_of
from tests.support.stub import chats

MODELS = [Model("near"), Model("far:cloud", context_length=131_072, remote=Remote("far"))]


class Provider:
    """Two hosts whose provider of the cloud model refuses requests of the first one with
    ``status``.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.status = 0
        resolvers = (self._resolve, lambda _: Reply.of("Fine."))
        self.hosts = [
            stack.enter_context(StubServer(models=MODELS, speed=0, resolve=each))
            for each in resolvers
        ]

    def _resolve(self, prompt: Prompt) -> Reply:
        is_refused = self.status and prompt.model == "far:cloud"
        return (
            Reply([Failure("refused by the provider", self.status)])
            if is_refused
            else Reply.of("Fine.")
        )


@pytest.fixture
def provider() -> Iterator[Provider]:
    with ExitStack() as stack:
        yield Provider(stack)


def session_on(api: Api, model: str, host: str) -> str:
    session_id = str(api.create_session(model)["session_id"])
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": host}))
    api.send_message(session_id, "Hello!")
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": None}))
    return session_id


def last_host(api: Api, session_id: str) -> dict[str, str]:
    host: dict[str, str] = api.ok(api.http.get(f"/sessions/{session_id}/status"))["last_host"]
    return host


@pytest.mark.parametrize("status", [401, 403, 429, 502])
def test_refusal_of_the_provider_does_not_leave_the_host(
    start: Start, provider: Provider, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    api = start(f"a={provider.hosts[0].url}", f"b={provider.hosts[1].url}").api()
    far, near = session_on(api, "far:cloud", "a"), session_on(api, "near", "a")
    provider.status = status
    assert text_of(api.stream_message(far, "And now?")) == "Fine."
    assert last_host(api, far) == {"name": "b", "reason": "failover"}
    assert "Ollama host left" not in caplog.text
    assert state_of(api, "a") == "up"
    api.send_message(near, "And now?")
    assert last_host(api, near)["name"] == "a"


def test_cloud_model_does_not_count_as_loaded(start: Start, provider: Provider) -> None:
    """If it did, the server would conclude from the next list of loaded models that it was removed
    from memory.
    """
    server = start(f"a={provider.hosts[0].url}", f"b={provider.hosts[1].url}")
    api = server.api()
    session_on(api, "near", "a")
    session_on(api, "far:cloud", "a")
    host = server.app.state.services.fleet.hosts[0]
    assert {*host.client.last_windows} == {"near:latest"}
    assert len(chats(provider.hosts[0])) == 2
