"""Services behind the HTTP routes: sessions, summaries, comparisons, context windows and system
prompts.
"""

from mochi_server.services.compare import CompareService
from mochi_server.services.context_window import DynamicContextWindowService, WindowRegistry
from mochi_server.services.import_export import ImportExportService
from mochi_server.services.sessions import SessionService
from mochi_server.services.summarization import ConversationSummary, SummarizationService
from mochi_server.services.summary_model import SummaryModelManager
from mochi_server.services.system_prompts import SystemPromptService

__all__ = [
    "CompareService",
    "ConversationSummary",
    "DynamicContextWindowService",
    "ImportExportService",
    "SessionService",
    "SummarizationService",
    "SummaryModelManager",
    "SystemPromptService",
    "WindowRegistry",
]
