"""Tools of the coder.

They use the folder ``MOCHI_FILES_ROOT``, by default ``workspace`` in the working directory.
"""

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
