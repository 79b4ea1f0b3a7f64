"""Generator of `docs/reference/settings.md`."""

from collections.abc import Iterator

from pydantic import SecretStr

from mochi_server import MochiServerSettings
from mochi_server.cli.main import _FLAGS
from tests.docs_tooling.reference.markdown import page, table

INTRODUCTION = """
Look up a setting of `mochi-server`: its meaning, its default and its command-line option.

A setting can come from three places. The first of these that has a value applies:

1. an option of the command, such as `--port`, for settings that have one
2. an environment variable, such as `MOCHI_PORT`; an empty variable counts as not set
3. the default

```bash
MOCHI_LOG_LEVEL=DEBUG uv run --no-dev mochi-server --port 8080
```

- In Python, settings are arguments of `create_app`, in lower case and without `MOCHI_`: `create_app(port=8080)`.
- Separate the values of a list by commas.
- Settings that end in `_SECONDS` are in seconds.
- Relative directories and files are below `MOCHI_DATA_DIR`.
- The server imports tools and agents only from directories that you choose. Set the data directory, set the directory
  itself, or create the data directory with `mochi-server init`.
- A setting with an empty default is not set.
- If a value is invalid, the server prints one line about it and does not start.
"""

GROUPS = {
    "Server": "host port workers advertise_url env",
    "Security": "api_keys api_keys_file allowed_origins",
    "Ollama": "ollama_host ollama_hosts ollama_slots max_queue ollama_connect_timeout_seconds "
    "ollama_stall_timeout_seconds",
    "Storage": "data_dir sessions_dir store_url store_retry_seconds max_import_sessions "
    "temporary_session_hours",
    "Turns and connections": "disconnect_grace_seconds continue_background_turns shutdown_grace_seconds "
    "keep_alive_seconds max_body_bytes",
    "Webhooks": "webhook_url webhook_secret",
    "Context window and summaries": "dynamic_context_window_enabled initial_context_window summarization_enabled "
    "summarization_interval_seconds summary_unsupported_models",
    "Tools": "tools_dir tool_timeout_seconds tool_output_limit_chars tool_confirmation_timeout_seconds "
    "park_seconds max_tool_iterations max_identical_tool_calls max_tool_calls_per_round "
    "repair_answers",
    "Agents and system prompts": "agents_dir agent_chats_dir max_agent_iterations planning_prompt_path execution_prompt_path "
    "system_prompts_dir",
    "Logs and traces": "log_level log_format trace_content",
}
"""Rows of the table: the settings of each group, in this order."""


def settings_page() -> str:
    return page(
        "Settings", INTRODUCTION, [table(["Setting", "Meaning", "Default", "Option"], _rows())]
    )


def _rows() -> Iterator[tuple[str, str, str, str]]:
    for title, names in GROUPS.items():
        yield f"**{title}**", "", "", ""
        for name in names.split():
            field = MochiServerSettings.model_fields[name]
            flag = f"`--{name.replace('_', '-')}`" if name in _FLAGS else ""
            setting = f'<a id="mochi_{name}"></a>`MOCHI_{name.upper()}`'
            yield setting, str(field.description), _default(field.default), flag


def _default(value: object) -> str:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, bool):
        value = str(value).lower()
    return "" if value in ("", None) else f"`{value}`"
