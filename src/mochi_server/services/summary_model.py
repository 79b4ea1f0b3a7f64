"""Selection of the model that summarizes a session."""

from collections.abc import Collection

from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.session import SessionMetadata


class SummaryModelManager:
    """Selector of summary models. In ``unsupported``, a name without a tag excludes all tags of the model."""

    def __init__(self, unsupported: Collection[str]) -> None:
        self._unsupported = {name.strip().lower() for name in unsupported}

    def supports(self, model: str) -> bool:
        """Return whether a model may write summaries. Return False for the ``unsupported`` models."""
        name = qualified_name(model)
        return name not in self._unsupported and name.rpartition(":")[0] not in self._unsupported

    def choose(self, metadata: SessionMetadata) -> str | None:
        """Return the first supported model of the session's model and its ``summary_model``, or None."""
        candidates = (metadata.model, metadata.summary_model)
        return next((model for model in candidates if model and self.supports(model)), None)
