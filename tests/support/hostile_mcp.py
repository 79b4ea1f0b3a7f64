"""MCP server that sends malformed, huge and endless answers, over stdio or HTTP.

As a program, it takes the path of its journal, a seed and the names of its tools. A call of a tool
that is named as a key of `RESULTS` or `RESPONSES` gets this answer. A call of a tool whose name
begins with `random` gets a generated answer. With a seed of 0, all other answers are valid;
otherwise three of ten answers to another request are generated, too. It imports little, because it
starts often.
"""

from __future__ import annotations

import json
import os
import random
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEEP = b'{"a":' * 5000 + b"1" + b"}" * 5000
TEXT = b'{"content":[{"type":"text","text":"%s"}]}'
RESULTS: dict[str, bytes] = {
    "surrogate": TEXT % rb"\ud800",
    "bytes": TEXT % b"\xed\xa0\x80",
    "null": b"null",
    "number": b"5",
    "deep": b'{"content":[],"structuredContent":%s}' % DEEP,
    "digits": b'{"content":[],"structuredContent":{"a":%s}}' % (b"9" * 10_000),
    "cut": b'{"content":[',
    "values": b'{"content":[],"structuredContent":{"a":[%s1]}}' % (b"[]," * 500_000),
    "blocks": b'{"content":[%s{"type":"text","text":""}]}'
    % (b'{"type":"text","text":""},' * 10_000),
}
TOOLS: dict[str, bytes] = {
    "surrogate": rb'{"name":"bad","description":"\ud800","inputSchema":{"type":"object"}}',
    "deep": b'{"name":"bad","inputSchema":{"type":"object","properties":%s}}' % DEEP,
    "null": b"null",
    "many": b",".join([b'{"name":"bad"}'] * 2_000),
    "slow_pattern": b'{"name":"slow_pattern","inputSchema":{"type":"object"},"outputSchema":'
    b'{"type":"object","properties":{"a":{"type":"string","pattern":"^(a+)+$"}}}}',
    "doubled": b'{"name":"bad","inputSchema":{"type":"object","$defs":{"d0":{"type":"string"},%s},'
    b'"properties":{"a":{"$ref":"#/$defs/d12"}}}}'
    % b",".join(
        b'"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}}}'
        % (n, n - 1, n - 1)
        for n in range(1, 13)
    ),
    "unique": b'{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"uniqueItems":true,"enum":[%s]}}}}'
    % b",".join(b"[%d]" % n for n in range(500)),
}
RESULTS["slow_pattern"] = b'{"content":[],"structuredContent":{"a":"%s!"}}' % (b"a" * 40)
RESPONSES: dict[str, bytes] = {
    "null_id": b'{"jsonrpc":"2.0","id":null,"result":{"content":[]}}',
    "array_id": b'{"jsonrpc":"2.0","id":[1],"result":{"content":[]}}',
    "other_id": b'{"jsonrpc":"2.0","id":"other","result":{"content":[]}}',
    "without_id": b'{"jsonrpc":"2.0","result":{"content":[]}}',
    "null_error": b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error."}}',
    "broken_id": b'{"jsonrpc":"2.0","id":?,"result":{"content":[]}}',
    "padded_id": b'{"jsonrpc":"2.0","id":007,"result":{"content":[]}}',
}
"""Responses without the ID of the request."""
INITIALIZED: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "hostile", "version": "1"},
}
SERVER_REQUESTS = ("ping", "sampling/createMessage", "elicitation/create", "roots/list", "nonsense")
NOTIFICATIONS = ("tools/list_changed", "message", "progress", "cancelled", "nonsense")
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e308,
    2**70,
    "",
    "x" * 100_000,
    [],
    {},
    [[]],
    {"": {}},
    "\ud800",
    "\0",
    "2025-06-18",
)


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}}


def response(request_id: Any, result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(request_id).encode(), result)


class Hostile:
    """The answers of one MCP server.

    Its journal has one letter for each generated answer: the first letter of the request, without
    `tools/`. The journal continues after a restart.
    """

    def __init__(self, journal: str, seed: int, tools: list[str]) -> None:
        self._journal = journal
        self.seed = seed
        self._tools = tools
        self._requests = 0

    def answers(self, message: dict[str, Any]) -> list[bytes]:
        """Return the messages that answer a message of the client."""
        if "id" not in message or "method" not in message:
            return []
        method, request_id = message["method"], message["id"]
        name = message.get("params", {}).get("name", "")
        self._requests += 1
        chosen = random.Random(f"{self.seed} {self._requests} {self._generated_before()}")
        if name.startswith("random") or (
            self.seed and method != "tools/call" and chosen.random() < 0.3
        ):
            return self._generated(method, request_id, self._valid(method, name))
        if name in RESPONSES and method == "tools/call":
            return [RESPONSES[name]]
        result = RESULTS.get(name) if method == "tools/call" else None
        return [response(request_id, result or json.dumps(self._valid(method, name)).encode())]

    def _generated_before(self) -> int:
        return os.path.getsize(self._journal) if os.path.exists(self._journal) else 0  # noqa: PTH110, PTH202

    def _valid(self, method: str, name: str) -> dict[str, Any]:
        if method == "initialize":
            return INITIALIZED
        if method == "tools/call":
            return {"content": [{"type": "text", "text": name}]}
        return {"tools": [tool(name) for name in self._tools]} if method == "tools/list" else {}

    def listing(self, name: str) -> bytes:
        """Return a list of tools that contains a malformed tool after the valid ones."""
        valid = [json.dumps(tool(name)).encode() for name in self._tools]
        return b'{"tools":[%s]}' % b",".join([*valid, TOOLS[name]])

    def messages(self) -> list[bytes]:
        """Return generated requests and notifications that answer nothing, or no messages if the
        seed is 0.
        """
        if not self.seed:
            return []
        chosen = random.Random(f"{self.seed} {self._generated_before()}")
        return [*self._requested(chosen, 1, {})[:-1], *self._notified(chosen, 1, {})[:-1]]

    def _generated(self, method: str, request_id: Any, valid: dict[str, Any]) -> list[bytes]:
        chosen = random.Random(f"{self.seed} {self._generated_before()}")
        with open(self._journal, "ab") as file:  # noqa: PTH123 - importing pathlib takes as long as all the others
            file.write(method.removeprefix("tools/")[:1].encode())
        return chosen.choice(self.KINDS)(self, chosen, request_id, valid)

    def _mutated(
        self, chosen: random.Random, request_id: Any, valid: dict[str, Any]
    ) -> list[bytes]:
        message = {"jsonrpc": "2.0", "id": request_id, "result": valid}
        text = json.dumps(mutated(chosen, message))
        return [text.encode()]

    def _error(self, chosen: random.Random, request_id: Any, valid: dict[str, Any]) -> list[bytes]:
        del valid
        error = mutated(
            chosen,
            {"code": chosen.choice([-32000, -32600, -32601, 0]), "message": "No.", "data": {}},
        )
        return [json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()]

    def _result(self, chosen: random.Random, request_id: Any, valid: dict[str, Any]) -> list[bytes]:
        del valid
        return [response(request_id, RESULTS[chosen.choice(sorted(RESULTS))])]

    def _listing(
        self, chosen: random.Random, request_id: Any, valid: dict[str, Any]
    ) -> list[bytes]:
        del valid
        return [response(request_id, self.listing(chosen.choice(sorted(TOOLS))))]

    def _garbled(
        self, chosen: random.Random, request_id: Any, valid: dict[str, Any]
    ) -> list[bytes]:
        text = bytearray(response(request_id, json.dumps(valid).encode()))
        for _ in range(chosen.randint(1, 5)):
            text[chosen.randrange(len(text))] = chosen.choice(b'"\\{}[],:0\x80\xff\r ')
        return [bytes(text)]

    def _requested(
        self, chosen: random.Random, request_id: Any, valid: dict[str, Any]
    ) -> list[bytes]:
        message = {
            "jsonrpc": "2.0",
            "id": "s",
            "method": chosen.choice(SERVER_REQUESTS),
            "params": {"messages": []},
        }
        requests = [
            json.dumps(mutated(chosen, {**message, "id": f"s{number}"})) for number in range(20)
        ]
        return [
            *(text.encode() for text in requests),
            response(request_id, json.dumps(valid).encode()),
        ]

    def _notified(
        self, chosen: random.Random, request_id: Any, valid: dict[str, Any]
    ) -> list[bytes]:
        method = f"notifications/{chosen.choice(NOTIFICATIONS)}"
        message = {
            "jsonrpc": "2.0",
            "method": method,
            "params": {"requestId": request_id, "progress": 1},
        }
        notifications = [json.dumps(mutated(chosen, message)).encode() for _ in range(20)]
        return [*notifications, response(request_id, json.dumps(valid).encode())]

    def _noise(self, chosen: random.Random, request_id: Any, valid: dict[str, Any]) -> list[bytes]:
        line = chosen.choice(
            [b"y", b"{", b'{"id"}', b"\r", b"[" * 1000, b'"' * 1000, b"", b":", b"data: {}"]
        )
        return [*[line] * 200, response(request_id, json.dumps(valid).encode())]

    KINDS = (
        _mutated,
        _mutated,
        _mutated,
        _error,
        _result,
        _listing,
        _garbled,
        _requested,
        _notified,
        _noise,
    )


def mutated(chosen: random.Random, value: Any) -> Any:
    """Return a value in which one part is replaced, removed or repeated."""
    if not isinstance(value, dict | list) or not value or chosen.random() < 0.2:
        return chosen.choice(ODD)
    key = chosen.choice(sorted(value)) if isinstance(value, dict) else chosen.randrange(len(value))
    copy: Any = value.copy()
    if chosen.random() < 0.1:
        del copy[key]
    else:
        copy[key] = mutated(chosen, copy[key])
    return copy


def flood(descriptor: int) -> None:
    """Write lines that are no messages until the pipe is closed."""
    while True:
        os.write(descriptor, b"y\n" * 32_768)


def main() -> None:
    journal, seed, *tools = sys.argv[1:]
    server = Hostile(journal, int(seed), tools)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        listed = message.get("method") == "tools/list"
        kinds = [name.removeprefix("list_") for name in tools if name.startswith("list_")]
        lines = (
            [response(message["id"], server.listing(kinds[0]))]
            if listed and kinds
            else server.answers(message)
        )
        sys.stdout.buffer.write(b"".join(line + b"\n" for line in lines))
        sys.stdout.buffer.flush()
        if listed and "flood" in tools:
            flood(1)
        if listed and "flood_stderr" in tools:
            flood(2)


if __name__ == "__main__":
    main()
