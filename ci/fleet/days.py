"""Show the daily service over wheels of several versions of torch, one version a day:

python ci/fleet/days.py WHEELS FOLDER [KEY=VALUE]...

WHEELS is a folder with the wheels, and with those that they need (`pip download torch==VERSION -d WHEELS`). FOLDER gets
fleet.toml with KEY=VALUE added, the wheels of the days so far as links, and what the service makes. What is there goes
on. Exit code 1: a day has no report.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

FIRST = date(2026, 1, 1)

FILE = """\
wheels = "wheels"
budget = "900cpu"
keep.environments = 2
"""


def main(wheels: Path, folder: Path, *settings: str) -> int:
    """Run the days. The exit code."""
    drop = folder / "wheels"
    drop.mkdir(parents=True, exist_ok=True)
    given = {key.partition("=")[0]: key for key in (*FILE.splitlines(), *settings)}
    keys = {name.strip(): line for name, line in given.items()}
    (folder / "fleet.toml").write_text("\n".join(keys.values()) + "\n", encoding="utf-8")
    torch = sorted(wheels.glob("torch-*.whl"))
    for wheel in wheels.glob("*.whl"):
        if wheel not in torch:
            link(wheel, drop)
    for number, wheel in enumerate(torch):
        link(wheel, drop)
        day = (FIRST + timedelta(number)).isoformat()
        command = [sys.executable, "-P", "-m", "ddefuzz", "fleet", "fleet.toml", "--day", day]
        code = subprocess.run(command, cwd=folder, check=False).returncode
        report = folder / "fleet" / "days" / day / "report.json"
        if not report.is_file():
            return 1
        counts = json.loads(report.read_text(encoding="utf-8"))["counts"]
        print(f"{day}: exit code {code}, {counts}")  # noqa: T201 a script
    return 0


def link(wheel: Path, folder: Path) -> None:
    """Put a wheel into the folder, as a link."""
    place = folder / wheel.name
    if not place.is_symlink():
        place.symlink_to(wheel.resolve())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
