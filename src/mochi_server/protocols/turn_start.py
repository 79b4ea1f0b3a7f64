"""Turns of clients that name a model or an agent, and perhaps a session."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
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
from mochi_server.dependencies import get_services
from mochi_server.errors import ValidationFailed
from mochi_server.ollama.types import ModelInfo
from mochi_server.protocols.agent_models import fallback_model, selected_agent
from mochi_server.protocols.new_messages import repeats, to_turn
from mochi_server.protocols.sent_messages import SentMessages
from mochi_server.services.sessions import check_policy
from mochi_server.sessions.history import History, last_user_index
from mochi_server.sessions.session import AGENT_NAME, ChatSession
from mochi_server.sessions.types import SessionCreationOptions, ToolExecutionPolicy, ToolSettings
from mochi_server.web.requests import ErrorFormat, until_disconnect
from mochi_server.web.routes import MODEL_ERRORS, STORAGE_ERRORS, Responses, responses

_DEFAULT_POLICY = ToolExecutionPolicy.CONFIRM_DESTRUCTIVE
_EVENTS = "`event` is the type of the event, and `data` is the event as JSON."
_ERRORS = (
    errors.ValidationFailed,
    errors.ContextOverflow,
    errors.AgentInvalid,
    *MODEL_ERRORS,
    errors.SessionNotFound,
    errors.ToolNotFound,
    errors.SessionBusy,
    errors.SessionConflict,
    errors.IdempotencyKeyReused,
    errors.ToolNotCalled,
    errors.FormatNotMet,
    *STORAGE_ERRORS,
    errors.RateLimited,
    errors.ShuttingDown,
)


async def estimate(services: Services, turn: TurnInput, sent: SentMessages) -> int:
    """Return the estimated number of tokens of the messages and the client's tools.

    Raises ``MochiError``.
    """
    model = await services.gateway.find_model(turn.model or "")
    history = History.of(sent.with_references)
    shows_images = model.has_capability("vision")
    turn_start = last_user_index(history)
    if turn_start is None:
        turn_start = len(history)
    prompt = Prompt(history, turn_start, shows_images=shows_images)
    tools = turn.tools.client_tools if turn.tools.may_call else ()
    size = prompt.size_with(tools)
    return services.gateway.windows.estimate(model.name).tokens(size)


async def start(
    request: Request, session_id: str | None, turn: TurnInput, sent: SentMessages
) -> Run:
    """Start the turn that answers the messages of a request.

    ``turn`` has the model or the agent and the options. Without a ``session_id``, nothing is
    stored. Raises ``MochiError`` if the turn cannot start.
    """
    services = await get_services(request)
    return await until_disconnect(request, _start(services, session_id, turn, sent))


@contextmanager
def renamed_fields(**names: str) -> Iterator[None]:
    """Replace the name of a field of chat completions in errors by that of the request's API.

    With ``messages="input"``, an error in `messages` is raised as an error in `input`. Only the
    first problem of an error is examined, and only that is raised again.
    """
    try:
        yield
    except ValidationFailed as error:
        problems = error.details.get("errors")
        if not problems:
            raise
        field = problems[0]["loc"][1]  # after "body"
        if field not in names:
            raise
        raise ValidationFailed.at(names[field], problems[0]["msg"]) from error


async def _start(
    services: Services, session_id: str | None, turn: TurnInput, sent: SentMessages
) -> Run:
    await _check_tools(services, turn.tools)
    if turn.policy is not None:
        check_policy(turn.policy, "X-Mochi-Tool-Policy")
    agent = await selected_agent(services, turn.model or "")
    if agent is not None:
        return await _start_with_agent(services, agent, session_id, turn, sent)
    if session_id is not None:
        return await _start_in_session(services, session_id, turn, sent)
    model = await services.fleet.find_model(turn.model or "")
    _check_capabilities(turn.tools, sent.new_images, model)
    settings = ToolSettings(
        tools=list(turn.tools.names or ()), execution_policy=turn.policy or _DEFAULT_POLICY
    )
    session = ChatSession.create(SessionCreationOptions(turn.model or "", tool_settings=settings))
    session.messages = sent.with_references
    continuation = replace(turn, change="continue", key=None)
    return await _start_in_memory(services, session, continuation, sent)


async def _check_tools(services: Services, tools: ToolSelection) -> None:
    """Raise ``ToolNotFound`` if the server does not have one of the tools."""
    if not tools.names:
        return
    known = (await services.tools.catalogue()).tools
    for name in tools.names:
        if name not in known:
            raise errors.ToolNotFound(name)


async def _start_in_session(
    services: Services, session_id: str, turn: TurnInput, sent: SentMessages
) -> Run:
    """Start a turn in a stored session.

    If the request repeats an earlier one with the same key, return the run of that one.
    """
    if turn.policy is not None:
        raise ValidationFailed.at(
            "X-Mochi-Tool-Policy", "the session has its own policy; leave out this header"
        )
    conversation = services.conversations.stored(session_id)
    session = await conversation.store.load(session_id)
    repeated = _run_with_key(services, session_id, turn, sent)
    if repeated is not None:
        return repeated
    if not keyed_indexes(session, turn.key):
        sent.check(session)
        await _check_busy(services, session_id)
    new_turn = to_turn(session, sent, turn)
    # If Ollama is unreachable, skip this check, so that the turn still stores the message.
    with suppress(errors.OllamaUnreachable, errors.OllamaError):
        model = await services.fleet.find_model(new_turn.model or "")
        _check_capabilities(new_turn.tools, new_turn.images, model)
    return await services.turns.start(conversation, new_turn)


def _run_with_key(
    services: Services, session_id: str, turn: TurnInput, sent: SentMessages
) -> Run | None:
    """Return the run that the same request has started, or None.

    Raises ``IdempotencyKeyReused`` if another request had the same key.
    """
    if turn.key is None:
        return None
    run = services.turns.table.with_key(session_id, turn.key)
    if run is not None and not repeats(sent, turn, run.input):
        raise errors.IdempotencyKeyReused(turn.key, run.run_id)
    return run


async def _check_busy(services: Services, session_id: str) -> None:
    """Raise ``SessionBusy`` if a turn is running.

    For a turn that waits for approval, the start of a new turn raises the more precise error.
    """
    run = await services.turns.find(session_id)
    if run is None or not run.running:
        return
    if not await services.turns.confirmations(session_id):
        raise errors.SessionBusy(session_id, run.run_id)


async def _start_with_agent(
    services: Services,
    agent: AgentDefinition,
    session_id: str | None,
    turn: TurnInput,
    sent: SentMessages,
) -> Run:
    """Start a turn of an agent.

    The agent has its own tools and system prompt. System messages and generation options of the
    request have no effect, or ``_checked_task`` refuses them.
    """
    task = TurnInput(
        text=_checked_task(turn, sent),
        agent=agent.name,
        model=await fallback_model(services, agent),
        policy=turn.policy or _DEFAULT_POLICY,
        on_disconnect=turn.on_disconnect,
        interactive=False,
    )
    if session_id is not None:
        task = replace(task, key=turn.key)
        return await _start_in_agent_session(services, agent, session_id, task, sent)
    session = ChatSession.create(SessionCreationOptions(task.model or ""))
    session.metadata.extra[AGENT_NAME] = agent.name
    earlier = sent.with_references[: sent.last_index]
    session.messages = [message for message in earlier if message["role"] != "system"]
    return await _start_in_memory(services, session, task, sent)


async def _start_in_agent_session(
    services: Services,
    agent: AgentDefinition,
    session_id: str,
    task: TurnInput,
    sent: SentMessages,
) -> Run:
    conversation = services.conversations.agent_chat(session_id)
    session = await conversation.store.load(session_id)
    check_owner(session, agent)
    if not keyed_indexes(session, task.key):
        sent.check(session)
    return await services.turns.start(conversation, task)


async def _start_in_memory(
    services: Services, session: ChatSession, turn: TurnInput, sent: SentMessages
) -> Run:
    conversation = await services.conversations.in_memory(session, sent.blobs)
    return await services.turns.start(conversation, turn)


def _check_capabilities(tools: ToolSelection, images: Collection[object], model: ModelInfo) -> None:
    has_tools = tools.may_call and (tools.client_tools or tools.names)
    if has_tools and not model.has_capability("tools"):
        problem = f"model {model.name!r} does not support tools; use another model"
        raise ValidationFailed.at(_tools_parameter(tools), problem)
    if images and not model.has_capability("vision"):
        # Claude Code removes the image and repeats its request if the error contains the first four
        # words.
        problem = f"Could not process image: model {model.name!r} does not support images; "
        raise ValidationFailed.at("messages", problem + "use another model")


def _tools_parameter(tools: ToolSelection) -> str:
    return "tools" if tools.client_tools else "X-Mochi-Tools"


def _checked_task(turn: TurnInput, sent: SentMessages) -> str:
    """Return the text of the last message.

    Raise ``ValidationFailed`` for requests that agents do not support.
    """
    unsupported = {
        _tools_parameter(turn.tools): turn.tools.client_tools or turn.tools.names is not None,
        "tool_choice": turn.tools.must_call,
        "logprobs": turn.generation.logprobs is not None,
        "response_format": turn.generation.format,
        "messages": sent.images.get(sent.last_index) or sent.attachments.get(sent.last_index),
    }
    for name, is_set in unsupported.items():
        if is_set:
            content = "the images and files" if name == "messages" else "this field"
            problem = f"agents use their own tools and answer with plain text; leave out {content}"
            raise ValidationFailed.at(name, problem)
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
