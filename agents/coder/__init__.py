"""List of the tools of the coder. ``SKILL.md`` contains its description and system prompt."""

from .coder import (
    delete_rename_file,
    insert_replace_text,
    list_dir,
    read_file,
    run_cli_command,
    write_file,
)

__all__ = [  # noqa: RUF022 - the order in which models see them
    "read_file",
    "write_file",
    "insert_replace_text",
    "list_dir",
    "delete_rename_file",
    "run_cli_command",
]

__read_only__ = ["read_file", "list_dir"]
__destructive__ = ["write_file", "insert_replace_text", "delete_rename_file", "run_cli_command"]
