"""All changes that a client can make, and their outcomes on a failing medium."""

from typing import Any

import httpx

from tests.support.api import Api

FAILED = "STORAGE_FAILED"
CHANGES = (
    "create",
    "turn",
    "edit",
    "patch",
    "put prompt",
    "remove prompt",
    "summarize",
    "write file",
    "change file",
)
"""Changes that need disk space. Deletions need none."""

DELETIONS = ("delete session", "delete file")

_REQUESTS: dict[str, tuple[str, str, dict[str, str] | None]] = {
    "create": ("POST", "/sessions", {"model": "mochi"}),
    "turn": ("POST", "/chat/{}", {"message": "Hello again!"}),
    "edit": ("PUT", "/sessions/{}/messages/1", {"content": "Good evening!"}),
    "patch": ("PATCH", "/sessions/{}", {"title": "New"}),
    "put prompt": ("PUT", "/sessions/{}/system-prompt", {"content": "Be long."}),
    "remove prompt": ("DELETE", "/sessions/{}/system-prompt", None),
    "summarize": ("POST", "/sessions/{}/summarize", None),
    "write file": ("POST", "/system-prompts", {"filename": "new.md", "content": "New."}),
    "change file": ("PUT", "/system-prompts/old.md", {"content": "Changed."}),
    "delete file": ("DELETE", "/system-prompts/old.md", None),
    "delete session": ("DELETE", "/sessions/{}", None),
}


class Client:
    """One session and one prompt file with calls that change them."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.session_id = api.create_session("mochi", system_prompt="Be brief.")["session_id"]
        api.send_message(self.session_id, "Hello!")
        api.ok(
            api.http.post("/system-prompts", json={"filename": "old.md", "content": "Old."}), 201
        )

    def stored_state(self) -> tuple[Any, ...]:
        """Return all stored data as it is read over HTTP."""
        listed = self.api.ok(self.api.http.get("/sessions"))
        files = self.api.ok(self.api.http.get("/system-prompts"))
        return (
            self.api.session(self.session_id),
            listed,
            files,
            self.api.ok(self.api.http.get("/system-prompts/old.md")),
        )

    def outcomes(self, names: tuple[str, ...]) -> dict[str, str | int]:
        """Return the error code or the status of each change."""
        return {name: _outcome(self._do(name)) for name in names}

    def _do(self, name: str) -> httpx.Response:
        method, path, body = _REQUESTS[name]
        return self.api.http.request(method, path.format(self.session_id), json=body)


def _outcome(response: httpx.Response) -> str | int:
    if response.status_code < 400:
        return response.status_code
    assert response.status_code == 500, response.text
    error = response.json()["error"]
    assert error["message"].startswith("Cannot ")
    code: str = error["code"]
    return code
