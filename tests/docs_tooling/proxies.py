"""nginx and Caddy with the configurations of the pages, in front of a server on a loopback port.

A configuration runs as it is printed. Only addresses and the paths of certificates are replaced.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.waiting import until

SITE = "chat.example"
"""Host name in the configurations of the pages."""

_NGINX = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr notice;
events {}
http {
    access_log off;
    client_body_temp_path client_body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include site.conf;
}
"""

_CADDY = """{{
	admin off
	auto_https disable_redirects
	default_bind 127.0.0.1
	https_port {port}
	local_certs
	skip_install_trust
}}
"""


def needed(program: str) -> str:
    """Return the path of a program, or skip the test if the program is missing."""
    path = shutil.which(program, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin"]))
    if path is None:
        pytest.skip(f"this machine has no {program}")
    return path


def replaced(text: str, old: str, new: str) -> str:
    """Replace text that must occur."""
    assert old in text, f"{old!r} is not in:\n{text}"
    return text.replace(old, new)


class Proxy:
    """A proxy on a free port, and the environment in which curl reaches it.

    Use it as a context manager.
    """

    def __init__(
        self, directory: Path, *command: str, port: int, certificate: Path | None = None
    ) -> None:
        self.url = f"https://{SITE}" if certificate else f"http://127.0.0.1:{port}"
        self.environment = {
            **os.environ,
            "CURL_HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory),
            "XDG_DATA_HOME": str(directory),
        }
        options = ["silent", 'noproxy = "*"']
        if certificate:
            options += [f'connect-to = "{SITE}:443:127.0.0.1:{port}"', f'cacert = "{certificate}"']
        (directory / ".curlrc").write_text("\n".join(options))
        self.port = port
        self._command = command
        self._directory = directory
        self._log = directory / "proxy.log"

    @property
    def log(self) -> str:
        return self._log.read_text()

    def __enter__(self) -> "Proxy":
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            until(self._is_ready)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self.log
        command = [needed("curl"), "--output", os.devnull, self.url]
        return subprocess.run(command, env=self.environment, check=False).returncode == 0


def nginx(block: str, directory: Path, upstream: str) -> Proxy:
    """Return nginx with a server block and a certificate of its own."""
    port, certificate, key = free_port(), directory / "site.crt", directory / "site.key"
    program, openssl = needed("nginx"), needed("openssl")
    self_signed = [
        openssl,
        "req",
        "-x509",
        "-nodes",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
    ]
    self_signed += ["-subj", f"/CN={SITE}", "-addext", f"subjectAltName=DNS:{SITE}"]
    subprocess.run(
        [*self_signed, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    site = replaced(block, "127.0.0.1:8000", upstream)
    site = replaced(site, "listen 443 ", f"listen 127.0.0.1:{port} ")
    site = replaced(site, f"/etc/ssl/{SITE}.crt", str(certificate))
    site = replaced(site, f"/etc/ssl/{SITE}.key", str(key))
    (directory / "site.conf").write_text(site)
    (directory / "nginx.conf").write_text(_NGINX)
    command = (program, "-p", str(directory), "-c", "nginx.conf", "-e", "stderr")
    return Proxy(directory, *command, port=port, certificate=certificate)


def caddy(block: str, directory: Path, upstream: str) -> Proxy:
    """Return Caddy with a site block. Caddy creates the certificate."""
    port = free_port()
    file = directory / "Caddyfile"
    file.write_text(_CADDY.format(port=port) + replaced(block, "127.0.0.1:8000", upstream))
    command = (needed("caddy"), "run", "--config", str(file))
    root = directory / "caddy" / "pki" / "authorities" / "local" / "root.crt"
    return Proxy(directory, *command, port=port, certificate=root)


def caddy_command(arguments: list[str], directory: Path, upstream: str) -> Proxy:
    """Return Caddy with the command of a container, without TLS."""
    port = free_port()
    local = {":8000": f":{port}", "mochi:8000": upstream}
    command = [local.get(argument, argument) for argument in arguments]
    assert {*command} >= {*local.values()}, arguments
    return Proxy(directory, needed(command[0]), *command[1:], port=port)
