"""Images in the results of MCP tools: stored with the result and sent to models that can see."""

from collections.abc import Iterator
from typing import Any

import pytest

from mochi_stub import Model, StubServer
from tests.api.test_images import sent_images
from tests.mcp.patient_server import PatientServer
from tests.support.agents import delegate, nested, write_agent
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.images import GIF, PNG, base64_image, sha256_of
from tests.support.instructions import calls, instruct, words
from tests.support.mcp import by_hand, write_mcp
from tests.support.stub import chats
from tests.support.waiting import until

IMAGES = [base64_image(PNG), base64_image(GIF)]
REFERENCES = [
    {"sha256": sha256_of(PNG), "media_type": "image/png"},
    {"sha256": sha256_of(GIF), "media_type": "image/gif"},
]
RESULT = """A dot and a blob:
[image, image/png, 70 bytes: image 1 of this result]
[resource file:///a.gif, image/gif, 42 bytes: image 2 of this result]"""


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[StubServer]:
    models = [
        Model("eye", ("completion", "tools", "vision")),
        Model("blind", ("completion", "tools")),
    ]
    with StubServer(speed=0, models=models) as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PatientServer]:
    """A server with the MCP tool `picture`."""
    data_dir = tmp_path_factory.mktemp("pictures")
    write_mcp(data_dir, hand=by_hand(data_dir, "picture"))
    skill = "---\ndescription: Helps.\nmcp_tools: picture\n---\nYou help.\n"
    write_agent(data_dir, "looker", SKILL=skill, looker=None, __init__=None)
    with PatientServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        yield server


@pytest.fixture(scope="module")
def parking(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PatientServer]:
    """A server with the MCP tool `picture` that parks turns at once."""
    data_dir = tmp_path_factory.mktemp("parking")
    write_mcp(data_dir, hand=by_hand(data_dir, "picture"))
    with PatientServer(
        data_dir, shared_stub.url, park_seconds=0, summarization_enabled=False
    ) as server:
        yield server


def session_with(api: Api, model: str) -> str:
    settings = {"tool_group": "hand", "execution_policy": "never_confirm"}
    return str(api.create_session(model, tool_settings=settings)["session_id"])


def result_of(api: Api, session_id: str) -> dict[str, Any]:
    return next(message for message in api.messages(session_id) if message["role"] == "tool")


def test_model_that_can_see_gets_the_images_of_a_result(api: Api, stub: StubServer) -> None:
    session_id = session_with(api, "eye")
    api.send_message(session_id, instruct(calls("picture"), words(2)))
    assert sent_images(stub) == [None, None, IMAGES]
    stored = result_of(api, session_id)
    assert (stored["content"], stored["images"]) == (RESULT, REFERENCES)
    assert api.http.get(f"/sessions/{session_id}/blobs/{sha256_of(GIF)}").content == GIF


def test_regenerated_answer_gets_the_images_before_they_are_stored(
    api: Api, stub: StubServer
) -> None:
    session_id = session_with(api, "eye")
    api.send_message(session_id, instruct(calls("picture"), words(2)))
    api.ok(api.http.post(f"/chat/{session_id}"))
    assert sent_images(stub) == [None, None, IMAGES]
    assert result_of(api, session_id)["images"] == REFERENCES
    assert api.http.get(f"/sessions/{session_id}/blobs/{sha256_of(PNG)}").content == PNG


@cases("is_stopped", [False, True])
def test_suspended_regeneration_keeps_the_images_of_its_results(
    parking: PatientServer, shared_stub: StubServer, *, is_stopped: bool
) -> None:
    api = parking.client
    session_id = session_with(api, "eye")
    api.send_message(session_id, instruct(calls("picture"), calls("picture"), words(2)))
    old = api.messages(session_id)
    asking = {"tool_group": "hand", "execution_policy": "always_confirm"}
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"tool_settings": asking}))
    api.ok(api.http.post(f"/chat/{session_id}", json={"background": True}), 202)
    approve(api, session_id)
    if is_stopped:
        until(lambda: waiting(api, session_id))
        api.ok(api.http.post(f"/chat/{session_id}/stop"))
    else:
        approve(api, session_id)
        until(lambda: api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] == "completed")
        assert sent_images(shared_stub) == [None, None, IMAGES, None, IMAGES]
    results = [message for message in api.messages(session_id) if message["role"] == "tool"]
    assert len(results) == 2
    assert results[0]["message_id"] != old[2]["message_id"]
    assert results[0]["images"] == REFERENCES
    assert api.http.get(f"/sessions/{session_id}/blobs/{sha256_of(PNG)}").content == PNG


def waiting(api: Api, session_id: str) -> list[dict[str, Any]]:
    listed = api.ok(api.http.get(f"/chat/{session_id}/confirmations"))
    confirmations: list[dict[str, Any]] = listed["confirmations"]
    return confirmations


def approve(api: Api, session_id: str) -> None:
    """Approve the next call that waits."""
    until(lambda: waiting(api, session_id))
    body = {"confirmation_id": waiting(api, session_id)[0]["confirmation_id"], "approved": True}
    api.ok(api.http.post(f"/chat/{session_id}/confirm-tool", json=body))


def test_model_that_cannot_see_gets_a_note(api: Api, stub: StubServer) -> None:
    session_id = session_with(api, "blind")
    api.send_message(session_id, instruct(calls("picture"), words(2)))
    assert sent_images(stub) == [None, None, None]
    sent = chats(stub)[-1].body["messages"][-1]
    assert (
        sent["content"]
        == f"{RESULT}\n[The images are not shown, because this model cannot see images.]"
    )
    assert result_of(api, session_id)["content"] == RESULT


def test_agent_gets_the_images_of_a_result(api: Api, stub: StubServer) -> None:
    agents, tools = (
        {"enabled_agents": ["looker"]},
        {"tools": [], "execution_policy": "never_confirm"},
    )
    session_id = api.create_session("eye", agent_settings=agents, tool_settings=tools)["session_id"]
    api.send_message(
        session_id, nested(delegate(words(1), calls("picture"), words(2), agent="looker"), words(3))
    )
    bodies = [exchange.body for exchange in chats(stub)]
    shown = [
        [m["images"] for m in body["messages"] if m.get("images")]
        for body in bodies
        if body is not None
    ]
    assert shown[-2:] == [[IMAGES], []]
