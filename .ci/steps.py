"""The steps of CI: build each environment once, run independent steps side by side, and report the
duration of each.

``steps.py`` runs what must hold of every commit. Its steps share the cores: two steps more than
there are cores, because each of them also waits. ``steps.py nightly`` runs what measures, and what
needs hours: it is ``poe nightly``. Its steps run alone. The output of a step is printed when the
step has ended. The run ends with the durations, slowest first, and the test runner's own summary.
"""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

COMMIT_SCALE = {"MOCHI_FAULT_ROUNDS": "4", "MOCHI_FUZZ_EXAMPLES": "3"}
"""Repetitions of the fault tests, and requests for each operation of the API: each kind of fault a
few times.
"""
NIGHTLY_SCALE = {"MOCHI_FAULT_ROUNDS": "200", "MOCHI_FUZZ_EXAMPLES": "100"}
SHORT = " ".join(f"{name}={value}" for name, value in COMMIT_SCALE.items())
"""Assignments for a step of the night that tests in another way instead of more often."""
LINES_FLOOR = 94.0
BRANCHES_FLOOR = 92.0
"""Coverage of `src`, of its lines and with its branches, in percent, below which a run fails."""
PYTEST = "uv run pytest -q"
IGNORED = (
    "--ignore tests/benchmarks --ignore tests/soak --ignore tests/browser --ignore "
    "tests/docs/test_site.py --ignore tests/mcp/test_everything.py --ignore "
    "tests/mcp/test_fuzzed_servers.py --ignore tests/coding_agents"
)
"""Second-tier tests with a step of their own."""
SECOND_TIER = "'slow and not nightly'"

FRAMEWORKS = "-W ignore -p no:benchmark -p no:codspeed -p no:recording -p no:socket -p no:syrupy"
"""Options of the framework tests: the pytest plugins that LangChain's tests install are not loaded.
"""


@dataclass(frozen=True)
class Step:
    """One check: a shell command and the programs without which it is skipped."""

    name: str
    command: str
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """The end of a step: its exit code, None if it was skipped, and the CPU time of its
    processes.
    """

    step: Step
    status: "int | None"
    seconds: float
    cpu_seconds: float
    output: str


def installed_python(version: str) -> str:
    """Return this Python (such as ``3.10``) of this machine, or the name of one that is missing.

    Nothing is downloaded.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    installed = list(pyenv.glob(f"versions/{version}.*/bin/python"))
    return str(installed[0]) if installed else f"/usr/bin/python{version}"


OLDEST = installed_python("3.10")
ON_OLDEST = (
    f"env -u UV_NO_SYNC UV_PROJECT_ENVIRONMENT=.venv-3.10 uv run --locked --quiet --python {OLDEST}"
)
"""Command prefix that runs a command of the project on the oldest Python."""
NEWEST = installed_python("3.13")
ON_NEWEST = (
    "env -u UV_NO_SYNC UV_PROJECT_ENVIRONMENT=.venv-3.13 COVERAGE_CORE=sysmon uv run --locked "
    f"--quiet --python {NEWEST}"
)
"""Command prefix for the newest Python, which counts lines for a twentieth of the CPU time that
tracing needs.
"""
NODE = ("node", "npm")
AIDER = (
    "uv venv --quiet --clear --python '>=3.10,<3.13' .venv-aider "
    "&& uv pip install --quiet --python .venv-aider/bin/python aider-chat==0.86.2"
)
NPM_CI = "npm ci --no-audit --no-fund --silent"
NPM_INSTALL = "npm install --no-save --no-audit --no-fund --silent"
"""Unlike `npm ci`, it also installs if a registry lacks a package that other platforms need."""
DEBIAN_PACKAGES = r"""
missing=$(
    for program in chromium-headless-shell nginx caddy docker-compose; do
        command -v $program >/dev/null || echo $program
    done
)
[ -z "$missing" ] || apt-get update -qq >/dev/null 2>&1 || true
for program in $missing; do
    apt-get install -y -qq --no-install-recommends $program >/dev/null 2>&1 ||
        echo "$program is missing and could not be installed"
done
"""
"""Script that installs the programs of some tests.

A test is skipped if its program could not be installed.
"""

ENVIRONMENT = Step("environment", "uv sync --locked --group docs --group browser --quiet")
"""What all other steps need."""

PACKAGES = [
    Step(
        "node packages",
        "for d in tests/contract/ts tests/openai/js tests/anthropic/js tests/frontends/js "
        f"tests/stub/js tests/mcp/js docs/examples/react; do (cd $d && {NPM_CI}); done",
        NODE,
    ),
    Step("Debian packages", DEBIAN_PACKAGES, needs=("apt-get",)),
]
"""What some of the later steps need."""

FIRST_TIER = Step(
    "first tier, with coverage of lines",
    f"COVERAGE_BRANCHES=false {ON_NEWEST if Path(NEWEST).exists() else 'uv run'} pytest -q -n 3 "
    f"--cov --cov-report=term --cov-fail-under={LINES_FLOOR}",
)
"""The README's test command, whose summary ends the run."""
WHILE_PACKAGES_INSTALL = [
    FIRST_TIER,
    Step(
        "types, also for Windows and macOS",
        "uv run mypy --strict && uv run mypy --strict --platform win32 src "
        "&& uv run mypy --strict --platform darwin src",
    ),
    Step(
        "unit tests on Python 3.10",
        f"{ON_OLDEST} pytest -q -n 0 tests/unit",
        (OLDEST,),
    ),
    Step(
        "documentation site",
        "uv run zensical build --strict && " + f"{PYTEST} -n 0 -m slow tests/docs/test_site.py",
    ),
    Step(
        "format, lint, lock", "uv run ruff format --check && uv run ruff check && uv lock --check"
    ),
]
"""Steps of every commit that need none of the packages, the longest first.

Those after the first tier end when the packages are installed, so that the second tier can start.
"""

AFTER_PACKAGES = [
    Step(
        "second tier, in its short form",
        f"{PYTEST} -n 4 -m {SECOND_TIER} {IGNORED} --ignore tests/fuzz",
    ),
    Step(
        "two servers over one PostgreSQL",
        f"MOCHI_TEST_SERVERS=2 {PYTEST} -n 2 -m 'two_servers and not slow' "
        "tests/api tests/faults tests/servers",
    ),
    # Collecting them takes 15 s of CPU, which each worker of the second tier would need.
    Step("fuzzed requests", f"{PYTEST} -n 0 -m {SECOND_TIER} tests/fuzz"),
    Step(
        "client frameworks",
        "env -u UV_NO_SYNC UV_PROJECT_ENVIRONMENT=.venv-frameworks uv run --locked --quiet "
        f"--no-dev --group frameworks pytest -q -n 0 -m slow {FRAMEWORKS} tests/stub/frameworks "
        "tests/openai/frameworks",
    ),
    Step("example page in Chromium", f"{PYTEST} -n 0 -m slow tests/browser"),
    Step("tutorial from the wheel", "uv run python -m tests.docs_tooling.first_hour"),
    Step(
        "coding agents",
        f"(cd tests/coding_agents/js && {NPM_CI}) && {PYTEST} -n 0 -m slow tests/coding_agents",
        NODE,
    ),
    Step("AI SDK and AG-UI clients", "cd tests/frontends/js && uv run node --test", NODE),
    Step("JavaScript clients", "cd tests/stub/js && uv run node --test", NODE),
    Step("TypeScript types", "cd tests/contract/ts && uv run npm run --silent check", NODE),
    Step("MCP reference server", f"{PYTEST} -n 0 -m slow tests/mcp/test_everything.py", NODE),
]
"""The other steps of every commit, longest first.

No test depends on what else the machine does. Tests of the second tier mostly wait, for a timeout
or a server that starts, so that it has two workers for each core.
"""

NIGHTLY = [
    Step(
        "tutorial from the wheel, in two minutes",
        "uv run python -m tests.docs_tooling.first_hour --seconds 120",
    ),
    Step(
        "more coding agents",
        f"(cd tests/coding_agents/nightly/js && {NPM_INSTALL}) && {AIDER} "
        f"&& {PYTEST} -n 0 -m nightly tests/coding_agents/nightly",
        NODE,
    ),
    Step("benchmarks and a small soak", f"{PYTEST} -n 0 -m slow tests/benchmarks tests/soak"),
    Step(
        "MCP conformance",
        f"(cd tests/mcp/conformance/js && {NPM_CI}) "
        f"&& {PYTEST} -n 2 -m nightly tests/mcp/conformance",
        NODE,
    ),
    Step("hostile MCP servers", f"{PYTEST} -n 0 -m slow tests/mcp/test_fuzzed_servers.py"),
    Step(
        "soak: a thousand streams", "uv run python -m tests.soak --seconds 30 --turn 10 --cache 8"
    ),
    Step("second tier, in its long form", f"{PYTEST} -n 4 -m slow {IGNORED}"),
    Step(
        "both tiers on Python 3.10, in random order, with coverage of branches",
        f"{SHORT} {ON_OLDEST} pytest -q -n 3 -m 'not nightly' -p randomly --cov --cov-report=term "
        f"--cov-fail-under={BRANCHES_FLOOR} {IGNORED}",
        (OLDEST,),
    ),
]
"""Steps that measure, repeat for long, or test again in another way.

None of them decides about a commit.
"""


def main(arguments: list[str]) -> int:
    """Run the steps of a commit, or those of a night, and return the exit code."""
    is_nightly = arguments == ["nightly"]
    os.environ.update({**(NIGHTLY_SCALE if is_nightly else COMMIT_SCALE), **os.environ})
    # Without compiled files, each process of a step would compile its imports for seconds.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    results = [run(ENVIRONMENT)]
    if results[0].status:
        return 1
    os.environ["UV_NO_SYNC"] = "1"
    if is_nightly:
        results += map(run, [*PACKAGES, *NIGHTLY])
    else:
        results += run_side_by_side()
    failed = [result.step.name for result in results if result.status]
    print("\n== durations, slowest first")
    for result in sorted(results, key=lambda result: -result.seconds):
        note = "  skipped" if result.status is None else "  FAILED" if result.status else ""
        print(
            f"{result.seconds:7.1f} s {result.cpu_seconds:7.1f} s of CPU  {result.step.name}{note}"
        )
    if failed:
        print(f"\nfailed: {', '.join(failed)}")
    summary = next(
        (result.output for result in results if result.step is FIRST_TIER), results[-1].output
    )
    print(summary.strip().splitlines()[-1])
    return 1 if failed else 0


def run_side_by_side() -> list[Result]:
    """Run the steps of a commit, those that need packages after these are installed."""
    with ThreadPoolExecutor((os.cpu_count() or 1) + 2) as pool:
        packages = [pool.submit(run, step) for step in PACKAGES]
        running = [pool.submit(run, step) for step in WHILE_PACKAGES_INSTALL]
        wait(packages)
        running += [pool.submit(run, step) for step in AFTER_PACKAGES]
        return [future.result() for future in [*packages, *running]]


def run(step: Step) -> Result:
    """Run a step and print its output when it has ended."""
    began = time.monotonic()
    missing = [program for program in step.needs if not shutil.which(program)]
    if missing:
        result = Result(
            step, None, 0.0, 0.0, f"skipped: this machine has no {' and no '.join(missing)}"
        )
    else:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", step.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        with process.stdout as stream:
            output = stream.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        cpu_seconds = usage.ru_utime + usage.ru_stime
        result = Result(step, process.returncode, time.monotonic() - began, cpu_seconds, output)
    verdict = "skipped" if result.status is None else f"exit code {result.status}"
    print(
        f"\n== {step.name}: {verdict} after {result.seconds:.0f} s\n{result.output.rstrip()}",
        flush=True,
    )
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
