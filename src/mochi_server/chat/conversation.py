"""Conversations: where a turn reads and writes its messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mochi_server.chat.flusher import Flusher
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.storage.memory import MemorySessionStore

ConversationKind = Literal["session", "agent_chat", "in_memory"]


@dataclass(frozen=True, eq=False)
class Conversation:
    """One session together with the store that contains it."""

    session_id: str
    store: SessionStore
    flusher: Flusher
    """Writer of partial answers to ``store``."""
    kind: ConversationKind = "session"

    @property
    def run_key(self) -> str:
        """Key of the conversation's runs. Sessions, agent chats and conversations in memory may have equal IDs."""
        return self.session_id if self.kind == "session" else f"{self.kind}/{self.session_id}"


class Conversations:
    """Factory of conversations. ``chats`` contains the sessions of users, ``agent_chats`` those of agents."""

    def __init__(self, chats: SessionStore, agent_chats: SessionStore) -> None:
        self._chats, self._chat_flusher = chats, Flusher(chats)
        self._agent_chats, self._agent_flusher = agent_chats, Flusher(agent_chats)

    def stored(self, session_id: str) -> Conversation:
        """Return the conversation of a user's session. The session need not exist."""
        return Conversation(session_id, self._chats, self._chat_flusher)

    def agent_chat(self, session_id: str) -> Conversation:
        """Return the conversation of an agent's stored session. The session need not exist."""
        return Conversation(session_id, self._agent_chats, self._agent_flusher, "agent_chat")

    async def in_memory(self, session: ChatSession, images: Sequence[Image] = ()) -> Conversation:
        """Return a conversation that contains ``session`` and is never saved.

        ``images`` are the images to which the messages of ``session`` refer.
        """
        store = MemorySessionStore()
        stored = await store.put(session, images=images)
        return Conversation(stored.session_id, store, Flusher(store), "in_memory")
