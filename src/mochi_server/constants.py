"""Constants that more than one module uses."""

from typing import Literal

LogFormat = Literal["text", "json"]

# Tool that calls the agents. Other tools cannot have this name while agents are enabled.
AGENT_TOOL = "agent"

# Beginnings of results of tool calls, before the reason.
DENIED = "The user denied this call."
REPEATED = "The call was not run: "  # only of a call that is refused as a repetition

OLLAMA_SETTING = "MOCHI_OLLAMA_HOST"  # environment variable of Ollama's address

API_PREFIX = "/api/v1"
OPENAI_PREFIX = "/v1"

DEMO_MODEL = "mochi-demo"  # model of test mode that answers with sentences

KEY_PATTERN = "^[!-~]{1,255}$"  # of the Idempotency-Key header
TOTAL_HEADER = "X-Total-Count"  # number of items on all pages of a list
PING_SECONDS = 10  # maximum time without bytes in a stream, so that proxies do not close it
FORMAT_VERSION = "1.4"  # of session files
SECONDS_PER_HOUR = 3600
PREVIEW_CHARS = 250  # maximum length of a preview in lists, without the "..." that follows

# Initial context window of a session in tokens, limited to the model's maximum.
DEFAULT_WINDOW = 8192
# Largest share of a model's maximum context window that is selected automatically.
SAFE_WINDOW_RATIO = 0.9
# Room for an answer in the first context window of a model, for clients that set no window.
ANSWER_TOKENS = 4096
# Number of tokens that a prompt must leave free in the context window for the answer.
MIN_ANSWER_TOKENS = 64

RELOADING_OPTIONS = frozenset(
    {"num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread", "draft_num_predict"}
)  # options that make Ollama reload the model. Requests must not contain them

SUMMARY_UNSUPPORTED_MODELS: tuple[str, ...] = ("gpt-oss", "deepseek-r1", "qwq")
"""Models whose structured output is unusable.

A model name without a tag stands for all tags of the model.
"""

MAX_MESSAGE_CHARS = 1_000_000
MAX_TITLE_CHARS = 500
MAX_TAG_CHARS = 100
MAX_TAGS = 50  # per session
MAX_PROMPT_CHARS = 10_000  # system prompt files must be shorter than this
MAX_IMAGES = 16  # per message; the limit of the request body also limits their total size
MAX_ARGUMENT_LEVELS = 100  # nesting of tool call arguments; JSON encoders fail at about 250 levels
# In the arguments of a tool call, whose validation blocks the event loop.
MAX_ARGUMENT_VALUES = 50_000
MAX_SCHEMA_VALUES = 20_000  # in the schema of an MCP tool
MAX_ATTACHMENTS = 16  # per message
MAX_ATTACHMENT_NAME_CHARS = 255
MAX_ATTACHMENT_TEXT_BYTES = 16 * 1024 * 1024  # of the text of an attached file
PDF_SECONDS = 10  # limit of the time in which the text of a PDF is read
