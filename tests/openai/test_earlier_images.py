"""Images in earlier messages and tool results, for models that cannot see images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mochi_stub import Model, StubServer
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.images import PNG, base64_image
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats

DATA = base64_image(PNG)
URL = f"data:image/png;base64,{DATA}"
NOTE = "[The images are not shown, because this model cannot see images.]"
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}

OPENAI_IMAGE = {"type": "image_url", "image_url": {"url": URL}}
OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
INPUT_IMAGE = {"type": "input_image", "image_url": URL, "detail": "auto"}
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}

ANSWERED: dict[str, list[Any]] = {
    "/v1/chat/completions": [
        {"role": "user", "content": [OPENAI_IMAGE]},
        {"role": "assistant", "content": "Seen."},
        {"role": "user", "content": "And now?"},
    ],
    "/v1/responses": [
        {"role": "user", "content": [INPUT_IMAGE]},
        {"role": "assistant", "content": "Seen."},
        {"role": "user", "content": "And now?"},
    ],
    "/v1/messages": [
        {"role": "user", "content": [BLOCK]},
        {"role": "assistant", "content": "Seen."},
        {"role": "user", "content": "And now?"},
    ],
}
"""Conversations in which the user sent an image before the newest message, by route."""

RESULTS: dict[str, list[Any]] = {
    "/v1/chat/completions": [
        {"role": "user", "content": "Look!"},
        {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": [OPENAI_IMAGE]},
    ],
    "/v1/responses": [
        {"role": "user", "content": "Look!"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [INPUT_IMAGE]},
    ],
    "/v1/messages": [
        {"role": "user", "content": "Look!"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [BLOCK]}]},
    ],
}
"""Conversations that end with a tool result that is an image, by route."""

NEWEST = {route: messages[:1] for route, messages in ANSWERED.items()}


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    models = [
        Model("seeing", capabilities=("completion", "tools", "vision")),
        Model("blind", capabilities=("completion", "tools")),
    ]
    with StubServer(models=models, speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def server(stub: StubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("data"), stub.url, summarization_enabled=False) as server:
        yield server


@pytest.fixture(scope="module")
def api(server: RunningServer) -> Api:
    return server.client


def root(api: Api) -> str:
    return str(api.http.base_url).removesuffix("/api/v1/")


def post(api: Api, route: str, messages: list[Any], model: str, **headers: str) -> httpx.Response:
    body: dict[str, Any] = {"model": model, "messages": messages, "max_tokens": 100}
    if route == "/v1/responses":
        body = {"model": model, "input": messages}
    return api.http.post(f"{root(api)}{route}", json=body, headers=headers)


def sent(stub: StubServer) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = chats(stub)[-1].body["messages"]
    return messages


def assert_note_at(position: int, stub: StubServer, response: httpx.Response) -> None:
    """Fail unless the message at `position` has a note in place of its image, and the answer has a notice."""
    assert response.status_code == 200, response.text
    message = sent(stub)[position]
    assert (message["content"], message.get("images")) == (NOTE, None)
    codes = [notice["code"] for notice in response.json()["mochi"]["notices"]]
    assert codes == ["IMAGES_NOT_SUPPORTED"]


@cases("route", list(ANSWERED))
def test_earlier_image_becomes_a_note_for_a_blind_model(api: Api, stub: StubServer, route: str) -> None:
    response = post(api, route, ANSWERED[route], "blind")
    assert_note_at(0, stub, response)


@cases("route", list(RESULTS))
def test_image_of_a_result_becomes_a_note_for_a_blind_model(api: Api, stub: StubServer, route: str) -> None:
    response = post(api, route, RESULTS[route], "blind")
    assert_note_at(2, stub, response)


@cases("route", list(NEWEST))
def test_image_of_the_newest_message_is_refused(api: Api, route: str) -> None:
    response = post(api, route, NEWEST[route], "blind")
    assert response.status_code == 400
    assert "does not support images" in response.text


@cases("route", list(ANSWERED))
def test_seeing_model_gets_all_images(api: Api, stub: StubServer, route: str) -> None:
    for position, conversation in ((0, ANSWERED), (2, RESULTS)):
        assert post(api, route, conversation[route], "seeing").status_code == 200
        assert sent(stub)[position]["images"] == [DATA]


@cases(("model", "images"), [("blind", None), ("seeing", [DATA])])
def test_session_stores_the_image_of_a_result(api: Api, stub: StubServer, model: str, images: Any) -> None:
    session = api.create_session(model)["session_id"]
    question = {"role": "user", "content": instruct(calls("look"), words(2))}
    body: dict[str, Any] = {"model": model, "messages": [question], "tools": [LOOK]}
    headers = {"X-Mochi-Session": session}
    url = f"{root(api)}/v1/chat/completions"
    answer = api.ok(api.http.post(url, json=body, headers=headers))["choices"][0]["message"]
    call_id = answer["tool_calls"][0]["id"]
    result = {"role": "tool", "tool_call_id": call_id, "content": [OPENAI_IMAGE]}
    api.ok(api.http.post(url, json=body | {"messages": [result]}, headers=headers))
    assert sent(stub)[2].get("images") == images
    (reference,) = api.messages(session)[2]["images"]
    stored = api.http.get(f"/sessions/{session}/blobs/{reference['sha256']}")
    assert stored.content == PNG
