"""Advice for users whose installation lacks optional packages."""

import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import urlsplit
from urllib.request import url2pathname

_NAME = "mochi-server"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation. It names the source from which it was installed.

    Source: https://packaging.python.org/en/latest/specifications/direct-url/
    """
    python, target, options = shlex.quote(sys.executable), f"{_NAME}[{extra}]", ""
    installer = f"{python} -m pip install"
    try:
        package = distribution(_NAME)
        origin = json.loads(package.read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return f"{installer} {shlex.quote(target)}"
    if (package.read_text("INSTALLER") or "").strip() == "uv":
        installer = f"uv pip install --python {python}"
    if origin.get("dir_info", {}).get("editable"):
        options, target = "-e ", f"{url2pathname(urlsplit(origin['url']).path)}[{extra}]"
    elif "vcs_info" in origin:
        info = origin["vcs_info"]
        target += f" @ {info['vcs']}+{origin['url']}@{info.get('requested_revision') or info['commit_id']}"
    elif "url" in origin:
        target += f" @ {origin['url']}"
    return f"{installer} {options}{shlex.quote(target)}"
