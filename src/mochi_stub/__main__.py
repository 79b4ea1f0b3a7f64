"""The `mochi-stub` command: arguments first, the server only when there is something to serve."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

DEFAULT_PORT = 11998


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM. 0: ended as told; 1: could not serve; wrong arguments exit with 2."""
    options = _arguments(argv)

    import logging

    from mochi_stub.server import StubServer

    logging.basicConfig(format="%(levelname)s %(message)s")
    logging.getLogger("mochi_stub").setLevel(options.log_level.upper())
    ended = _ended_by_signal()
    stub = StubServer(host=options.host, port=options.port, seed=options.seed, speed=options.speed)
    try:
        stub.start()
    except OSError as error:
        print(f"mochi-stub: cannot listen on {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"mochi-stub on {stub.url}", flush=True)
    while not ended.wait(0.5):  # with a limit, or Windows never hears of Ctrl-C
        pass
    stub.stop()
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="mochi-stub", description="A deterministic LLM server, true to Ollama's wire.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port",
        type=_port,
        default=os.environ.get("PORT") or DEFAULT_PORT,
        help="0: a free one (default: PORT or 11998)",
    )
    parser.add_argument(
        "--speed", type=_speed, default=1.0, help="1: 50 words a second, 2: twice as fast, 0: no waiting (default: 1)"
    )
    parser.add_argument("--seed", type=int, default=0, help="ids and times come from it (default: %(default)s)")
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"), help="(default: %(default)s)"
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    return parser.parse_args(argv)


class _Parser(argparse.ArgumentParser):
    """One line about what is wrong, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for, which takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"mochi-stub {version('mochi-server')}")
        parser.exit()


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"not a port: {text!r}")
    return int(text)


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed < float("inf"):
        raise argparse.ArgumentTypeError(f"not a speed: {text!r}")
    return speed


def _ended_by_signal() -> threading.Event:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    return ended


if __name__ == "__main__":
    sys.exit(main())
