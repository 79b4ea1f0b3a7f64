"""Validation of code blocks that are not run."""

import ast
import configparser
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from mochi_stub.config import load
from mochi_stub.recording import recorded

_INSTRUCTIONS = (
    *(
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "LABEL",
        "RUN",
        "USER",
        "VOLUME",
    ),
    "WORKDIR",
)
_CHECK = """
const texts = JSON.parse(require("node:fs").readFileSync(0));
for (const [identifier, text] of Object.entries(texts)) new (require("node:vm").SourceTextModule)(text, { identifier });
"""


def read_bash(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def read_yaml(text: str) -> None:
    """Parse YAML. The stub reads its own configurations and recordings."""
    top = yaml.safe_load(text)
    with TemporaryDirectory() as folder:
        file = Path(folder, "config.yaml")
        file.write_text(text)
        if isinstance(top, dict) and {*top} <= {"models", "include"}:
            load(file)
        elif isinstance(top, dict) and {"request", "response"} <= {*top}:
            assert recorded(file).reply


def read_toml(text: str) -> None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # pytest needs it there

    tomllib.loads(text)


def read_ini(text: str) -> None:
    """Parse a systemd unit or a similar file, in which keys may be repeated."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(text)
    assert parser.sections()


def read_braces(text: str) -> None:
    """Check the configuration of nginx or Caddy: all braces match."""
    code = re.sub(r"#.*", "", text)
    assert code.count("{") == code.count("}") > 0


def read_nginx(text: str) -> None:
    read_braces(text)
    lines = [line for raw in text.splitlines() if (line := re.sub(r"(^|\s)#.*", "", raw).strip())]
    assert all(line[-1] in ";{}" for line in lines), lines


def read_dockerfile(text: str) -> None:
    lines = re.sub(r"\\\n", " ", text).splitlines()
    words = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    assert set(words) <= set(_INSTRUCTIONS), words


def read_http(text: str) -> None:
    """Check an HTTP request or response."""
    first = text.splitlines()[0]
    assert re.match(r"(GET|POST|PUT|PATCH|DELETE|OPTIONS) \S+|HTTP/1\.1 \d{3}", first), first


def read_markdown(text: str) -> None:
    """Check Markdown, whose optional front matter is YAML."""
    if text.startswith("---\n"):
        assert isinstance(yaml.safe_load(text.split("---\n")[1]), dict)


def read_html(text: str) -> None:
    HTMLParser().feed(text)


def read_powershell(text: str) -> None:
    """Check that brackets match and that quotes are closed. Brackets in quotes do not count."""
    code = re.sub(r"@'\n.*?\n'@|'[^'\n]*'|\"[^\"\n]*\"", "''", text, flags=re.DOTALL)
    assert all(
        code.count(opening) == code.count(closing) for opening, closing in ("()", "{}", "[]")
    ), code
    assert '"' not in code, code
    assert code.count("'") % 2 == 0, code


def read_modules(texts: Mapping[str, str]) -> None:
    """Check JavaScript modules in one process. The keys of ``texts`` are their names."""
    if node := shutil.which("node"):
        command = [node, "--experimental-vm-modules", "--no-warnings", "--eval", _CHECK]
        done = subprocess.run(
            command, input=json.dumps(texts), text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr


READERS: Mapping[str, Callable[[str], object]] = {
    "bash": read_bash,
    "caddy": read_braces,
    "caddyfile": read_braces,
    "dockerfile": read_dockerfile,
    "html": read_html,
    "http": read_http,
    "ini": read_ini,
    "jsx": read_braces,
    "json": json.loads,
    "markdown": read_markdown,
    "nginx": read_nginx,
    "powershell": read_powershell,
    "python": ast.parse,
    "sh": read_bash,
    "systemd": read_ini,
    "text": str,
    "toml": read_toml,
    "typescript": str,
    "yaml": read_yaml,
}
"""Validators by language. `text` is for drawings, output and events."""
