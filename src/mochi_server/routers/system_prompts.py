"""Routes under `/system-prompts`."""

from mochi_server.dependencies import ServicesDep
from mochi_server.errors import PromptExists, PromptNotFound, StorageFailed, ValidationFailed
from mochi_server.schemas.system_prompts import PromptContent, PromptFile, PromptList
from mochi_server.services.system_prompts import SystemPrompt
from mochi_server.web.routes import PrefixRouter, responses

router = PrefixRouter(prefix="/system-prompts", tags=["system prompts"])


@router.get("")
def list_prompts(services: ServicesDep) -> PromptList:
    """List the prompt files."""
    return PromptList(prompts=services.prompts.list())


@router.post(
    "",
    status_code=201,
    response_model=PromptFile,
    responses=responses(PromptExists, ValidationFailed, StorageFailed),
)
def create_prompt(body: PromptFile, services: ServicesDep) -> SystemPrompt:
    """Create a prompt file."""
    return services.prompts.create(body.filename, body.content)


@router.get("/{filename}", response_model=PromptFile, responses=responses(PromptNotFound))
def get_prompt(filename: str, services: ServicesDep) -> SystemPrompt:
    """Get a prompt file."""
    return services.prompts.get(filename)


@router.put(
    "/{filename}",
    response_model=PromptFile,
    responses=responses(PromptNotFound, ValidationFailed, StorageFailed),
)
def update_prompt(filename: str, body: PromptContent, services: ServicesDep) -> SystemPrompt:
    """Overwrite a prompt file."""
    return services.prompts.update(filename, body.content)


@router.delete("/{filename}", status_code=204, responses=responses(PromptNotFound, StorageFailed))
def delete_prompt(filename: str, services: ServicesDep) -> None:
    """Delete a prompt file."""
    services.prompts.delete(filename)
