"""Chat in the terminal.

    uv run --no-dev python docs/examples/terminal.py http://127.0.0.1:5099 mochi-demo

Without a model, the program uses the first model of the server. Set MOCHI_API_KEY if the server
requires an API key. Ctrl+C stops an answer. An empty line ends the program.
"""

import os
import sys

from mochi_server import events
from mochi_server.client import ApiError, ConnectionFailed, MochiClient


def decide(call: events.ToolConfirmationRequired) -> bool:
    """Ask the user to approve a tool call."""
    return input(f"\nApprove {call.tool_name}({call.arguments})? [y/N] ").strip().lower() == "y"


def show(event: object) -> None:
    """Print one event of an answer. Ignore unknown events."""
    match event:
        case events.ContentDelta() | events.ThinkingDelta():
            print(event.content, end="", flush=True)
        case events.ToolResult():
            print(f"[{event.tool_name}: {event.result or event.error_message}]")
        case events.TurnWarning() | events.TurnError():
            print(f"\n{event.message}")


def answer(client: MochiClient, session_id: str, message: str) -> None:
    """Send a message and print the answer. Ctrl+C stops the answer."""
    try:
        with client.stream(session_id, message, on_confirm=decide) as stream:
            for event in stream:
                show(event)
    except KeyboardInterrupt:
        client.stop(session_id)
    print()


def main(address: str = "http://127.0.0.1:8000", model: str | None = None) -> None:
    """Create a session and answer each line of the standard input."""
    with MochiClient(address, api_key=os.environ.get("MOCHI_API_KEY")) as client:
        settings = {"tools": list(client.list_tools()["tools"])}
        model = model or client.list_models()[0]["name"]
        session_id = client.create_session(model, tool_settings=settings)["session_id"]
        try:
            while message := input("> "):
                answer(client, session_id, message)
        except (EOFError, KeyboardInterrupt):
            print()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (ApiError, ConnectionFailed, ValueError) as error:
        sys.exit(str(error))
