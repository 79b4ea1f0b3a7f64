"""Tools of the coder, applied to the directory of agents.

The sessions of agents in ``agent_chats`` are protected.
"""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_AGENTS = Path(__file__).resolve().parents[1]
_SOURCE = _AGENTS / "coder" / "workspace.py"

_spec = spec_from_file_location("_agent_builder_workspace", _SOURCE)
if _spec is None or _spec.loader is None or not _SOURCE.is_file():
    raise ImportError(f"The agent builder needs the file {_SOURCE}.")
_module = module_from_spec(_spec)
_spec.loader.exec_module(_module)

_agents = _module.Workspace(_AGENTS, protected=("agent_chats",))

read_file = _agents.read_file
write_file = _agents.write_file
insert_replace_text = _agents.insert_replace_text
list_dir = _agents.list_dir
delete_rename_file = _agents.delete_rename_file
run_cli_command = _agents.run_cli_command
