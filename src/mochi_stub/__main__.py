"""The `mochi-stub` command: arguments first, the server only when there is something to serve."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from mochi_stub.recorder import Recorder

DEFAULT_PORT = 11998
DEFAULT_PORT_HELP = "(default: PORT or 11998)"
GRACE = 5.0
"""Seconds that running replies are given to end when the server is told to; told again, it ends at once."""
NOT_RUNNING = 3
"""What `status` exits with, as programs that manage services expect."""


def main(argv: Sequence[str] | None = None) -> int:
    """0: done; 1: could not be done; 3: `status` of a server that is not running; wrong arguments exit with 2."""
    given = list(sys.argv[1:] if argv is None else argv)
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help", "--version")):
        given.insert(0, "run")
    options = _arguments(given)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except OSError as error:
        return _complain(f"{error.strerror}: {error.filename}" if error.filename else str(error))


def _run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    import logging

    from mochi_stub.scheduler import Machine
    from mochi_stub.server import StubServer

    logging.basicConfig(format="%(levelname)s %(message)s")
    logging.getLogger("mochi_stub").setLevel(options.log_level.upper())
    ended = _ended_by_signal()
    try:
        stub = StubServer(
            host=options.host,
            port=options.port,
            config=options.config,
            seed=options.seed,
            speed=options.speed,
            record=_recorder(options),
            machine=Machine(
                parallel=options.parallel or None,
                max_loaded_models=options.max_loaded_models or None,
                max_queue=options.max_queue,
                context_length=options.context_length or None,
            ),
        ).start()
    except ValueError as error:  # a mistake in the configuration, or in the URL to be recorded
        return _complain(str(error).replace("\n", "; "))
    except OSError as error:
        if error.filename:
            raise
        return _complain(f"cannot listen on {options.host}:{options.port}: {error.strerror}")
    try:
        return _serve(stub.url, stub.port, options, ended)
    finally:
        stub.stop(grace=GRACE)


def _recorder(options: argparse.Namespace) -> Recorder | None:
    if not options.record:
        return None
    from mochi_stub.recorder import record

    return record(options.record, options.to)


def _serve(url: str, port: int, options: argparse.Namespace, ended: threading.Event) -> int:
    remove = None
    if options.in_background or options.pid_file:
        from mochi_stub.daemon import PidFile, Problem, pid_file_of

        try:
            remove = PidFile(options.pid_file or pid_file_of(port), os.getpid(), url).remove
        except Problem as error:
            return _complain(str(error))
    try:
        print(f"mochi-stub on {url}", flush=True)
    except OSError:  # nobody has to read it
        sys.stdout = None
    while not ended.wait(0.5):  # with a limit, or Windows never hears of Ctrl-C
        pass
    if remove:
        remove()
    return 0


def _start(options: argparse.Namespace) -> int:
    from mochi_stub.daemon import Problem, pid_file_of, start

    path = options.pid_file or (pid_file_of(options.port) if options.port else None)
    try:
        print(start(_again(options), path))
    except Problem as error:
        return _complain(str(error))
    return 0


def _stop(options: argparse.Namespace) -> int:
    from mochi_stub.daemon import Problem, stop

    try:
        ended = stop(_pid_file(options))
    except Problem as error:
        return _complain(str(error))
    if ended is None:
        return _complain(f"nothing to stop: {_place(options)}")
    print(f"mochi-stub on {ended.url} has ended")
    return 0


def _restart(options: argparse.Namespace) -> int:
    """A server that runs is ended only where the configuration of the next one can be used."""
    from mochi_stub.config import ConfigError, load
    from mochi_stub.daemon import Problem, stop

    try:
        if options.config:
            load(options.config)
    except ConfigError as error:
        return _complain(str(error))
    try:
        stop(_pid_file(options))
    except Problem as error:
        return _complain(str(error))
    return _start(options)


def _status(options: argparse.Namespace) -> int:
    from mochi_stub.daemon import Problem, running

    try:
        there = running(_pid_file(options))
    except Problem as error:
        return _complain(str(error))
    print(f"mochi-stub on {there.url} (process {there.process})" if there else f"not running: {_place(options)}")
    return 0 if there else NOT_RUNNING


def _check(options: argparse.Namespace) -> int:
    from mochi_stub.config import check

    problems = check(options.file)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{options.file}: nothing is wrong")
    return 1 if problems else 0


def _verify(options: argparse.Namespace) -> int:
    from mochi_stub.verify import verify

    return verify(options.url, options.model)


def _pid_file(options: argparse.Namespace) -> Path:
    from mochi_stub.daemon import pid_file_of

    return options.pid_file or pid_file_of(options.port)


def _place(options: argparse.Namespace) -> str:
    return f"no server has {options.pid_file}" if options.pid_file else f"no server was started on port {options.port}"


def _again(options: argparse.Namespace) -> list[str]:
    """The options of `start` as those of `run`."""
    given = {name: getattr(options, name) for name in _SERVING if getattr(options, name) is not None}
    return [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def _complain(message: str, code: int = 1) -> int:
    print(f"mochi-stub: {message}", file=sys.stderr)
    return code


_SERVING = (
    *("host", "port", "config", "speed", "seed", "log_level", "pid_file", "record", "to"),
    *("parallel", "max_loaded_models", "max_queue", "context_length"),
)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="mochi-stub",
        description="A deterministic LLM server, true to Ollama's wire.",
        epilog="mochi-stub run --help shows what a server can be told: its port, its configuration, its speed ...",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands (without one: run)")
    serving, finding = _serving_options(), _finding_options()
    _add(commands, "run", _run, "serve in the foreground", serving)
    _add(commands, "start", _start, "serve in the background; returns when the server answers", serving)
    _add(commands, "stop", _stop, "end the server in the background", finding)
    _add(commands, "restart", _restart, "stop, if it runs, and start", serving)
    _add(commands, "status", _status, "tell whether it runs (exit code 0) or not (3)", finding)
    checking = _add(commands, "check", _check, "look for mistakes in a configuration", None)
    checking.add_argument("file", type=Path, metavar="FILE", help="a config.yaml")
    verifying = _add(commands, "verify", _verify, "compare a real Ollama with the stub", None)
    verifying.add_argument("url", metavar="URL", help="a server like http://127.0.0.1:11434")
    verifying.add_argument("--model", required=True, metavar="NAME", help="a model that it has")
    options = parser.parse_args(argv)
    if bool(getattr(options, "record", None)) != bool(getattr(options, "to", None)):
        parser.error("--record and --to go together")
    return options


def _add(
    commands: argparse._SubParsersAction[_Parser],
    name: str,
    command: Callable[[argparse.Namespace], int],
    text: str,
    parent: _Parser | None,
) -> _Parser:
    description = f"{text[0].upper()}{text[1:]}."
    parser = commands.add_parser(name, help=text, description=description, parents=[parent] if parent else [])
    parser.set_defaults(command=command)
    return parser


def _finding_options() -> _Parser:
    parser = _Parser(add_help=False)
    parser.add_argument("--port", type=_port, default=_default_port(), help=f"the server's port {DEFAULT_PORT_HELP}")
    parser.add_argument("--pid-file", type=Path, metavar="FILE", help="(default: one for each port)")
    return parser


def _serving_options() -> _Parser:
    parser = _Parser(add_help=False)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=_default_port(), help=f"0: a free one {DEFAULT_PORT_HELP}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="models and what they answer (default: packaged)")
    parser.add_argument(
        "--speed", type=_speed, default=1.0, help="1: 50 words a second, 2: twice as fast, 0: no waiting (default: 1)"
    )
    parser.add_argument("--seed", type=int, default=0, help="ids and times come from it (default: %(default)s)")
    for name, (default, text) in _MACHINE.items():
        parser.add_argument(
            f"--{name}", type=_number, default=default, metavar="N", help=f"{text} (default: %(default)s)"
        )
    parser.add_argument(
        "--record", metavar="URL", help="pass requests on to the server there and write down its replies"
    )
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="where recordings are written")
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"), help="(default: %(default)s)"
    )
    parser.add_argument("--pid-file", type=Path, metavar="FILE", help="(default: in the background one for each port)")
    parser.add_argument("--in-background", action="store_true", help=argparse.SUPPRESS)
    return parser


_MACHINE: Mapping[str, tuple[int, str]] = {
    "parallel": (1, "requests that a model of Ollama's wire serves at a time; 0: any number"),
    "max-loaded-models": (3, "models in memory; 0: any number"),
    "max-queue": (512, "requests that may wait for a load"),
    "context-length": (0, "num_ctx where none is set; 0: 4096, to which prompts are not cut"),
}


class _Parser(argparse.ArgumentParser):
    """One line about what is wrong, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"mochi-stub: {message}\n")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for, which takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"mochi-stub {version('mochi-server')}")
        parser.exit()


def _default_port() -> str | int:
    return os.environ.get("PORT") or DEFAULT_PORT


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"not a port: {text!r}")
    return int(text)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"not a number: {text!r}")
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

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    return ended


if __name__ == "__main__":
    sys.exit(main())
