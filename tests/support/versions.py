"""Files of sessions with versions."""

from typing import Any

from mochi_server.sessions.versions import MAX_VERSIONS


def full_file(question: str, **metadata: Any) -> dict[str, Any]:
    """Return a file with an answered question, and as many versions as a session can have."""
    message = {"role": "user", "content": question, "message_id": "q"}
    answer = {"role": "assistant", "content": "Old.", "message_id": "a"}
    versions = [
        {"version_id": f"v{number}", "message_id": "a", "messages": [answer]}
        for number in range(MAX_VERSIONS)
    ]
    return {
        "metadata": {"model": "mochi", **metadata},
        "messages": [message, answer],
        "versions": versions,
    }
