"""Which model summarizes a session. Knows no conversation and asks no model."""

from collections.abc import Collection

from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.session import SessionMetadata


class SummaryModelManager:
    """Chooses among the chat's model and the session's own; ``unsupported`` are names, with or without a tag."""

    def __init__(self, unsupported: Collection[str]) -> None:
        self._unsupported = {name.strip().lower() for name in unsupported}

    def supports(self, model: str) -> bool:
        """Whether a model is known to do without structured answers; a name without a tag means all its tags."""
        name = qualified_name(model)
        return name not in self._unsupported and name.rpartition(":")[0] not in self._unsupported

    def choose(self, metadata: SessionMetadata) -> str | None:
        """The model that summarizes a session by itself; None when there is no suitable one."""
        candidates = (metadata.model, metadata.summary_model)
        return next((model for model in candidates if model and self.supports(model)), None)
