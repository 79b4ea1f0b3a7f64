"""Cloud models of the stub: listed with their remote model, never in memory."""

from collections.abc import Iterator

import pytest

from mochi_stub import Model, Remote, StubServer
from tests.stub.requests import send_message, send_request

REMOTE = {"remote_model": "gpt-oss:120b", "remote_host": "https://ollama.com:443"}


@pytest.fixture
def stub() -> Iterator[StubServer]:
    cloud = Model(
        "far:cloud", context_length=131_072, remote=Remote("gpt-oss:120b", max_num_predict=100)
    )
    with StubServer(models=[cloud, Model("near")], speed=0) as stub:
        yield stub


def test_cloud_model_is_listed_with_its_remote_model(stub: StubServer) -> None:
    far, near = send_request(stub, "GET", "/api/tags").json["models"]
    assert {name: far.get(name) for name in REMOTE} == REMOTE
    assert not near.keys() & REMOTE.keys()
    shown = send_request(stub, "POST", "/api/show", {"model": "far:cloud"}).json
    assert {name: shown[name] for name in REMOTE} == REMOTE
    assert shown["model_info"]["llama.context_length"] == 131_072


def test_cloud_model_answers_without_being_loaded(stub: StubServer) -> None:
    answer = send_message(stub, "hello", model="far:cloud", stream=False).json
    assert answer["message"]["content"]
    assert {name: answer[name] for name in REMOTE} == REMOTE
    assert send_request(stub, "GET", "/api/ps").json["models"] == []
    assert send_request(stub, "GET", "/stub/state").json["loads"] == 0


def test_cloud_model_refuses_a_too_large_limit(stub: StubServer) -> None:
    def status(num_predict: int) -> int:
        return send_message(
            stub, "hello", model="far:cloud", options={"num_predict": num_predict}
        ).status

    assert [status(number) for number in (-1, 100, 101)] == [200, 200, 400]
