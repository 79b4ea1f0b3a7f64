"""The coder's tools: files and commands of one folder, ``MOCHI_FILES_ROOT``, or ``workspace`` where the server runs."""

import os
from pathlib import Path

from .workspace import Workspace

_workspace = Workspace(Path(os.environ.get("MOCHI_FILES_ROOT", "workspace")))

read_file = _workspace.read_file
write_file = _workspace.write_file
insert_replace_text = _workspace.insert_replace_text
list_dir = _workspace.list_dir
delete_rename_file = _workspace.delete_rename_file
run_cli_command = _workspace.run_cli_command
