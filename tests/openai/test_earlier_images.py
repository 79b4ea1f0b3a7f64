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

CONVERSATIONS: dict[str, list[Any]] = {
    "/v1/chat/completions": [
        {"role": "user", "content": [{"type": "text", "text": "Look!"}, OPENAI_IMAGE]},
        {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]},
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": [{"type": "text", "text": "Seen."}, OPENAI_IMAGE],
        },
    ],
    "/v1/responses": [
        {"role": "user", "content": [{"type": "input_text", "text": "Look!"}, INPUT_IMAGE]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_text", "text": "Seen."}, INPUT_IMAGE],
        },
    ],
    "/v1/messages": [
        {"role": "user", "content": [{"type": "text", "text": "Look!"}, BLOCK]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "Seen."}, BLOCK],
                }
            ],
        },
    ],
}
"""Conversations that begin with an image and end with a tool result that is an image, by route."""

REFUSED = {
    "/v1/chat/completions": {"param": "messages"},
    "/v1/responses": {"param": "input"},
    "/v1/messages": {"type": "invalid_request_error"},
}
"""Fields of the error if the newest message has an image, by route."""

LATER: list[Any] = [
    {"role": "assistant", "content": "Seen."},
    {"role": "user", "content": "And now?"},
]


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
    with RunningServer(
        tmp_path_factory.mktemp("data"), stub.url, summarization_enabled=False
    ) as server:
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


@cases("later", [[], LATER], ids=["result is newest", "question is newest"])
@cases("route", list(CONVERSATIONS))
def test_earlier_images_become_notes_for_a_blind_model(
    api: Api, stub: StubServer, route: str, later: Any
) -> None:
    response = post(api, route, CONVERSATIONS[route] + later, "blind")
    assert response.status_code == 200, response.text
    asked, _, result, *_ = sent(stub)
    assert (asked["content"], result["content"]) == (f"Look!\n{NOTE}", f"Seen.\n{NOTE}")
    assert not any("images" in message for message in sent(stub))
    codes = [notice["code"] for notice in response.json()["mochi"]["notices"]]
    assert codes == ["IMAGES_NOT_SUPPORTED"]


@cases("route", list(CONVERSATIONS))
def test_image_of_the_newest_message_is_refused(api: Api, route: str) -> None:
    question = CONVERSATIONS[route][0]
    for earlier in ([], CONVERSATIONS[route]):
        response = post(api, route, [*earlier, question], "blind")
        assert response.status_code == 400
        assert REFUSED[route].items() <= response.json()["error"].items()
        assert "does not support images" in response.text


@cases("route", list(CONVERSATIONS))
def test_seeing_model_gets_all_images(api: Api, stub: StubServer, route: str) -> None:
    assert post(api, route, CONVERSATIONS[route], "seeing").status_code == 200
    asked, _, result = sent(stub)
    assert (asked["content"], asked["images"]) == ("Look!", [DATA])
    assert (result["content"], result["images"]) == ("Seen.", [DATA])


@cases(("model", "images"), [("blind", None), ("seeing", [DATA])])
def test_session_stores_the_image_of_a_result(
    api: Api, stub: StubServer, model: str, images: Any
) -> None:
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
