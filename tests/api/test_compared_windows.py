"""The window of a model that several requests compare at once."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from mochi_stub.prompt import Prompt
from mochi_stub.reply import Failure, Gate, Reply
from tests.api.test_compare import compare, requests_of
from tests.support.cases import cases
from tests.support.server import RunningServer
from tests.support.stub import ModelStub


@pytest.fixture(scope="module")
def models() -> Iterator[ModelStub]:
    with ModelStub() as models:
        yield models


@pytest.fixture(scope="module")
def models_server(
    models: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server in front of `models`, to which each test adds its own."""
    with RunningServer(tmp_path_factory.mktemp("models"), models.url) as server:
        yield server


@cases(
    ("failure", "windows"),
    [
        (Failure("cudaMalloc failed: out of memory"), {8192: 3, 4096: 3}),
        (
            Failure("request (9001 tokens) exceeds the available context size (8192 tokens)", 400),
            {8192: 3, 16384: 3},
        ),
    ],
)
def test_simultaneous_refusals_change_the_window_once(
    models_server: RunningServer, models: ModelStub, failure: Failure, windows: dict[int, int]
) -> None:
    def resolve(prompt: Prompt) -> Reply:
        return Reply([gate, failure]) if prompt.options["num_ctx"] == 8192 else Reply.of("Fine.")

    gate, number, model = Gate(), 3, models.add_model(resolve)
    with ThreadPoolExecutor() as pool:
        body = {"modelIds": [model], "message": "x" * 2500}
        comparisons = [pool.submit(compare, models_server, body) for _ in range(number)]
        models.wait_for(lambda _: len(requests_of(models, model)) == number)
        gate.open()
        assert [comparison.result()[-2][0] for comparison in comparisons] == ["done"] * number
    assert (
        Counter(sent.body["options"]["num_ctx"] for sent in requests_of(models, model) if sent.body)
        == windows
    )
