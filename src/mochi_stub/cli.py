"""The `mochi-stub` command. It imports the server only after the arguments are parsed."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, NoReturn

with suppress(ImportError):  # on Windows, the functions that need fcntl raise OSError
    import fcntl

if TYPE_CHECKING:
    from mochi_stub.models.scheduler import Machine

DEFAULT_PORT = 11998
MAX_PORT = 65535
GRACE = 5.0  # seconds for running replies to end after a signal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Invalid arguments end the process with exit code 2.

    The exit code is 0 after success, 1 after a failure, and 3 if `status` finds no server.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or _is_server_option(arguments[0]):
        arguments.insert(0, "run")
    if arguments[0] == "--version":
        from importlib.metadata import version  # imported here, because it is slow

        print(f"mochi-stub {version('mochi-server')}")
        return 0
    options = _parse(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except (OSError, ValueError) as error:  # includes errors in the configuration
        if isinstance(error, OSError) and error.filename:
            return _fail(f"{error.strerror}: {error.filename}")
        return _fail(str(error).replace("\n", "; "))


def _is_server_option(argument: str) -> bool:
    return argument.startswith("-") and argument not in ("-h", "--help", "--version")


def _run(options: argparse.Namespace) -> int:
    import logging

    from mochi_stub.server import StubServer

    logging.basicConfig(format="%(levelname)s %(message)s")
    logging.getLogger("mochi_stub").setLevel(options.log_level.upper())
    stopped = _stopped_by_signal()
    port = _selected_port(options)
    stub = StubServer(
        host=options.host,
        port=port,
        config=options.config,
        seed=options.seed,
        speed=options.speed,
        machine=_machine(options),
    )
    try:
        stub.start()
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # without the address
        if error.errno == errno.EADDRINUSE:
            reason += ". Stop the other program, or select a port with --port"
        return _fail(f"cannot listen on {options.host}:{port}: {reason}")
    pid_file = options.pid_file or (_pid_file_of(stub.port) if options.in_background else None)
    try:
        if pid_file:
            _claim(pid_file, stub.url, _run_arguments(options, stub.port))
        try:
            print(f"mochi-stub on {stub.url}", flush=True)
        except OSError:  # standard output is closed
            sys.stdout = None
        while not stopped.wait(0.5):  # without a timeout, Windows does not deliver Ctrl-C
            pass
        if pid_file:
            _remove(pid_file)
    finally:
        stub.stop(grace=GRACE)
    return 0


def _machine(options: argparse.Namespace) -> Machine:
    from mochi_stub.models.scheduler import Machine

    return Machine(  # 0 means no limit
        parallel=options.parallel or None,
        max_loaded_models=options.max_loaded_models or None,
        max_queue=options.max_queue,
        context_length=options.context_length or None,
        keep_alive=options.keep_alive,
        prompt_speed=options.prompt_speed or None,
    )


def _run_arguments(options: argparse.Namespace, port: int) -> list[str]:
    """Return the arguments of `run` that start the same server again, in any folder."""
    arguments = [f"--port={port}"]
    option_names = vars(_server_options().parse_args([]))
    for name in ("pid_file", *option_names):
        value = getattr(options, name)
        if value is None or name == "in_background":
            continue
        if isinstance(value, Path):
            value = value.absolute()
        flag = name.replace("_", "-")
        arguments.append(f"--{flag}={value}")
    return arguments


def _start(options: argparse.Namespace) -> int:
    port = _selected_port(options)
    pid_file = options.pid_file or (_pid_file_of(port) if port else None)
    print(_spawn(options.arguments, pid_file))
    return 0


def _stop(options: argparse.Namespace) -> int:
    server = _terminate(_selected_pid_file(options))
    if server is None:
        return _fail(f"nothing to stop: {_not_found(options)}")
    print(f"mochi-stub on {server.url} has stopped")
    return 0


def _restart(options: argparse.Namespace) -> int:
    from mochi_stub.config import load

    pid_file = _selected_pid_file(options)
    server = _running(pid_file)
    if server is not None:
        options = _parse(["restart", *server.arguments, *options.arguments])
    if options.config:
        load(options.config)  # an invalid configuration must not stop the running server
    _terminate(pid_file)
    return _start(options)


def _status(options: argparse.Namespace) -> int:
    explicit = options.pid_file or options.port
    files = [_selected_pid_file(options)] if explicit else _running_pid_files()
    servers = list(filter(None, map(_running, files)))
    if not servers:
        print(f"not running: {_not_found(options)}")
        return 3  # the exit code of a stopped service in the Linux Standard Base
    for server in servers:
        print(f"mochi-stub on {server.url} (process {server.process})")
    return 0


def _check(options: argparse.Namespace) -> int:
    from mochi_stub.config import validate_config

    problems = validate_config(options.file)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{options.file}: no errors found")
    return 1 if problems else 0


def _selected_pid_file(options: argparse.Namespace) -> Path:
    """Return the selected PID file: by default that of the default port, or else of the only
    background server.

    Raises OSError if there are several background servers to choose from.
    """
    if options.pid_file or options.port:
        return options.pid_file or _pid_file_of(options.port)
    default = _pid_file_of(_default_port())
    running = _running_pid_files()
    if default in running or not running:
        return default
    if len(running) > 1:
        ports = ", ".join(path.stem for path in running)
        raise OSError(
            f"several servers run in the background, on the ports {ports}; choose one with --port"
        )
    return running[0]


def _selected_port(options: argparse.Namespace) -> int:
    """Return the port of `--port`, or else the default port."""
    if options.port is None:
        return _default_port()
    port: int = options.port
    return port


def _default_port() -> int:
    """Return the port in the environment variable PORT, or else the port of the stub.

    An invalid port ends the process with exit code 2.
    """
    text = os.environ.get("PORT") or str(DEFAULT_PORT)
    try:
        return int(_port(text))
    except ValueError:
        _Parser().error(f"PORT must be a number from 0 to {MAX_PORT}, not {text!r}")


def _not_found(options: argparse.Namespace) -> str:
    message = "no server in the background"
    if options.pid_file:
        return f"{message} with the PID file {options.pid_file}"
    if options.port:
        return f"{message} on port {options.port}"
    return message


def _fail(message: str) -> int:
    print(f"mochi-stub: {message}", file=sys.stderr)
    return 1


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(
        prog="mochi-stub",
        description="A deterministic LLM server with the APIs of Ollama, OpenAI, Anthropic and "
        "Gemini.",
        epilog="`mochi-stub run --help` lists the options of the server, such as --port, --config "
        "and --speed.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(
        metavar="COMMAND", required=True, title="commands (default: run)"
    )

    def add(
        name: str, command: Callable[[argparse.Namespace], int], text: str, *parents: _Parser
    ) -> _Parser:
        added = commands.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", parents=parents
        )
        added.set_defaults(command=command, arguments=argv[1:])
        return added

    common = _Parser(add_help=False)
    text = f"port to listen on; 0 selects a free port (default: $PORT or {DEFAULT_PORT})"
    common.add_argument("--port", type=_port, help=text)
    common.add_argument(
        "--pid-file",
        type=Path,
        metavar="FILE",
        help="PID file (default in background: one per port)",
    )
    server_options = _server_options()
    add("run", _run, "serve in the foreground", common, server_options)
    add(
        "start",
        _start,
        "serve in the background; return when the server responds",
        common,
        server_options,
    )
    add("stop", _stop, "stop the server in the background", common)
    add(
        "restart",
        _restart,
        "stop the server if it runs, then start it with the same options",
        common,
        server_options,
    )
    add(
        "status", _status, "show whether the server runs (exit code 0) or not (exit code 3)", common
    )
    checking = add("check", _check, "check a configuration for errors")
    checking.add_argument("file", type=Path, metavar="FILE", help="configuration to check")
    return parser.parse_args(argv)


def _server_options() -> _Parser:
    parser = _Parser(add_help=False)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration of models and replies (default: packaged)",
    )
    add(
        "--speed",
        type=read_speed,
        default=1.0,
        help="1: 50 words per second, 2: twice as fast, 0: no delays (default: 1)",
    )
    add("--seed", type=int, default=0, help="seed of IDs and times (default: %(default)s)")
    number = _bounded("number", int, sys.maxsize)
    for name, default, text in (
        ("parallel", 1, "parallel requests per model; 0: no limit"),
        ("max-loaded-models", 3, "models in memory; 0: no limit"),
        ("max-queue", 512, "requests that may wait for a model to load"),
        ("context-length", 0, "default num_ctx; 0: 4096, without truncation of prompts"),
        ("keep-alive", 300, "seconds that an idle model stays in memory"),
        ("prompt-speed", 0, "prompt tokens evaluated per second; 0: no delay"),
    ):
        add(
            f"--{name}",
            type=number,
            default=default,
            metavar="N",
            help=f"{text} (default: %(default)s)",
        )
    add(
        "--log-level",
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="(default: %(default)s)",
    )
    add("--in-background", action="store_true", help=argparse.SUPPRESS)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"mochi-stub: {message}\n")


def _bounded(name: str, kind: type[float], highest: float) -> Callable[[str], float]:
    """Return a parser of numbers from 0 to `highest`.

    For other values, argparse prints `invalid NAME value`.
    """

    def read(text: str) -> float:
        value = kind(text)
        if not 0 <= value <= highest:
            raise ValueError(text)
        return value

    read.__name__ = name
    return read


_port = _bounded("port", int, MAX_PORT)
read_speed = _bounded("speed", float, sys.float_info.max)
"""Parser of the speed of replies, also for the test mode of `mochi-server`."""


def _stopped_by_signal() -> threading.Event:
    """Return an event that is set by the first SIGINT or SIGTERM. A second one ends the process."""
    stopped = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop(_number: int, _frame: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        stopped.set()

    for number in numbers:
        signal.signal(number, stop)
    return stopped


NO_POSIX = "servers in the background need a POSIX system; use `mochi-stub run` instead"


@dataclass(frozen=True)
class Running:
    """Server in the background.

    `arguments` are the arguments of `run` that start the same server again.

    A server locks its PID file until its process ends, so stale files and reused process IDs can be
    detected.
    """

    process: int
    url: str
    arguments: tuple[str, ...] = ()


def _pid_file_of(port: int) -> Path:
    return _runtime_folder() / f"{port}.pid"


def _running(path: Path) -> Running | None:
    """Return the server of a PID file, or None.

    If the server has ended, its files are removed.
    """
    if not path.exists():
        return None
    descriptor = _lock(path)
    if descriptor is not None:
        _remove_locked(path, descriptor)
        os.close(descriptor)
        return None
    url, *arguments = _sibling(path, ".url").read_text().splitlines()
    return Running(int(path.read_text()), url, tuple(arguments))


def _running_pid_files() -> list[Path]:
    return [path for path in sorted(_runtime_folder().glob("*.pid")) if _running(path)]


def _spawn(arguments: Sequence[str], path: Path | None) -> str:
    """Start a server in the background and return the line that it prints when it is ready.

    `path` is its PID file, or None if the server chooses its port.
    """
    server = _running(path) if path else None
    if server is not None:
        raise OSError(
            f"already running on {server.url} (process {server.process}); use restart to replace it"
        )
    log = path.with_suffix(".log") if path else _runtime_folder() / f"starting-{os.getpid()}.log"
    reader, writer = os.pipe()
    with log.open("wb") as log_file, os.fdopen(reader) as output:
        process = subprocess.Popen(  # noqa: S603 - own interpreter, parsed arguments, no shell
            [sys.executable, "-m", "mochi_stub", "run", "--in-background", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=log_file,
            start_new_session=True,
        )
        os.close(writer)
        line = output.readline().strip()  # empty if the process ends, because that closes the pipe
    if not line:
        process.wait()
        lines = log.read_text(errors="replace").strip().splitlines()
        if path is None:
            log.unlink()
        if not lines:
            raise OSError("the server ended before it was ready")
        raise OSError(lines[-1].removeprefix("mochi-stub: "))
    process.returncode = 0  # prevents a ResourceWarning about the running process
    if path is None:
        port = line.rpartition(":")[2]
        log.rename(_runtime_folder() / f"{port}.log")
    return line


def _terminate(path: Path) -> Running | None:
    """End the server of a PID file, and return it after its end, or None if no server runs."""
    if sys.platform == "win32":
        raise OSError(NO_POSIX)
    server = _running(path)
    if server is None:
        return None
    with path.open() as pid_file:
        os.kill(server.process, signal.SIGTERM)
        fcntl.flock(pid_file, fcntl.LOCK_EX)  # waits for the end of the process
        _remove_locked(path, pid_file.fileno())
    return server


def _claim(path: Path, url: str, arguments: Sequence[str]) -> None:
    """Write the PID file of this process. Its lock lasts until the process ends."""
    descriptor = _lock(path)
    if descriptor is None:
        raise OSError(
            f"{path} is the PID file of a running server; stop it, or choose another --pid-file"
        )
    lines = [url, *arguments]
    _sibling(path, ".url").write_text("\n".join(lines) + "\n")
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, f"{os.getpid()}\n".encode())


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _sibling(path, ".url").unlink(missing_ok=True)


def _remove_locked(path: Path, descriptor: int) -> None:
    """Remove the files of a server that has ended, whose PID file this process has locked.

    Its path can already have the PID file of the next server, which stays.
    """
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            _remove(path)


def _lock(path: Path) -> int | None:
    """Lock a PID file, which may be new.

    Return its descriptor, or None if another process has locked it. Raises OSError if the file has
    other contents than a process ID.
    """
    if sys.platform == "win32":
        raise OSError(NO_POSIX)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    content = os.read(descriptor, 100).strip()
    if content and not content.isdigit():
        os.close(descriptor)
        raise OSError(f"{path} is not a PID file of mochi-stub; choose another --pid-file")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _runtime_folder() -> Path:
    if sys.platform == "win32":
        raise OSError(NO_POSIX)
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or gettempdir()) / f"mochi-stub-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(
            13, "the folder for PID files belongs to another user; set XDG_RUNTIME_DIR", str(folder)
        )
    return folder


def _sibling(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}{ending}")
