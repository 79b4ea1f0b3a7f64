"""The standard tests of LangChain for the chat models of Ollama, OpenAI, Anthropic and Gemini."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.output_parsers import PydanticOutputParser
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests
from pydantic import BaseModel, SecretStr

from mochi_stub import StubServer

pytestmark = pytest.mark.slow
KEY = "sk-secret"


class _StandardTests(ChatModelIntegrationTests):
    """Standard tests of a chat model whose address is that of the stub."""

    path = ""

    @pytest.fixture(autouse=True)
    def _stub(self, packaged_stub: StubServer) -> None:
        self.url = packaged_stub.url + self.path

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "mochi-demo", "base_url": self.url}

    @property
    def model_override_value(self) -> str:
        return "mochi"


class Person(BaseModel):
    name: str
    age: int


def test_json_mode_with_the_schema_in_the_prompt(packaged_stub: StubServer) -> None:
    instructions = PydanticOutputParser(pydantic_object=Person).get_format_instructions()
    for model in (
        ChatOllama(base_url=packaged_stub.url, model="mochi-demo"),
        ChatOpenAI(base_url=f"{packaged_stub.url}/v1", api_key=SecretStr(KEY), model="mochi-demo"),
    ):
        found = model.with_structured_output(Person, method="json_mode").invoke(
            f"Ada is 36.\n{instructions}"
        )
        assert isinstance(found, Person)


class TestOllama(_StandardTests):
    @property
    def chat_model_class(self) -> type[ChatOllama]:
        return ChatOllama

    @property
    def has_tool_choice(self) -> bool:
        return False  # Ollama's API cannot require a tool call


class TestOpenAI(_StandardTests):
    path = "/v1"

    @property
    def chat_model_class(self) -> type[ChatOpenAI]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**super().chat_model_params, "api_key": KEY, "stream_usage": True}


class TestOpenAIResponses(TestOpenAI):
    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**super().chat_model_params, "use_responses_api": True}


class TestAnthropic(_StandardTests):
    @property
    def chat_model_class(self) -> type[ChatAnthropic]:
        return ChatAnthropic

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**super().chat_model_params, "api_key": KEY}


class TestGemini(_StandardTests):
    @property
    def chat_model_class(self) -> type[ChatGoogleGenerativeAI]:
        return ChatGoogleGenerativeAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {**super().chat_model_params, "api_key": KEY}

    @property
    def supports_model_override(self) -> bool:
        return False  # the client refuses the parameter
