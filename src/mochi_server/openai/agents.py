"""Agents in the place of models: one answers a whole conversation, in a session of its own."""

from mochi_server.agents.config import AgentDefinition
from mochi_server.agents.execution import AgentExecutionService
from mochi_server.agents.task import AgentTask
from mochi_server.chat.turn import Responder, TurnResult
from mochi_server.errors import SessionNotFound
from mochi_server.events import Publish
from mochi_server.openai.asking import Ask
from mochi_server.openai.errors import invalid
from mochi_server.sessions.session import OWNER, ChatSession, new_id
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import SessionCreationOptions

PREFIX = "agent:"


def instruction_of(ask: Ask) -> str:
    """Return the last message as the instruction. Raises ``ValidationFailed`` for requests that no agent supports."""
    if ask.client_tools or ask.tools is not None:
        raise invalid("tools", "an agent has its own tools, and takes no others")
    if ask.images:
        raise invalid("messages", "an agent takes no images")
    last = ask.messages[-1]
    if last["role"] != "user" or not last["content"].strip():
        raise invalid("messages", "the last of them must be the user's and say what the agent is to do")
    return last["content"]


def conversation_with(agent: AgentDefinition, ask: Ask, session_id: str) -> ChatSession:
    """Create a session of the agent with the messages before the instruction."""
    session = ChatSession.create(SessionCreationOptions(ask.model))
    session.metadata.session_id = session_id
    session.metadata.extra[OWNER] = agent.name
    session.messages = [message for message in ask.messages[:-1] if message["role"] != "system"]
    return session


async def check_conversation(chats: SessionStore, agent: AgentDefinition, session_id: str) -> None:
    """Raise ``SessionNotFound`` unless the session is a conversation with this agent, and ``SessionBusy``."""
    if (await chats.load(session_id)).metadata.extra.get(OWNER) != agent.name:
        raise SessionNotFound(session_id)
    async with chats.hold(session_id, run_id=new_id()):
        pass


def responder_of(service: AgentExecutionService, task: AgentTask) -> Responder:
    """Return the agent as the responder of a turn."""

    async def respond(publish: Publish) -> TurnResult:
        result = await service.execute(task, publish)
        return TurnResult(stored=result.messages, failure=result.failure)

    return respond
