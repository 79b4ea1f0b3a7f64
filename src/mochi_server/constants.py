"""Numbers and names that more than one module needs; nothing here does anything."""

from typing import Literal

API_PREFIX = "/api/v1"
OPENAI_PREFIX = "/v1"

KEY_PATTERN = "^[!-~]{1,255}$"
"""What an ``Idempotency-Key`` may be."""

TOTAL_HEADER = "X-Total-Count"
"""Header that says how many there are on all pages of a list."""

FORMAT_VERSION = "1.3"  # of session files

DEFAULT_WINDOW = 8192
"""Context window, in tokens, that a conversation starts with (or less, for smaller models)."""

SAFE_WINDOW_RATIO = 0.9
"""Largest share of a model's maximum context that is chosen without a manual override."""

PREVIEW_CHARS = 250
"""Length of a preview in lists, before the ``...``."""

RELOADING_OPTIONS = frozenset(
    {"num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread", "draft_num_predict"}
)
"""Options that make Ollama load the model anew; the context window's owner alone may send them."""

SUMMARY_UNSUPPORTED_MODELS: tuple[str, ...] = ("gpt-oss", "deepseek-r1", "qwq")
"""Models whose structured answers are known to be useless; a name without a tag means all its tags."""

MAX_MESSAGE_CHARS = 1_000_000
MAX_TITLE_CHARS = 500
MAX_IMAGES = 16
"""Of one message; how large they are together is limited by the body."""
MAX_PROMPT_CHARS = 10_000
"""A system prompt file must be shorter than this."""
MAX_ARGUMENT_LEVELS = 100
"""How deep the arguments of a tool call may be nested; JSON encoders stop at about 250 levels."""


LogFormat = Literal["text", "json"]
