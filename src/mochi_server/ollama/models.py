"""Which models there are: the readings both clients make of ``/api/tags`` and ``/api/show``.

``/api/show`` is asked once per digest, and only for what the list leaves open; pure but for that memory.
"""

from collections.abc import Mapping
from typing import Any

from mochi_server.errors import ModelNotFound, OllamaError
from mochi_server.ollama.requests import name_of, qualified, read_show, read_tag, with_details
from mochi_server.ollama.types import ModelDetails, ModelInfo


class ModelShelf:
    """The entries of one ``/api/tags`` answer, in its order."""

    def __init__(self, tags: object, known: Mapping[str, ModelDetails]) -> None:
        entries = tags.get("models") if isinstance(tags, Mapping) else None
        if not isinstance(entries, list):
            raise OllamaError("Ollama's list of models is not one.")
        self._entries: list[Mapping[str, Any]] = [entry for entry in entries if isinstance(entry, Mapping)]
        self._known = known

    def unknown(self) -> list[tuple[str, str]]:
        """(name, digest) of the models that the list does not say enough about."""
        return [
            (info.name, digest_of(entry))
            for entry in self._entries
            for info, complete in [read_tag(entry)]
            if not complete and digest_of(entry) not in self._known
        ]

    def chat_models(self) -> list[ModelInfo]:
        """Every model that can chat."""
        return [info for entry in self._entries if (info := self._info(entry)).can("completion")]

    def find(self, name: str) -> tuple[ModelInfo, str]:
        """A model by its name, tag optional, and its digest. Raises ``ModelNotFound``."""
        wanted = qualified(name)
        for entry in self._entries:
            if qualified(name_of(entry)) == wanted:
                return self._info(entry), digest_of(entry)
        raise ModelNotFound(name)

    def chat_model(self, name: str) -> ModelInfo:
        """A model that can chat, by its name, tag optional. Raises ``ModelNotFound``."""
        model, _ = self.find(name)
        if not model.can("completion"):
            raise ModelNotFound(name)
        return model

    def _info(self, entry: Mapping[str, Any]) -> ModelInfo:
        info, _ = read_tag(entry)
        details = self._known.get(digest_of(entry))
        return info if details is None else with_details(info, details)


def digest_of(entry: Mapping[str, Any]) -> str:
    """What identifies a model's content; its name where a server sends no digest."""
    return str(entry.get("digest") or entry.get("name"))


def details_of(body: object) -> ModelDetails:
    """Read ``/api/show``. A server too old to name capabilities has chat models only."""
    if not isinstance(body, Mapping):
        raise OllamaError("Ollama's description of a model is not one.")
    return read_show(body if "capabilities" in body else {**body, "capabilities": ["completion"]})
