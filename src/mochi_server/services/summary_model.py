"""Selection of the model that summarizes a session."""

from collections.abc import Collection

from mochi_server.constants import SUMMARY_UNSUPPORTED_MODELS
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.session import SessionMetadata


class SummaryModelSelector:
    """Selector of summary models.

    In ``unsupported``, a name without a tag excludes all tags of the model.
    """

    def __init__(self, unsupported: Collection[str] = SUMMARY_UNSUPPORTED_MODELS) -> None:
        self._unsupported = {name.strip().lower() for name in unsupported}

    def choose(self, metadata: SessionMetadata) -> str | None:
        """Return the first supported model of the session's model and its ``summary_model``, or
        None.
        """
        for model in filter(None, (metadata.model, metadata.summary_model)):
            name = qualified_name(model)
            if self._unsupported.isdisjoint((name, name.rpartition(":")[0])):
                return model
        return None


SummaryModelManager = SummaryModelSelector  # the name of the documented library API
