"""Interpreters that only answer, for tests of what runs the scripts of findings under several versions of torch."""

from __future__ import annotations

import sys
from pathlib import Path

DIFF, ROLL = "dde-08f7b02bbb", "dde-8ea756b1c0"

INTERPRETER = """\
#!{python}
import json, pathlib, sys

def said(path):
    verdict = {verdicts!r}.get(pathlib.Path(path).stem, "passes")
    return json.dumps({{"torch": {torch!r}, "stage": "export", "verdict": verdict, "expected": {{}}, "seen": None}})

if sys.argv[1] == "-c":
    print({torch!r})
elif sys.argv[1] == "-P":
    sys.exit(1)
elif sys.argv[1].endswith("fork_server.py"):
    for line in sys.stdin:
        path = json.loads(line)["script"]
        print(pathlib.Path(path).stem, file=pathlib.Path({ran!r}).open("a"))
        print(json.dumps({{"script": path, "code": 0, "output": said(path), "errors": ""}}), flush=True)
else:
    print(said(sys.argv[1]))
    print(pathlib.Path(sys.argv[1]).stem, "cold", file=pathlib.Path({ran!r}).open("a"))
"""


def interpreter(folder: Path, torch: str, **verdicts: str) -> str:
    """An interpreter that says these verdicts of the scripts, `passes` of all others, and has no ddefuzz."""
    path = folder / f"python-{torch}"
    named = {DIFF: verdicts.get("diff", "shows"), ROLL: verdicts.get("roll", "shows")}
    path.write_text(INTERPRETER.format(python=sys.executable, torch=torch, verdicts=named, ran=f"{path}.ran"))
    path.chmod(0o755)
    return str(path)


def ran(python: str) -> list[str]:
    """What an interpreter has run."""
    return Path(f"{python}.ran").read_text().splitlines()
