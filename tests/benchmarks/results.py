"""Results as they are saved."""

import json
import os
import platform
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from tests.benchmarks.measures import Aim, Findings
from tests.benchmarks.processes import CpuClock
from tests.benchmarks.profiling import Profile

Saved = dict[str, Any]
"""JSON: `machine`, and under `measures` the workload and the results of each measurement."""


def machine() -> dict[str, str]:
    """Return the properties of the machine that affect the figures."""
    resolution = CpuClock(os.getpid()).resolution() * 1e9
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        "CPU clock": f"user and system time of the process, in steps of {resolution:.0f} ns",
    }


def to_json(findings: Findings, workload: dict[str, float], profile: Profile) -> Saved:
    aims = [asdict(aim) | {"met": aim.met, "missed_by": aim.missed_by} for aim in findings.aims]
    measure: Saved = {"workload": workload, "rows": list(findings.rows), "aims": aims}
    return measure | ({"profile": profile} if profile else {})


def from_json(measure: Saved) -> Findings:
    names = {field.name for field in fields(Aim)}
    aims = [
        Aim(**{name: value for name, value in aim.items() if name in names})
        for aim in measure["aims"]
    ]
    return Findings(measure["rows"], aims)


def write(path: Path, peer: str | None, measures: Saved) -> None:
    """Save the results. Keep the saved results of measurements that were not run."""
    before = json.loads(path.read_text(encoding="utf-8"))["measures"] if path.exists() else {}
    facts = machine() | ({"peer": peer} if peer else {})
    content = {"machine": facts, "measures": before | measures}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
