"""Data of the fuzzed server: tools, agents, a prompt, and a new session for each request.

A case names the kind of session that it needs, for example "asking". A real session is created for
it and deleted afterwards. So each request has the same initial state and failures can be
reproduced.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.agents import delegate, write_agent
from tests.support.api import Api
from tests.support.images import PNG, base64_image
from tests.support.instructions import calls, instruct, words
from tests.support.tools import write_tools

if TYPE_CHECKING:
    from schemathesis import Case

MODELS = ["mochi:latest", "mochi-chat:latest", "failing:latest"]
SEES = "echo:latest"
TOOLS = ["add", "note"]
PROMPT = "helpful.md"
AGENTS = ["helper", "broken"]
MESSAGES = [
    "Hello",
    instruct(calls("add", a=1, b=2), words(3), label="ADDS"),
    instruct(calls("note", text="x"), words(3), label="ASKS"),
    instruct(delegate(), words(3), label="DELEGATES"),
]
_TOOLS = '''
    def add(a: float, b: float) -> str:
        """Add two numbers."""
        return str(a + b)

    def note(text: str) -> str:
        """Write a note."""
        return "Noted."

    __all__ = ["add", "note"]
    __maths__ = ["add"]
    __read_only__ = ["add"]
'''
_EVERYTHING = {
    "tool_settings": {"tools": TOOLS, "execution_policy": "always_confirm"},
    "agent_settings": {"enabled_agents": ["helper"]},
}


def _fresh(api: Api) -> str:
    return str(api.create_session(MODELS[0], **_EVERYTHING)["session_id"])


def _with_messages(api: Api) -> str:
    session_id = str(
        api.create_session(MODELS[0], system_prompt="Be brief.", **_EVERYTHING)["session_id"]
    )
    api.send_message(session_id, MESSAGES[0])
    return session_id


def _waiting_for_approval(api: Api) -> str:
    """Create a session that waits for an approval, until the decision or the timeout."""
    session_id = _fresh(api)
    with api.open_stream(session_id, MESSAGES[2], on_disconnect="continue") as events:
        assert any(event.type == "tool_call_confirmation_required" for event in events)
    return session_id


def _with_image(api: Api) -> str:
    """Create a session that has shown an image to a vision model."""
    session_id = str(api.create_session(SEES)["session_id"])
    api.send_message(session_id, MESSAGES[0], images=[base64_image(PNG)])
    return session_id


def _of_agent(api: Api) -> str:
    if not (chats := api.ok(api.http.get("/agents/chats"))["sessions"]):
        api.send_message(_fresh(api), MESSAGES[3])
        chats = api.ok(api.http.get("/agents/chats"))["sessions"]
    return str(chats[0]["session_id"])


SESSIONS: dict[str, Callable[[Api], str]] = {
    "fresh": _fresh,
    "answered": _with_messages,
    "asking": _waiting_for_approval,
    "shown": _with_image,
    "agents": _of_agent,
}


class World:
    """Data directory of the server, and the server."""

    def __init__(self, data_dir: Path, api: Api) -> None:
        self._prompts = data_dir / "system_prompts"
        self.api = api
        self.url = str(api.http.base_url).removesuffix("/api/v1/")

    @staticmethod
    def furnish(data_dir: Path) -> None:
        """Write the files that the server reads when it starts."""
        write_tools(data_dir, _TOOLS)
        write_agent(data_dir)
        write_agent(data_dir, AGENTS[1], SKILL=None)

    @contextmanager
    def resources_for(self, case: "Case[Any]") -> Iterator[None]:
        """Yield real names for those in the case; they exist while the context is open."""
        self._renew_prompts()
        kind = case.path_parameters.get("session_id") if case.path_parameters else None
        session_id = (
            SESSIONS[kind](self.api) if isinstance(kind, str) and kind in SESSIONS else None
        )
        if session_id is not None:
            case.path_parameters["session_id"] = session_id
            if isinstance(case.body, dict) and isinstance(case.body.get("confirmation_id"), str):
                case.body = {**case.body, **self._waiting_call(session_id)}
        try:
            yield
        finally:
            if session_id is not None:
                self.api.http.delete(f"/sessions/{session_id}")

    def _renew_prompts(self) -> None:
        self._prompts.mkdir(exist_ok=True)
        for path in self._prompts.iterdir():
            if path.name != PROMPT:
                path.unlink()
        (self._prompts / PROMPT).write_text("You are helpful.")

    def _waiting_call(self, session_id: str) -> dict[str, str]:
        """Return the confirmation id for a decision, if a call waits."""
        response = self.api.http.get(f"/chat/{session_id}/confirmations")
        waiting = response.json().get("confirmations")
        return {"confirmation_id": waiting[0]["confirmation_id"]} if waiting else {}
