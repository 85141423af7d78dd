"""Run findings under several interpreters by their stand-alone scripts. Cases run by an interpreter's own ddefuzz, else
by stand-alone scripts, too.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ddefuzz.errors import EXIT_FOUND, EXIT_OK, EXIT_USAGE, InputError, UnsupportedError
from ddefuzz.findings.model import Finding
from ddefuzz.repro.run import ScriptResult, Written, located, run_scripts, torch_of
from ddefuzz.versions.model import Cell, Interpreter, Line, Status, cell_of

REPLAY_SECONDS: Final = 3 * 3600.0

_CELLS: Final[Mapping[str, Status]] = {
    "as expected": "fails",
    "gone": "passes",
    "fails": "fails",
    "fails otherwise": "moved",
    "not judged": "not judged",
}
"""The status of a replayed case by what replay says of it. A case that is expected to pass and does is left out."""


class _Replayed(msgspec.Struct, frozen=True):
    """A line of `ddefuzz replay --format jsonl`."""

    case: str
    status: str
    expected: str
    seen: str
    finding: str | None = None


def interpreter_of(name: str, python: str) -> Interpreter:
    """The interpreter with its torch, and whether it has ddefuzz. Raises `InputError` or `UnsupportedError`."""
    torch, python = torch_of(python), located(python)
    code = "import ddefuzz.cli.main, ddefuzz.execute.protocol"
    found = subprocess.run([python, "-P", "-c", code], capture_output=True, check=False, cwd="/")
    return Interpreter(name or torch.partition("+")[0], python, torch, found.returncode == 0)


def findings_under(
    interpreter: Interpreter,
    findings: Sequence[Finding],
    runs: int,
    jobs: int,
    listen: Callable[[Finding, Cell], None],
    *,
    trust: bool,
) -> None:
    """Call `listen` with the cell of each finding, as soon as it is known.

    Each script runs once in a child of a process that has imported torch, which is cheap. What does not show there
    runs `runs` times, each in a new process, and only these runs count.
    """
    by_id = {finding.id: finding for finding in findings}
    again: list[Finding] = []

    def once(result: ScriptResult) -> None:
        if result.status in ("shows", "not judged"):
            listen(by_id[result.finding], cell_of([result.status], [_reason(result)]))
        else:
            again.append(by_id[result.finding])

    run_scripts(findings, interpreter.python, jobs, once, forked=True, trust=trust)
    results: dict[str, list[ScriptResult]] = {finding.id: [] for finding in again}

    def cold(result: ScriptResult) -> None:
        ran = results[result.finding]
        ran.append(result)
        if len(ran) == runs:
            listen(by_id[result.finding], cell_of([one.status for one in ran], [_reason(one) for one in ran]))

    run_scripts([finding for finding in again for _ in range(runs)], interpreter.python, jobs, cold, trust=trust)


def _reason(result: ScriptResult) -> str:
    return result.reason or ", ".join(f"{name} {value}" for name, value in (result.seen or {}).items())


def cases_under(interpreter: Interpreter, paths: Iterable[Path], jobs: int, *, trust: bool) -> dict[str, Cell]:
    """The cell of each case below the paths, by the interpreter's own `ddefuzz replay`. `trust` is its option.

    Raises `UnsupportedError` if that ddefuzz does not end, or prints something else.
    """
    words = [
        interpreter.python,
        "-P",
        "-m",
        "ddefuzz",
        "replay",
        *map(str, paths),
        "-j",
        str(jobs),
        "--format",
        "jsonl",
    ]
    words += ["--trust"] if trust else []
    replay = f"--python {interpreter.python}: its `ddefuzz replay`"
    try:
        ran = subprocess.run(words, capture_output=True, check=False, timeout=REPLAY_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UnsupportedError(f"{replay} still runs, expected it to end within {REPLAY_SECONDS:.0f} s") from error
    if ran.returncode not in (EXIT_OK, EXIT_FOUND) or not ran.stdout:  # Python, too, ends with 1
        said = (ran.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        wrong = InputError if ran.returncode == EXIT_USAGE else UnsupportedError
        raise wrong(f"{replay} ended with {said}")
    cells: dict[str, Cell] = {}
    for text in ran.stdout.splitlines():
        try:
            one = msgspec.json.decode(text, type=_Replayed)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            found = text[:80].decode(errors="replace")
            raise UnsupportedError(f"{replay} printed {found!r}, expected the result of a case: {error}") from error
        passes = one.expected.endswith(" ok") and one.status == "as expected"
        status: Status = "passes" if passes else _CELLS[one.status]
        reason = one.seen if status in ("moved", "not judged") else ""
        cells[one.case] = Cell(status, int(status == "fails"), 1, reason)
    return cells


def case_scripts_under(
    interpreter: Interpreter, cases: Sequence[Written], jobs: int, listen: Callable[[str, Cell], None]
) -> None:
    """Call `listen` with the cell of each case, as soon as it is known. An interpreter without ddefuzz runs its script.

    The script compares the kind of the failure, not its site. What does not end as expected in a child of a process
    that has imported torch runs again in a new process, and only that run counts.
    """
    by_name = {one.name: one for one in cases}
    again: list[Written] = []

    def once(result: ScriptResult) -> None:
        case = by_name[result.finding]
        if result.status in ("not judged", "shows" if case.kind else "passes"):
            cold(result)
        else:
            again.append(case)

    def cold(result: ScriptResult) -> None:
        is_new = result.status == "fails otherwise" and not by_name[result.finding].kind
        listen(result.finding, cell_of(["shows" if is_new else result.status], [_reason(result)]))

    run_scripts(cases, interpreter.python, jobs, once, forked=True)
    run_scripts(again, interpreter.python, jobs, cold)


def lines_of(cells: Mapping[str, Mapping[str, Cell]], titles: Mapping[str, str], findings: Iterable[str]) -> list[Line]:
    """A line for each finding or case, from the cells by interpreter. What one has not run is not judged there."""
    names = sorted({name for under in cells.values() for name in under})
    known = set(findings)
    missing = Cell("not judged", 0, 0)
    return [
        Line(
            name,
            titles.get(name, ""),
            {interpreter: under.get(name, missing) for interpreter, under in cells.items()},
            name if name in known else "",
        )
        for name in names
    ]


def bisected(
    finding: Finding, interpreters: Sequence[Interpreter], listen: Callable[[Interpreter, Cell], None], *, trust: bool
) -> dict[str, Any]:
    """The two neighbours between which the finding's status changes, by binary search over versions in order.

    `first` and `last` are the statuses at both ends. `before` and `after` are None if these are the same.
    """
    cells: dict[int, Cell] = {}

    def status(at: int) -> Status:
        if at not in cells:
            findings_under(interpreters[at], [finding], 1, 1, lambda _, cell: cells.update({at: cell}), trust=trust)
            listen(interpreters[at], cells[at])
        return cells[at].status

    low, high = 0, len(interpreters) - 1
    first, last = status(low), status(high)
    document: dict[str, Any] = {"finding": finding.id, "first": first, "last": last, "before": None, "after": None}
    if first != last:
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if status(middle) == first else (low, middle)
        document |= {"before": interpreters[low].name, "after": interpreters[high].name}
    document["runs"] = {interpreters[at].name: cell for at, cell in sorted(cells.items())}
    return document
