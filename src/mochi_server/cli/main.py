"""The ``mochi-server`` command. It parses its arguments before it imports slow modules."""

import argparse
import errno
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from mochi_server import __version__
from mochi_server.cli import print_text
from mochi_server.constants import LogFormat
from mochi_server.util.text import nearest

if TYPE_CHECKING:
    from pydantic import ValidationError

    from mochi_server.config import MochiServerSettings

TEST_PORT = 5099
STUB_PORT = 11998

_FLAGS = {
    "host": ("HOST", "address to listen on (default: 127.0.0.1)"),
    "port": (
        "PORT",
        f"port to listen on, 0 for a free port (default: 8000, in test mode {TEST_PORT})",
    ),
    "root_path": ("PATH", "path prefix of a reverse proxy, such as /mochi (default: none)"),
    "ollama_host": (
        "URL",
        "URL of Ollama; repeat it for several hosts (default: http://localhost:11434)",
    ),
    "workers": (
        "N",
        "number of server processes; more than one requires MOCHI_STORE_URL (default: 1)",
    ),
    "data_dir": (
        "DIR",
        "directory of sessions, tools, agents and prompts (default: the current directory)",
    ),
    "log_level": ("LEVEL", "DEBUG, INFO, WARNING, ERROR or CRITICAL (default: INFO)"),
    "log_format": ("FORMAT", "text, or json for one JSON object per line (default: text)"),
}
"""Settings that have a command-line option: for each setting, the placeholder and the help text of
the option.
"""
_SWITCHES = ("test_mode", "stub_speed", "stub_all_models", "insecure")
"""Options of the server that are not settings."""

_ACCEPTED = {
    "export-scenario": ("data_dir",),
    "import": ("data_dir", "ollama_host"),
    "keys": ("data_dir",),
    "replay": ("data_dir", "ollama_host"),
}
"""Settings for which a command has an option.

The server has an option for each setting in ``_FLAGS``.
"""

_REQUIRED = {
    "bool_parsing": "use true or false",
    "float_parsing": "use a number",
    "int_parsing": "use a whole number",
}
"""Messages for values of settings, by the type of pydantic's error."""

_KEY_FLAGS = {
    "expires": ("WHEN", "last day (2027-01-31, UTC), time (2027-01-31T18:00Z), or days (90d)"),
    "tools": ("NAMES", 'tools that the key may use, such as "get_*,add_numbers"; "" for none'),
    "agents": ("NAMES", 'agents that the key may use; "" for none'),
    "models": ("NAMES", "models that the key may use"),
    "policy": ("POLICY", "weakest tool policy, such as confirm_destructive"),
    "turns_at_a_time": ("N", "limit of running turns"),
    "turns_per_minute": ("N", "limit of turns that start in a minute"),
    "tokens_per_day": ("N", "limit of tokens in a day (UTC)"),
}
"""Options of `keys add` for fields of the keys file."""

_EPILOG = """\
Each setting has an environment variable MOCHI_<NAME>. Settings without an option:
  MOCHI_API_KEYS         API keys, separated by commas (default: no key on loopback,
                         else a generated key)
  MOCHI_API_KEYS_FILE    file of API keys with names, for `mochi-server keys`
  MOCHI_STORE_URL        postgresql://... stores the sessions in a database
  MOCHI_TOOLS_DIR        directory of the tools; MOCHI_AGENTS_DIR is that of the agents
  MOCHI_ALLOWED_ORIGINS  origins of web pages that may use the server

The documentation begins at docs/index.md of the project. A running server shows its API at /docs.
"""


_CODE_AGENTS = "--with-code-agents"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print the error message in one line, without the usage text, and exit with code 2."""
        if re.search("invalid choice: '(serve|start|run)'", message):
            message = "the server needs no command: `mochi-server` starts it"
        self.exit(_print_error(message, program=self.prog))

    def check_options(self, argv: Sequence[str]) -> None:
        """Exit with an error message if an option is unknown.

        The message suggests an option or a variable.
        """
        for argument in argv:
            name = argument.partition("=")[0]
            if name in ("--", *_ACCEPTED):  # argparse checks the options of these commands
                return
            is_option = name.startswith("-") and not name[1:2].isdigit()
            # `init` has an option of its own.
            if is_option and name != _CODE_AGENTS and name not in self._option_string_actions:
                self.error(f"unknown option {name}; {self._hint(name)}")

    def _hint(self, name: str) -> str:
        from mochi_server.config import MochiServerSettings

        known = {}
        for field in MochiServerSettings.model_fields:
            known[_flag(field)] = f"the environment variable MOCHI_{field.upper()}"
        for option in self._option_string_actions:
            known[option] = option
        similar = nearest(name, known)
        if similar is None:
            return f"`{self.prog} --help` lists the options"
        return f"did you mean {known[similar]}?"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the ``mochi-server`` command and return its exit code.

    Raises ``SystemExit`` for invalid arguments, `--help` and `--version`.
    """
    parser = _parser()
    given = sys.argv[1:] if argv is None else argv
    _set_log_format(given)
    parser.check_options(given)
    arguments = parser.parse_args(argv)
    options = _options(arguments)
    command = arguments.command
    if command is None:
        _exit_on(signal.SIGINT)
    else:
        _check_options_of_server(parser, arguments)
    if command == "init":
        return _init(arguments.directory, with_code_agents=arguments.with_code_agents)
    from pydantic import ValidationError

    from mochi_server.errors import MochiError

    try:
        return _run(arguments, options)
    except ValidationError as error:
        return _print_invalid_setting(error, options)
    except MochiError as error:
        return _print_error(error.message, code=1)


def _set_log_format(given: Sequence[str]) -> None:
    """Set MOCHI_LOG_FORMAT before all arguments are checked, for errors about other arguments."""
    for argument, following in pairwise((*given, "")):
        name, separator, value = argument.partition("=")
        chosen = value if separator else following
        if name == _flag("log_format") and chosen.lower() in get_args(LogFormat):
            os.environ["MOCHI_LOG_FORMAT"] = chosen


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that are given as options.

    Several hosts of Ollama, a host with a name or a file of hosts become ``ollama_hosts``.
    """
    options = {}
    for name in _FLAGS:
        value = getattr(arguments, name)
        if value is not None:
            options[name] = value
    hosts = options.pop("ollama_host", None)
    if not hosts:
        return options
    if len(hosts) == 1 and not re.match(r"@|[\w.-]+=", hosts[0]):
        options["ollama_host"] = hosts[0]
    else:
        options["ollama_hosts"] = hosts
    return options


def _check_options_of_server(parser: _Parser, arguments: argparse.Namespace) -> None:
    """Exit with an error message if a command has an option of the server."""
    command = arguments.command
    accepted = _ACCEPTED.get(command, ())
    for name in (*_FLAGS, *_SWITCHES):
        is_given = getattr(arguments, name) != parser.get_default(name)
        if is_given and name not in accepted:
            parser.error(f"{command} does not accept {_flag(name)}")


def _exit_on(*numbers: int, clean_up: Callable[[], object] = lambda: None) -> None:
    """Let each of these signals end the process until the server handles signals.

    An import could lose a ``KeyboardInterrupt``.
    """

    def leave(number: int, _: object) -> None:
        clean_up()
        os._exit(128 + number)

    for number in numbers:
        signal.signal(number, leave)


def _run(arguments: argparse.Namespace, options: dict[str, Any]) -> int:
    from mochi_server.config import MochiServerSettings, with_given_host

    if arguments.command == "openapi":
        import json

        from mochi_server.app import create_app

        # The document does not depend on settings, so invalid settings must not prevent it.
        app = create_app(MochiServerSettings.model_construct())
        print_text(json.dumps(app.openapi(), indent=2))
        return 0
    if arguments.command == "store":
        return _copy(arguments.source, arguments.target)
    settings = MochiServerSettings(**with_given_host(options))
    if arguments.command is not None:
        run = {"migrate": _migrate, "keys": _keys, "import": _import}.get(
            arguments.command, _scenario
        )
        return run(arguments, settings)
    if arguments.test_mode or settings.env == "test":
        return _test_mode(options, arguments)
    for name in ("stub_speed", "stub_all_models"):
        if getattr(arguments, name) is not None:
            return _print_error(f"{_flag(name)} requires --test-mode")
    return _serve(settings, insecure=arguments.insecure)


def _parser() -> _Parser:
    parser = _Parser(
        prog="mochi-server",
        description="A headless chat backend for Ollama. Without a command, the server starts.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", parser_class=_Parser
    )
    text = (
        "create tools, agents, system_prompts and chat_sessions with samples; existing files are "
        "not overwritten"
    )
    init = _command(commands, "init", text)
    init.add_argument(
        "directory", metavar="DIR", nargs="?", default=".", help="default: the current directory"
    )
    text = "also copy the agents that run commands and write code with the rights of the server"
    init.add_argument(_CODE_AGENTS, action="store_true", help=text)
    _command(
        commands,
        "migrate",
        "migrate the database of MOCHI_STORE_URL; each start of the server does this, too",
    )
    store = _command(commands, "store", "copy sessions between files and a database")
    actions = store.add_subparsers(
        dest="action", metavar="{copy}", required=True, parser_class=_Parser
    )
    text = (
        "copy all sessions, except those that are equal, newer or changed in TO; repeat it to "
        "continue a stopped copy"
    )
    copy = _command(actions, "copy", text)
    copy.add_argument("source", metavar="FROM", help="a data directory, or postgresql://...")
    copy.add_argument("target", metavar="TO", help="a data directory, or postgresql://...")
    actions = _command(
        commands, "keys", "manage the API keys in the file of MOCHI_API_KEYS_FILE"
    ).add_subparsers(
        dest="action", metavar="{add,list,revoke}", required=True, parser_class=_Parser
    )
    new = _command(actions, "add", "create keys and print them; the file contains only hashes")
    new.add_argument(
        "--scope", choices=("own", "all"), default="own", help="own sessions (default), or all"
    )
    for name, (metavar, text) in _KEY_FLAGS.items():
        new.add_argument(_flag(name), metavar=metavar, help=text)
    new.add_argument("names", metavar="NAME", nargs="+")
    listed = _command(actions, "list", "list the keys with their scopes, dates and IDs")
    revoked = _command(actions, "revoke", "remove a key")
    revoked.add_argument("name", metavar="NAME")
    _command(commands, "openapi", "print the OpenAPI document")
    text = "write a session as a configuration of mochi-stub, and a test that replays it"
    export = _command(commands, "export-scenario", text)
    export.add_argument("session", metavar="SESSION_ID")
    export.add_argument(
        "-o", "--output", metavar="FILE", default="scenario.yaml", help="default: scenario.yaml"
    )
    text = (
        "regular expression; *** replaces what matches it in all free text: messages, reasoning, "
        "arguments and results of tools, the system prompt, stop texts, the JSON schema of "
        "answers and the metadata of agents; numbers among them become 0; the names of models, "
        "tools and agents stay, because the test finds the answers and the results by these "
        "names; also options, types and limits stay, because the test creates a session with them"
    )
    export.add_argument("--mask", metavar="REGEX", default="(?!)", help=text)
    text = "send the user's messages of a scenario to a model, and print how its answers differ"
    replay = _command(commands, "replay", text)
    replay.add_argument("scenario", metavar="FILE", help="a file that export-scenario has written")
    replay.add_argument("--model", metavar="NAME", help="default: the recorded model")
    text = (
        "import sessions of this server, or the export of ChatGPT, Claude, LibreChat or Open "
        "WebUI; no server may use the data directory meanwhile"
    )
    imported = _command(commands, "import", text)
    imported.add_argument("file", metavar="FILE", help="a JSON or ZIP file")
    for command, name in (
        *((command, "data_dir") for command in (new, listed, revoked, export)),
        *((command, name) for command in (replay, imported) for name in _ACCEPTED["import"]),
    ):
        _add_setting(command, name, default=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"mochi-server {_version()}")
    for name in _FLAGS:
        _add_setting(parser, name)
    text = "use a bundled LLM instead of Ollama; sessions are deleted at exit"
    parser.add_argument("--test-mode", action="store_true", help=text)
    text = "test mode: speed relative to 50 words per second; 0 for no delays"
    parser.add_argument("--stub-speed", metavar="X", type=_speed, help=text)
    text = "test mode: list also the models that fail, pause or break off, such as failing"
    parser.add_argument("--stub-all-models", action="store_true", default=None, help=text)
    parser.add_argument(
        "--insecure", action="store_true", help="serve any address without an API key"
    )
    return parser


def _add_setting(parser: _Parser, name: str, default: str | None = None) -> None:
    """Add the option of a setting."""
    metavar, text = _FLAGS[name]
    action = "append" if name == "ollama_host" else "store"
    parser.add_argument(_flag(name), metavar=metavar, help=text, action=action, default=default)


def _speed(text: str) -> float:
    """Return the speed of the stub. Raises ``ValueError``."""
    from mochi_stub.cli import read_speed

    return read_speed(text)


_speed.__name__ = "speed"  # for the error message of argparse


def _version() -> str:
    """Return the version, and the commit if the package was built in a checkout."""
    commit = Path(__file__).parents[1] / "commit.txt"  # see `hatch_build.py`
    if not commit.is_file():
        return __version__
    return f"{__version__} (commit {commit.read_text()})"


def _command(commands: "argparse._SubParsersAction[_Parser]", name: str, text: str) -> _Parser:
    return commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _init(directory: str, *, with_code_agents: bool) -> int:
    from mochi_server.cli.init import describe, scaffold

    path = Path(directory)
    try:
        created, existing = scaffold(path, with_code_agents=with_code_agents)
    except OSError as error:
        text = f"cannot create {error.filename or directory}: {error.strerror}"
        return _print_error(text, code=1)
    print_text(describe(path, created, existing, with_code_agents=with_code_agents))
    return 0


def _test_mode(options: dict[str, Any], arguments: argparse.Namespace) -> int:
    """Serve with the bundled stub LLM instead of Ollama.

    Sessions are stored in a directory that is deleted at exit.
    """
    for name, reason in {"ollama_host": "has its own LLM", "workers": "has one process"}.items():
        if getattr(arguments, name) is not None:
            return _print_error(f"{_flag(name)} cannot be combined with test mode, which {reason}")
    import logging
    from tempfile import TemporaryDirectory

    from mochi_server.cli.init import scaffold
    from mochi_server.config import CODE_DIRECTORIES, MochiServerSettings
    from mochi_server.util.platform import on_hangup
    from mochi_stub import StubServer
    from mochi_stub.config import test_mode_config

    logging.getLogger("mochi_stub").setLevel(logging.WARNING)
    speed = 1.0 if arguments.stub_speed is None else arguments.stub_speed
    config = test_mode_config(all_models=bool(arguments.stub_all_models))
    directory = TemporaryDirectory(prefix="mochi-server-")
    _exit_on(signal.SIGINT, signal.SIGTERM, clean_up=directory.cleanup)
    on_hangup(lambda: signal.raise_signal(signal.SIGTERM))
    with (
        directory as sessions,
        StubServer(port=STUB_PORT, fall_back_to_free_port=True, speed=speed, config=config) as stub,
    ):
        values = {
            **options,
            "ollama_host": stub.url,
            "store_url": "",
            "workers": 1,
        }
        values |= {
            "ollama_hosts": (),
            "env": "test",
            "sessions_dir": sessions,
            "agent_chats_dir": f"{sessions}/agent_chats",
        }
        settings = MochiServerSettings(**values)
        if "port" not in settings.model_fields_set:
            values["port"] = TEST_PORT
        missing: list[str] = [
            name for name in CODE_DIRECTORIES if settings.code_directory(name) is None
        ]
        if missing:
            scaffold(Path(sessions, "samples"), with_code_agents=True)  # the tutorial uses them
            if not settings.resolved(settings.system_prompts_dir).is_dir():
                missing.append("system_prompts_dir")
        for name in missing:
            folder = name.removesuffix("_dir")
            values[name] = f"{sessions}/samples/{folder}"
        return _serve(MochiServerSettings(**values), insecure=arguments.insecure)


def _serve(settings: "MochiServerSettings", *, insecure: bool) -> int:
    import gc

    gc.disable()  # saves a tenth of the startup time
    from mochi_server.cli.server import serve

    try:
        return serve(settings, insecure=insecure)
    except OSError as error:
        text = f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}"
        if error.errno == errno.EADDRINUSE:
            text += ". Stop the other program, or select a port with --port"
        return _print_error(text, code=1)


def _migrate(_: argparse.Namespace, settings: "MochiServerSettings") -> int:
    import asyncio

    from mochi_server.container import prepare_store

    if not settings.store_url:
        return _print_error("MOCHI_STORE_URL is not set; files need no migration")
    print_text(f"mochi-server: {asyncio.run(prepare_store(settings))}")
    return 0


def _scenario(arguments: argparse.Namespace, settings: "MochiServerSettings") -> int:
    from mochi_server.client import ClientError

    if arguments.command == "replay":
        from mochi_server.cli.replay import replay as command
    else:
        from mochi_server.cli.scenario import export as command
    try:
        command(arguments, settings)
    except re.error as error:
        return _print_error(f"--mask is not a regular expression: {error}")
    except (OSError, ValueError, ClientError) as error:
        return _print_error(str(error), code=1)
    return 0


def _import(arguments: argparse.Namespace, settings: "MochiServerSettings") -> int:
    from mochi_server.cli.import_file import import_file

    try:
        import_file(Path(arguments.file), settings)
    except OSError as error:
        return _print_error(f"cannot read {arguments.file}: {error.strerror}", code=1)
    return 0


def _keys(arguments: argparse.Namespace, settings: "MochiServerSettings") -> int:
    from mochi_server.cli.keys import add, list_keys, revoke

    path = settings.keys_path
    if path is None:
        return _print_error(
            "MOCHI_API_KEYS_FILE is not set. Set it, such as `export MOCHI_API_KEYS_FILE=keys.yaml`"
        )
    if arguments.action == "list":
        print_text(list_keys(path))
        return 0
    if arguments.action == "revoke":
        print_text(revoke(path, arguments.name))
        return 0
    given = {}
    for field in ("scope", *_KEY_FLAGS):
        if getattr(arguments, field, None) is not None:
            given[field] = getattr(arguments, field)
    print_text(add(path, arguments.names, given))
    return 0


def _copy(source: str, target: str) -> int:
    import asyncio

    from mochi_server.cli.store_copy import copy, find_problem
    from mochi_server.config import without_credentials

    def show(done: int, total: int) -> None:
        if done % 100 == 0:
            print(f"{done} of {total} sessions", file=sys.stderr)

    try:
        problem = find_problem(source, target)
    except OSError as error:
        place = without_credentials(str(error.filename))
        return _print_error(f"cannot read {place}: {error.strerror}", code=1)
    if problem is not None:
        return _print_error(problem)
    try:
        result = asyncio.run(copy(source, target, show))
    except KeyboardInterrupt:
        return _print_error(
            "stopped before all sessions were copied; run the same command again to continue",
            code=130,
        )
    print_text(
        f"copied {result.copied}, already equal {result.existing}, different "
        f"{len(result.different)}; {result.copied + result.existing} sessions with "
        f"{result.messages} messages are equal in both stores"
    )
    for session_id in result.different:
        print(
            f"different: {session_id} (newer or changed in the target, or changed by the copy)",
            file=sys.stderr,
        )
    for session_id in result.unreadable:
        print(
            f"not readable: {session_id} (damaged, incomplete, inaccessible or of a later version)",
            file=sys.stderr,
        )
    return 1 if result.different or result.unreadable else 0


def _print_invalid_setting(error: "ValidationError", options: dict[str, Any]) -> int:
    from mochi_server.config import OLLAMA_HOST, is_secret, without_credentials
    from mochi_server.util.text import MASK

    problem = error.errors(include_url=False)[0]
    message = _REQUIRED.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    name = str(problem["loc"][0]) if problem["loc"] else "settings"
    if name == "ollama_hosts":  # its values may contain credentials, and the message names the host
        setting = _flag("ollama_host") if name in options else "MOCHI_OLLAMA_HOSTS"
        return _print_error(f"{setting}: {message}")
    setting = _flag(name) if name in options else f"MOCHI_{name.upper()}"
    if setting == f"MOCHI_{OLLAMA_HOST}" and setting not in os.environ:
        setting = OLLAMA_HOST
    value = problem["input"]
    if is_secret(name) and not value:
        return _print_error(f"{setting}: {message}")
    if is_secret(name):
        shown = MASK
    elif isinstance(value, str):
        shown = without_credentials(value)
    else:
        shown = repr(value)
    return _print_error(f"{setting}: {message} (got {shown})")


def _print_error(message: str, *, code: int = 2, program: str = "mochi-server") -> int:
    from mochi_server.telemetry.logging import in_log_format

    log_format = os.environ.get("MOCHI_LOG_FORMAT", "")
    print(in_log_format(f"{program}: {message}", log_format, "CRITICAL"), file=sys.stderr)
    return code
