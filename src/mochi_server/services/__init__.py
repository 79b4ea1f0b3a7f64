"""One question each, no HTTP."""

from mochi_server.services.context_window import WindowRegistry
from mochi_server.services.sessions import SessionService
from mochi_server.services.summarization import SummarizationService
from mochi_server.services.summary_model import SummaryModelManager
from mochi_server.services.system_prompts import SystemPromptService

__all__ = ["SessionService", "SummarizationService", "SummaryModelManager", "SystemPromptService", "WindowRegistry"]
