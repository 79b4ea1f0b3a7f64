"""The backend of Open WebUI with this server as its only source of models.

Open WebUI has 7 GB of dependencies, so it is not installed with the other tools of the tests.
Install it in an environment of its own, and set `OPEN_WEBUI` to the path of its command.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mochi_stub import StubServer
from tests.support.instructions import calls, instruct, words
from tests.support.ports import free_port
from tests.support.server import RunningServer
from tests.support.tools import LOOK
from tests.support.waiting import until

COMMAND = os.environ.get("OPEN_WEBUI", "")
_START_SECONDS = 180
CITY = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not COMMAND, reason="OPEN_WEBUI is not set: the installation takes minutes and 7 GB"
    ),
]


@pytest.fixture(scope="module")
def webui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Yield a client of Open WebUI that is signed in."""
    data = tmp_path_factory.mktemp("open-webui")
    with StubServer(speed=0) as stub, RunningServer(data / "mochi", stub.url) as server:
        port = free_port()
        environment = {
            **os.environ,
            "DATA_DIR": str(data),
            "ENABLE_OLLAMA_API": "False",
            "HF_HUB_OFFLINE": "1",
            "OFFLINE_MODE": "True",
            "OPENAI_API_BASE_URLS": f"{server.url}/v1",
            "OPENAI_API_KEYS": "any",
            "RAG_EMBEDDING_ENGINE": "openai",  # otherwise it loads an embedding model
            "WEBUI_AUTH": "False",
            "WEBUI_SECRET_KEY": "secret",
        }
        command = [COMMAND, "serve", "--host", "127.0.0.1", "--port", str(port)]
        with (
            (data / "log").open("wb") as log,
            subprocess.Popen(
                command, env=environment, cwd=data, stdout=log, stderr=subprocess.STDOUT
            ) as process,
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        ):
            try:
                until(lambda: process.poll() is not None or _is_ready(client), _START_SECONDS)
                signed_in = client.post("/api/v1/auths/signin", json={"email": "", "password": ""})
                client.headers["Authorization"] = f"Bearer {signed_in.json()['token']}"
                client.get(
                    "/api/models"
                ).raise_for_status()  # it only accepts models that it has listed
                yield client
            finally:
                process.terminate()


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health").is_success
    except httpx.TransportError:
        return False


def ask(
    webui: httpx.Client, *messages: dict[str, Any], model: str = "mochi:latest", **fields: Any
) -> httpx.Response:
    return webui.post(
        "/api/chat/completions", json={"model": model, "messages": list(messages), **fields}
    )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_models_of_the_server_are_listed(webui: httpx.Client) -> None:
    assert "mochi:latest" in [model["id"] for model in webui.get("/api/models").json()["data"]]


def test_whole_answer(webui: httpx.Client) -> None:
    (choice,) = ask(webui, user(instruct(words(5)))).json()["choices"]
    assert len(choice["message"]["content"].split()) >= 5


def test_streamed_answer(webui: httpx.Client) -> None:
    lines = ask(webui, user(instruct(words(5))), stream=True).text.split("\n\n")
    events = [line.removeprefix("data: ") for line in lines if line]
    assert events.pop() == "[DONE]"
    deltas = [
        choice["delta"].get("content") or ""
        for event in events
        for choice in json.loads(event)["choices"]
    ]
    assert len(deltas) > 1
    whole = ask(webui, user(instruct(words(5)))).json()["choices"][0]["message"]["content"]
    assert "".join(deltas) == whole


def test_round_trip_of_a_tool_call(webui: httpx.Client) -> None:
    question = user(instruct(calls("look", at="Oslo"), words(3)))
    called = ask(webui, question, tools=[LOOK]).json()["choices"][0]
    (call,) = called["message"]["tool_calls"]
    assert (called["finish_reason"], call["function"]["name"]) == ("tool_calls", "look")
    assert json.loads(call["function"]["arguments"]) == {"at": "Oslo"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "rain"}
    answer = ask(webui, question, called["message"], result, tools=[LOOK]).json()["choices"][0]
    assert answer["finish_reason"] == "stop"
    assert answer["message"]["content"]


def test_structured_output(webui: httpx.Client) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    answer = ask(webui, user("Name a city."), response_format=form).json()["choices"][0]["message"][
        "content"
    ]
    assert json.loads(answer).keys() == {"name"}


def test_embeddings(webui: httpx.Client) -> None:
    sent = webui.post(
        "/api/embeddings", json={"model": "mochi-embed:latest", "input": ["one", "two"]}
    ).json()
    assert [entry["index"] for entry in sent["data"]] == [0, 1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "status", "code"),
    [("rate-limited", 429, "ollama_busy"), ("failing", 502, "ollama_error")],
)
def test_error_keeps_its_status(
    webui: httpx.Client, model: str, status: int, code: str, stream: bool
) -> None:
    refused = ask(webui, user("Hello!"), model=f"{model}:latest", stream=stream)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
