"""Models that the current caller may use. Others do not exist for it."""

from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from mochi_server.errors import ModelNotFound
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.caller import CALLER

_Result = TypeVar("_Result")


def is_permitted(name: str) -> bool:
    return CALLER.get().permissions.allow_model(qualified_name(name))


def permitted(models: list[ModelInfo]) -> list[ModelInfo]:
    return [model for model in models if is_permitted(model.name)]


async def request_permitted(
    client: AsyncOllamaClient,
    name: str,
    request: Callable[[AsyncOllamaClient], Awaitable[_Result]],
    kind: Literal["chat", "embedding"] = "chat",
) -> _Result:
    """Send a request that names a model.

    Raises the error of an unknown name if the caller may not use the model. Such an error does not
    contain other names that the caller may not use.
    """
    try:
        if not is_permitted(name):
            raise await client.not_found(name, kind)
        return await request(client)
    except ModelNotFound as error:
        names = [each for each in error.models if is_permitted(each)]
        if len(names) == len(error.models):
            raise
        raise error.with_models(names) from None
