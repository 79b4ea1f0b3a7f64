"""Turns of clients that name a model or an agent, and perhaps a session."""

from collections.abc import Awaitable, Collection
from contextlib import suppress
from dataclasses import replace

from fastapi import Request

from mochi_server import errors
from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.execution import check_owner
from mochi_server.chat.idempotency import keyed_indexes
from mochi_server.chat.prompt import Prompt
from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import ToolSelection, TurnInput
from mochi_server.container import Services
from mochi_server.errors import ValidationFailed
from mochi_server.ollama.types import ModelInfo
from mochi_server.protocols.conversation import SentMessages, repeats, to_turn
from mochi_server.sessions.history import History
from mochi_server.sessions.session import OWNER, ChatSession
from mochi_server.sessions.types import SessionCreationOptions, ToolExecutionPolicy, ToolSettings
from mochi_server.web.requests import ErrorFormat, until_disconnect
from mochi_server.web.routes import MODEL_ERRORS, STORAGE_ERRORS, Responses, responses

PREFIX = "agent:"
"""Prefix of the model names that select an agent, such as `agent:researcher`."""

_DEFAULT_POLICY = ToolExecutionPolicy.CONFIRM_DESTRUCTIVE
_EVENTS = "`event` is the type of the event, and `data` is the event as JSON."
_NO_MODEL = "Ollama has no chat model. Install one with `ollama pull qwen3`."
_ERRORS = (
    *(
        errors.ValidationFailed,
        errors.ContextOverflow,
        errors.AgentInvalid,
        *MODEL_ERRORS,
        errors.SessionNotFound,
    ),
    *(errors.ToolNotFound, errors.SessionBusy, errors.SessionConflict, errors.IdempotencyKeyReused),
    *(errors.ToolNotCalled, errors.FormatNotMet, *STORAGE_ERRORS, errors.ShuttingDown),
)


async def models(services: Services) -> dict[str, int]:
    """Return the time of the last change of each model and each valid agent, in seconds since 1970.

    Chat models come first, because some clients select the first model of the list. Agents come
    last.
    """
    found = await services.agents.directory_agents()
    agents = {f"{PREFIX}{name}": agent.modified for name, agent in found.items() if agent.valid}
    installed = sorted(
        await services.fleet.list_installed(),
        key=lambda model: not model.has_capability("completion"),
    )
    return {model.name: model.modified for model in installed} | agents


async def modified(services: Services, name: str) -> int:
    """Return the time of the last change of a model or an agent.

    Raises ``MochiError`` for an unknown name.
    """
    return (await _agent(services, name) or await services.fleet.find_installed(name)).modified


async def estimate(services: Services, turn: TurnInput, sent: SentMessages) -> int:
    """Return the estimated number of tokens of the messages and the client's tools.

    Raises ``MochiError``.
    """
    model = await services.gateway.find_model(turn.model or "")
    history = History.of(sent.with_images)
    prompt = Prompt(history, sent.last_user_index or 0, shows_images=model.has_capability("vision"))
    size = prompt.size_with(turn.tools.client_tools if turn.tools.may_call else ())
    return services.gateway.windows.estimate(model.name).tokens(size)


async def start(
    request: Request,
    session_id: str | None,
    parsing: Awaitable[tuple[TurnInput, SentMessages]],
    **names: str,
) -> Run:
    """Start the turn that answers the messages of a request.

    ``parsing`` returns the model or the agent with the options, and the messages. Without a
    session, nothing is stored. ``names`` maps field names of chat completions, which errors
    contain, to the names of the fields in the request. Raises ``MochiError`` if the turn cannot
    start.
    """
    try:
        turn, sent = await parsing
        return await until_disconnect(
            request, _start(request.app.state.services, session_id, turn, sent)
        )
    except ValidationFailed as error:
        first = next(iter(error.details.get("errors") or ()), None)
        if first is None or first["loc"][1] not in names:
            raise
        raise ValidationFailed.at(names[first["loc"][1]], first["msg"]) from error


async def _start(
    services: Services, session_id: str | None, turn: TurnInput, sent: SentMessages
) -> Run:
    known = (await services.tools.catalogue()).tools if turn.tools.names else {}
    for name in turn.tools.names or ():
        if name not in known:
            raise errors.ToolNotFound(name)
    if (agent := await _agent(services, turn.model or "")) is not None:
        return await _with_agent(services, agent, session_id, turn, sent)
    if session_id is not None:
        return await _in_session(services, session_id, turn, sent)
    model = await services.fleet.find_model(turn.model or "")
    _check_capabilities(turn.tools, sent.new_images, model)
    settings = ToolSettings(
        tools=list(turn.tools.names or ()), execution_policy=turn.policy or _DEFAULT_POLICY
    )
    session = ChatSession.create(SessionCreationOptions(turn.model or "", tool_settings=settings))
    session.messages = sent.with_images
    return await _in_memory(services, session, replace(turn, change="continue", key=None), sent)


async def _in_session(
    services: Services, session_id: str, turn: TurnInput, sent: SentMessages
) -> Run:
    if turn.policy is not None:
        raise ValidationFailed.at(
            "X-Mochi-Tool-Policy", "the session has its own policy; leave out this header"
        )
    conversation, turns, key = services.conversations.stored(session_id), services.turns, turn.key
    session = await conversation.store.load(session_id)
    if key is not None and (run := turns.table.with_key(session_id, key)) is not None:
        if repeats(sent, turn, run.input):
            return run
        raise errors.IdempotencyKeyReused(key, run.run_id)
    if not keyed_indexes(session, key):
        sent.check(session)
        run = await turns.find(session_id)
        if (
            run is not None and run.running and not await turns.confirmations(session_id)
        ):  # else a more precise error
            raise errors.SessionBusy(session_id, run.run_id)
    turn = to_turn(session, sent, turn)
    with suppress(
        errors.OllamaUnreachable, errors.OllamaError
    ):  # the turn still stores the message
        _check_capabilities(
            turn.tools, turn.images, await services.fleet.find_model(turn.model or "")
        )
    return await turns.start(conversation, turn)


async def _with_agent(
    services: Services,
    agent: AgentDefinition,
    session_id: str | None,
    turn: TurnInput,
    sent: SentMessages,
) -> Run:
    """Start a turn of an agent, which has its own tools, and whose sessions store no options."""
    task = TurnInput(
        text=_task(turn, sent),
        agent=agent.name,
        model=await _fallback_model(services, agent),
        policy=turn.policy or _DEFAULT_POLICY,
        interactive=False,
    )
    if session_id is None:
        session = ChatSession.create(SessionCreationOptions(task.model or ""))
        session.metadata.extra[OWNER] = agent.name
        earlier = sent.with_images[: sent.last_index]
        session.messages = [message for message in earlier if message["role"] != "system"]
        return await _in_memory(services, session, task, sent)
    conversation = services.conversations.agent_chat(session_id)
    chat = await conversation.store.load(session_id)
    check_owner(chat, agent)
    sent.check(chat)
    return await services.turns.start(conversation, task)


async def _in_memory(
    services: Services, session: ChatSession, turn: TurnInput, sent: SentMessages
) -> Run:
    images = [image for of_message in sent.images.values() for image in of_message]
    return await services.turns.start(await services.conversations.in_memory(session, images), turn)


async def _agent(services: Services, name: str) -> AgentDefinition | None:
    """Return the agent that ``name`` selects, or None for a model.

    Raises ``AgentNotFound`` or ``AgentInvalid``.
    """
    if not name.startswith(PREFIX):
        return None
    agents, agent = services.agents, name.removeprefix(PREFIX)
    if agent in await agents.directory_agents():
        return await agents.current(await agents.get(agent))
    try:
        await services.fleet.find_model(name)  # a model that is called `agent`
    except errors.ModelNotFound:
        raise errors.AgentNotFound(agent) from None
    return None


async def _fallback_model(services: Services, agent: AgentDefinition) -> str:
    """Return the model to use if the agent's own is missing: the first that can call tools, else
    the first.
    """
    models = await services.fleet.list_models()
    if not models:
        raise errors.ModelNotFound(agent.model) if agent.model else errors.OllamaError(_NO_MODEL)
    return next((model.name for model in models if model.has_capability("tools")), models[0].name)


def _check_capabilities(tools: ToolSelection, images: Collection[object], model: ModelInfo) -> None:
    if tools.may_call and (tools.client_tools or tools.names) and not model.has_capability("tools"):
        problem = f"model {model.name!r} does not support tools; use another model"
        raise ValidationFailed.at(_tools_parameter(tools), problem)
    if images and not model.has_capability("vision"):
        # Claude Code removes the image and repeats its request if the error contains the first four
        # words.
        problem = (
            f"Could not process image: model {model.name!r} does not support images; use another "
            "model"
        )
        raise ValidationFailed.at("messages", problem)


def _tools_parameter(tools: ToolSelection) -> str:
    return "tools" if tools.client_tools else "X-Mochi-Tools"


def _task(turn: TurnInput, sent: SentMessages) -> str:
    """Return the text of the last message.

    Raise ``ValidationFailed`` for requests that agents do not support.
    """
    refused = {
        _tools_parameter(turn.tools): turn.tools.client_tools or turn.tools.names is not None,
        "tool_choice": turn.tools.must_call,
        "logprobs": turn.generation.logprobs is not None,
        "response_format": turn.generation.format,
        "messages": sent.images.get(sent.last_index),
    }
    for name in (name for name, is_set in refused.items() if is_set):
        content = "the images" if name == "messages" else "this field"
        raise ValidationFailed.at(
            name, f"agents use their own tools and answer with plain text; leave out {content}"
        )
    last = sent.messages[sent.last_index]
    if last["role"] != "user" or not last["content"].strip():
        raise ValidationFailed.at(
            "messages", "the last message must be a user message with the task of the agent"
        )
    return last["content"]


def answer_responses(description: str, form: ErrorFormat, events: str = _EVENTS) -> Responses:
    """Return FastAPI's ``responses`` argument for a route that answers with JSON or with a
    stream.
    """
    schema = {"type": "string", "description": f"Server-sent events. {events}"}
    succeeded = {"description": description, "content": {"text/event-stream": {"schema": schema}}}
    return {200: succeeded, **responses(*_ERRORS, form=form)}
