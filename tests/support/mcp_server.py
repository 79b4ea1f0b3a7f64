"""Minimal MCP server that starts fast and can misbehave in ways that no SDK allows.

Arguments: the tools that it offers, or how it fails. It writes its input and actions to the file in
`JOURNAL`. It imports little, because many tests start it.
"""

from __future__ import annotations

import json
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

READ_ONLY = {"readOnlyHint": True}
TEXT = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "Any text"}},
    "required": ["text"],
}

TOOLS: dict[str, dict[str, Any]] = {
    "echo": {"description": "Say it again.", "inputSchema": TEXT, "annotations": READ_ONLY},
    "note": {"description": "Write a note.", "inputSchema": TEXT},
    "both": {"annotations": {"readOnlyHint": True, "destructiveHint": True}},
    "files/read.all": {"title": "Read all files"},
    "broken": {"inputSchema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}},
    "odd": {"inputSchema": 5},
    "listed": {
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "default": "everything"},
                "page": {"type": "integer"},
            },
            "required": ["text", "page"],
        }
    },
    "x" * 65: {},
    "unique": {
        "inputSchema": {
            "type": "object",
            "properties": {"items": {"type": "array", "uniqueItems": True}},
        }
    },
    "draft_3": {
        "inputSchema": {
            "$schema": "http://json-schema.org/draft-03/schema#",
            "type": "object",
            "properties": {"text": {"type": "string", "required": True}},
        }
    },
    "doubling": {
        "inputSchema": {
            "type": "object",
            "allOf": [{"$ref": "#/$defs/d0"}],
            "$defs": {
                f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2}
                for level in range(40)
            },
        }
    },
}

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
GIF = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def text(content: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}], "isError": is_error}


RESULTS: dict[str, dict[str, Any]] = {
    "fail": text("It did not work.", is_error=True),
    "fail_silently": {"content": [], "isError": True},
    "fail_with_image": {
        "content": [{"type": "image", "mimeType": "image/png", "data": PNG}],
        "isError": True,
    },
    "much": text("x" * 1_000_000),
    "structured": {"content": [], "structuredContent": {"degrees": 21}},
    "nonsense": {"content": "no list"},
    "env": text(" ".join(sorted(os.environ))),
    "bytes": {
        "content": [
            {"type": "image", "mimeType": "image/png", "data": "AAAA" * 1000},
            {
                "type": "resource",
                "resource": {"uri": "file:///a.bin", "mimeType": "application/x-a", "blob": "AAAA"},
            },
        ]
    },
    "picture": {
        "content": [
            {"type": "text", "text": "A dot and a blob:"},
            {"type": "image", "mimeType": "image/png", "data": PNG},
            {
                "type": "resource",
                "resource": {"uri": "file:///a.gif", "mimeType": "image/gif", "blob": GIF},
            },
        ]
    },
}


def journal(*words: object) -> None:
    with open(os.environ["JOURNAL"], "a") as file:  # noqa: PTH123 - importing pathlib takes as long as all the others
        file.write(" ".join(map(str, words)) + "\n")


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(name: str, arguments: dict[str, Any], offered: list[str]) -> dict[str, Any] | None:
    """Return the result of a call, or None if it is never answered."""
    journal("call", name)
    match name:
        case "die":
            os._exit(3)
        case "hang":
            return None
        case "refuse":
            raise PermissionError(arguments["code"])
        case "flood":
            os.write(1, b"x" * 20 * 1024 * 1024)
        case "grow":
            offered.append("echo")
            send(method="notifications/tools/list_changed")
        case "offer":
            offered[:] = arguments["tools"]
            TOOLS.update(arguments.get("schemas", {}))
            send(method="notifications/tools/list_changed")
    return RESULTS.get(name) or text(str(arguments.get("text", name)))


def answer(message: dict[str, Any], offered: list[str]) -> dict[str, Any] | None:
    match message["method"]:
        case "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "by hand", "version": "1"},
            }
        case "tools/list":
            if "unlisted" in offered:  # the next list fails
                offered.remove("unlisted")
                raise PermissionError(-32000)
            listed = [
                {"name": name, "inputSchema": {"type": "object"}, **TOOLS.get(name, {})}
                for name in offered
            ]
            return {"tools": listed}
        case "tools/call":
            return call(message["params"]["name"], message["params"].get("arguments", {}), offered)
    raise LookupError


def serve(offered: list[str]) -> None:
    sys.stdout.write("This line is no message.\n")
    for line in sys.stdin:
        message = json.loads(line)
        journal(message["method"])
        if "id" not in message:
            continue
        try:
            result = answer(message, offered)
        except LookupError:
            send(id=message["id"], error={"code": -32601, "message": "Method not found"})
            continue
        except PermissionError as error:
            send(id=message["id"], error={"code": int(str(error)), "message": "Not today."})
            continue
        if result is not None:
            send(id=message["id"], result=result)


def main() -> None:
    journal("started", os.getpid())
    sys.stderr.write(f"The key is {os.environ.get('SECRET')}\n")
    match sys.argv[1:]:
        case ["silent"]:
            sys.stdin.read()
        case ["silent_later", *offered]:  # from its second start
            with open(os.environ["JOURNAL"]) as file:  # noqa: PTH123 - as in `journal`
                starts = file.read().count("started")
            serve(offered) if starts == 1 else sys.stdin.read()
        case ["ended"]:
            sys.exit(1)
        case ["stubborn"]:
            import subprocess

            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with subprocess.Popen(["sleep", "60"]) as child:
                journal("started", child.pid)
                serve(["echo"])
                signal.pause()
        case offered:
            serve(offered)


if __name__ == "__main__":
    main()
