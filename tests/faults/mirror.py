"""A session and a model of it: each change is applied to both, and both must be equal
afterwards.
"""

from typing import Any

import httpx

from mochi_server.sessions.session import automatic_title, user_message
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Failure, Reply, Text
from tests.support.api import Api, error_of

Entry = tuple[str, str]
"""Role and content of a message."""


def resolve(prompt: Prompt) -> Reply:
    """Answer with an echo; fail after it if the message starts with "fail"."""
    text = prompt.user_text
    return Reply([Text([f"Re: {text}"]), *([Failure("kaput")] if text.startswith("fail") else [])])


class Mirror:
    """Session over HTTP with its expected stored state."""

    def __init__(self, api: Api, system_prompt: str | None, title: str | None) -> None:
        self._api = api
        self.entries: list[Entry] = [] if system_prompt is None else [("system", system_prompt)]
        self.title = title
        self.exists = True
        self.id = api.create_session("mochi", system_prompt=system_prompt, title=title)[
            "session_id"
        ]
        self._path = f"/sessions/{self.id}"

    def send_message(self, text: str) -> None:
        self._assert_outcome(
            self._api.http.post(f"/chat/{self.id}", json={"message": text}), self._expect_turn(text)
        )

    def stream_message(self, text: str) -> None:
        if not self.exists:
            return self.send_message(text)
        worked = self._expect_turn(text) == 200
        assert (
            "error" in {event.type for event in self._api.stream_message(self.id, text)}
        ) is not worked
        return None

    def regenerate(self) -> None:
        """Regenerate the last answer; a failure keeps the old one."""
        user_messages = [index for index, (role, _) in enumerate(self.entries) if role == "user"]
        expected: int | str = "EMPTY_HISTORY"
        if user_messages:
            text = self.entries[user_messages[-1]][1]
            expected = (
                self._expect_answer(text) if len(self.entries) == user_messages[-1] + 1 else 502
            )
            if not text.startswith("fail"):
                self.entries[user_messages[-1] + 1 :] = [("assistant", f"Re: {text}")]
                expected = 200
        self._assert_outcome(self._api.http.post(f"/chat/{self.id}"), expected)

    def edit(self, index: int, text: str) -> None:
        """Edit a message; only the user's messages can be edited."""
        expected: int | str = "INVALID_MESSAGE_INDEX"
        if index < len(self.entries) and self.entries[index][0] == "user":
            self.entries[index:] = [("user", text)]
            expected = 200
        self._assert_outcome(
            self._api.http.put(f"{self._path}/messages/{index}", json={"content": text}), expected
        )

    def retitle(self, title: str | None) -> None:
        self.title = title
        self._assert_outcome(self._api.http.patch(self._path, json={"title": title}), 200)

    def set_system_prompt(self, content: str) -> None:
        self.entries[: self._has_prompt()] = [("system", content)]
        self._assert_outcome(
            self._api.http.put(f"{self._path}/system-prompt", json={"content": content}), 200
        )

    def remove_system_prompt(self) -> None:
        expected = 204 if self._has_prompt() else "PROMPT_NOT_FOUND"
        del self.entries[: self._has_prompt()]
        self._assert_outcome(self._api.http.delete(f"{self._path}/system-prompt"), expected)

    def delete(self) -> None:
        self._assert_outcome(self._api.http.delete(self._path), 204)
        self.exists = False

    def assert_matches(self) -> None:
        """Assert that the stored session matches the model."""
        if not self.exists:
            assert error_of(self._api.http.get(self._path)) == (404, "SESSION_NOT_FOUND")
            return
        found = self._api.session(self.id)
        assert [(m["role"], m["content"]) for m in found["messages"]] == self.entries
        assert (found["title"], found["message_count"]) == (self._title(), len(self.entries))
        for message in found["messages"]:
            text, failed = message["content"], message["content"].startswith("Re: fail")
            assert message.get("interrupted", False) is (
                message["role"] == "assistant" and failed
            ), text

    def entry(self) -> dict[str, Any]:
        """Return the expected entry of the session list."""
        first = next((content for role, content in self.entries if role == "user"), "")
        preview = first if len(first) <= 250 else first[:250] + "..."
        return {
            "session_id": self.id,
            "title": self._title(),
            "message_count": len(self.entries),
            "preview": preview,
        }

    def _title(self) -> str | None:
        """Return the title that was set, or else the session's own."""
        user_messages = [user_message(text) for role, text in self.entries if role == "user"]
        return self.title or automatic_title(user_messages, None)

    def _expect_turn(self, text: str) -> int:
        self.entries.append(("user", text))
        return self._expect_answer(text)

    def _expect_answer(self, text: str) -> int:
        self.entries.append(("assistant", f"Re: {text}"))
        return 502 if text.startswith("fail") else 200

    def _has_prompt(self) -> bool:
        return self.entries[:1] != [] and self.entries[0][0] == "system"

    def _assert_outcome(self, response: httpx.Response, expected: int | str) -> None:
        if not self.exists:
            expected = "SESSION_NOT_FOUND"
        found = error_of(response)[1] if isinstance(expected, str) else response.status_code
        assert found == expected, response.text
