"""Instructor's modes that require a tool call, and those that put the schema into the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import instructor
import pytest
from pydantic import BaseModel, Field

from mochi_stub import StubServer
from tests.stub.clients import anthropic_client, gemini_client, openai_client

pytestmark = pytest.mark.slow
MESSAGES = [{"role": "user", "content": "Ada Lovelace is 36 years old."}]


class Pet(BaseModel):
    kind: str
    weight: float | None = None


class Person(BaseModel):
    """A person in a text."""

    name: str = Field(min_length=3, max_length=40)
    age: int = Field(ge=0, le=120)
    pets: list[Pet]


@pytest.mark.parametrize("model", ["mochi", "mochi-demo", "echo"])
@pytest.mark.parametrize("mode", ["TOOLS", "TOOLS_STRICT", "RESPONSES_TOOLS"])
def test_openai(packaged_stub: StubServer, mode: str, model: str) -> None:
    with openai_client(packaged_stub) as client:
        assert (
            _person(instructor.from_openai(client, mode=instructor.Mode[mode]), model=model).age
            == 36
        )


@pytest.mark.parametrize("mode", ["JSON", "MD_JSON"])
def test_schema_in_the_prompt(packaged_stub: StubServer, mode: str) -> None:
    with openai_client(packaged_stub) as client:
        assert _person(
            instructor.from_openai(client, mode=instructor.Mode[mode]), model="mochi-demo"
        ).name


def test_default_for_ollama(packaged_stub: StubServer) -> None:
    client: Any = instructor.from_provider("ollama/mochi-demo", base_url=f"{packaged_stub.url}/v1")
    assert _person(client).name
    client.client.close()


@pytest.mark.parametrize("mode", ["ANTHROPIC_TOOLS", "ANTHROPIC_REASONING_TOOLS"])
def test_anthropic(packaged_stub: StubServer, mode: str) -> None:
    with anthropic_client(packaged_stub) as client:
        wrapped = instructor.from_anthropic(client, mode=instructor.Mode[mode])
        assert _person(wrapped, model="mochi", max_tokens=4000).age == 36


def test_gemini(packaged_stub: StubServer) -> None:
    with gemini_client(packaged_stub) as client:
        wrapped = instructor.from_genai(client, mode=instructor.Mode.GENAI_TOOLS)
        assert _person(wrapped, model="mochi").age == 36


@pytest.mark.parametrize(
    "read", [lambda client: client.create_partial, lambda client: client.create_iterable]
)
def test_streamed_call(packaged_stub: StubServer, read: Callable[[Any], Any]) -> None:
    with openai_client(packaged_stub) as client:
        create = read(instructor.from_openai(client, mode=instructor.Mode.TOOLS))
        found = list(create(model="mochi", response_model=Person, messages=MESSAGES))
    assert found[-1].pets


def test_parallel_calls_of_named_tools(packaged_stub: StubServer) -> None:
    messages = [{"role": "user", "content": "Find the Person and the Pet."}]
    with openai_client(packaged_stub) as client:
        wrapped = instructor.from_openai(client, mode=instructor.Mode.PARALLEL_TOOLS)
        found = wrapped.create(
            model="mochi-demo", response_model=Iterable[Person | Pet], messages=messages
        )
        assert [type(item) for item in found] == [Person, Pet]


def _person(client: Any, **fields: Any) -> Person:
    found = client.create(response_model=Person, messages=MESSAGES, max_retries=0, **fields)
    assert isinstance(found, Person)
    return found
