"""Server with a read-only and a writing tool and an agent, and the official client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from mochi_stub import StubServer
from tests.anthropic.conversation import Conversation, client_of
from tests.openai.conftest import data_dir, server, stub  # noqa: F401 - fixtures
from tests.support.server import RunningServer

if TYPE_CHECKING:
    import anthropic


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[anthropic.Anthropic]:  # noqa: F811 - the fixture
    with client_of(server) as client:
        yield client


@pytest.fixture
def conversation(
    client: anthropic.Anthropic,
    stub: StubServer,  # noqa: F811 - the fixture
    request: pytest.FixtureRequest,
) -> Conversation:
    """Return a conversation whose answers are streamed if the test is marked `STREAMED` and has the
    parameter True.
    """
    return Conversation(client, stub, stream=getattr(request, "param", False))
