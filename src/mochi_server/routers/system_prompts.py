"""/system-prompts"""

from mochi_server.dependencies import PromptsDep, Router
from mochi_server.errors import PromptExists, PromptNotFound, StorageFailed, ValidationFailed
from mochi_server.models.system_prompts import PromptContent, PromptEntry, PromptFile, PromptList
from mochi_server.routers.errors import responses

router = Router(prefix="/system-prompts", tags=["system prompts"])


@router.get("")
def list_prompts(prompts: PromptsDep) -> PromptList:
    """List the prompt files."""
    return PromptList(prompts=[PromptEntry.of(listing) for listing in prompts.list()])


@router.post("", status_code=201, responses=responses(PromptExists, ValidationFailed, StorageFailed))
def create_prompt(body: PromptFile, prompts: PromptsDep) -> PromptFile:
    """Create a prompt file."""
    return PromptFile.of(prompts.create(body.filename, body.content))


@router.get("/{filename}", responses=responses(PromptNotFound))
def get_prompt(filename: str, prompts: PromptsDep) -> PromptFile:
    """Get a prompt file."""
    return PromptFile.of(prompts.get(filename))


@router.put("/{filename}", responses=responses(PromptNotFound, ValidationFailed, StorageFailed))
def update_prompt(filename: str, body: PromptContent, prompts: PromptsDep) -> PromptFile:
    """Overwrite a prompt file."""
    return PromptFile.of(prompts.update(filename, body.content))


@router.delete("/{filename}", status_code=204, responses=responses(PromptNotFound, StorageFailed))
def delete_prompt(filename: str, prompts: PromptsDep) -> None:
    """Delete a prompt file."""
    prompts.delete(filename)
