"""Names of models and agents in the field ``model`` of a request, such as `agent:researcher`."""

from mochi_server import errors
from mochi_server.agents.config import AgentDefinition
from mochi_server.container import Services

PREFIX = "agent:"
"""Prefix of the model names that select an agent."""

_NO_MODEL = "Ollama has no chat model. Install one with `ollama pull qwen3`."


async def change_times(services: Services) -> dict[str, int]:
    """Return the time of the last change of each model and each valid agent, in seconds since 1970.

    Chat models come first, because some clients select the first model of the list. Agents come
    last.
    """
    agents = await services.agents.directory_agents()
    installed = await services.fleet.list_installed()
    chat_models_first = sorted(installed, key=lambda model: not model.has_capability("completion"))
    times = {model.name: model.modified for model in chat_models_first}
    for name, agent in agents.items():
        if agent.valid:
            times[f"{PREFIX}{name}"] = agent.modified
    return times


async def change_time(services: Services, name: str) -> int:
    """Return the time of the last change of a model or an agent, in seconds since 1970.

    Raises ``MochiError`` for an unknown name.
    """
    agent = await selected_agent(services, name)
    if agent is not None:
        return agent.modified
    model = await services.fleet.find_installed(name)
    return model.modified


async def selected_agent(services: Services, name: str) -> AgentDefinition | None:
    """Return the agent that ``name`` selects, with its current ``SKILL.md``, or None for a model.

    Raises ``AgentNotFound`` or ``AgentInvalid``.
    """
    if not name.startswith(PREFIX):
        return None
    agent = name.removeprefix(PREFIX)
    if agent in await services.agents.directory_agents():
        return await services.agents.current(await services.agents.get(agent))
    try:
        await services.fleet.find_model(name)  # a model that is called `agent`
    except errors.ModelNotFound:
        raise errors.AgentNotFound(agent) from None
    return None


async def fallback_model(services: Services, agent: AgentDefinition) -> str:
    """Return the model to use if the agent's own is missing: the first that can call tools, else
    the first.

    Raises ``ModelNotFound`` or ``OllamaError`` if Ollama has no chat model.
    """
    models = await services.fleet.list_models()
    for model in models:
        if model.has_capability("tools"):
            return model.name
    if models:
        return models[0].name
    raise errors.ModelNotFound(agent.model) if agent.model else errors.OllamaError(_NO_MODEL)
