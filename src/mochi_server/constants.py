"""Constants that more than one module uses."""

from typing import Literal

API_PREFIX = "/api/v1"
OPENAI_PREFIX = "/v1"

KEY_PATTERN = "^[!-~]{1,255}$"
"""Pattern of the ``Idempotency-Key`` header."""

TOTAL_HEADER = "X-Total-Count"
"""Header with the number of items on all pages of a list."""

FORMAT_VERSION = "1.3"  # version of the session file format

DEFAULT_WINDOW = 8192
"""Initial context window of a session, in tokens. Models with a smaller maximum start with their maximum."""

SAFE_WINDOW_RATIO = 0.9
"""Largest share of a model's maximum context window that the server selects automatically."""

PREVIEW_CHARS = 250
"""Maximum length of a preview in lists, without the ``...`` that follows."""

RELOADING_OPTIONS = frozenset(
    {"num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread", "draft_num_predict"}
)
"""Options that make Ollama reload the model. Requests must not contain them."""

SUMMARY_UNSUPPORTED_MODELS: tuple[str, ...] = ("gpt-oss", "deepseek-r1", "qwq")
"""Models whose structured output is unusable. A name without a tag includes all tags."""

MAX_MESSAGE_CHARS = 1_000_000
MAX_TITLE_CHARS = 500
MAX_IMAGES = 16
"""Limit of images per message. The limit of the request body also limits their total size."""
MAX_PROMPT_CHARS = 10_000
"""Limit of system prompt files. A file must be shorter than this."""
MAX_ARGUMENT_LEVELS = 100
"""Limit of nesting in the arguments of a tool call. JSON encoders fail at about 250 levels."""

LogFormat = Literal["text", "json"]
