"""The result of `check` as text: whether it exports, each problem once with its site and owner, and what helps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ddefuzz.checking.chain import Caller
from ddefuzz.checking.check import Captured, Document, Problem, is_minor
from ddefuzz.checking.offers import offers_lines
from ddefuzz.classify.cause import MEANINGS
from ddefuzz.cli.check_advice_page import advice_facts, is_alarming
from ddefuzz.cli.layout import Detailed, counted, folded, table
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.escape import shell_word, visible
from ddefuzz.execute.protocol import TRACED
from ddefuzz.oracles.capture import KINDS
from ddefuzz.oracles.table import row_of
from ddefuzz.show.meanings import verdicts_line

STYLES = {
    "ok": "green",
    "fail": "red",
    "crash": "bold red",
    "timeout": "bold red",
    "not-judged": "yellow",
    "wrong": "red",
}

MOST_CALLERS = 8
"""How many lines of a chain of calls are shown: the innermost ones."""

FEWEST_IN_COMMON = 3
"""From how many calls on those that two problems share are printed once."""

HANGING = 3
"""How far the further lines of a problem's first sentence are indented."""

INDENT = 13
"""The width of the names of facts, with the space around them."""


def check_page(document: Document, page: Page) -> str:
    """The whole page."""
    parts: list[RenderableType] = []
    for case in dict.fromkeys(one.case for one in document.captures):
        parts += list(_case(document, case, page))
    parts += [plain(folded(line, page.width)) for line in offers_lines(document)]
    several = len({one.semantics for one in document.captures}) > 1
    verdicts = verdicts_line(one.verdict for one in document.captures)
    if several and verdicts:
        parts.append(plain(folded(f"verdicts: {verdicts}", page.width), style="dim"))
    return rendered(Group(*parts), page)


def _case(document: Document, case: str, page: Page) -> Iterator[RenderableType]:
    captures = [one for one in document.captures if one.case == case]
    problems = [one for one in document.problems if one.case == case]
    yield plain(folded(headline(case, captures, problems), page.width), style="bold")
    yield ""
    yield _captures(captures, problems, page)
    yield ""
    for number, problem in enumerate(problems, 1):
        yield _problem(number, problem, problems[: number - 1], document, page)
        yield ""
    for of_case, advice in document.advice:
        if of_case == case:
            offered = tuple(one.change for one in document.changes if one.case == case)
            facts = [*advice_facts(msgspec.structs.replace(advice, changes=offered), problems)]
            if not offered and any(problem.owner.kind == "PyTorch" for problem in problems):
                facts.append(
                    (
                        "report",
                        f"`ddefuzz minimize {shell_word(document.target)}` makes a small program of PyTorch's part",
                    )
                )
            yield _grid(facts, page)
            yield ""


def headline(case: str, captures: Iterable[Captured], problems: Iterable[Problem]) -> str:
    """Whether the case is captured, and in which captures."""
    explicit = [one for one in captures if not one.semantics.startswith("size-oblivious")]
    if any(one.stage == "eager" and one.outcome != "ok" for one in explicit):
        return f"{case} fails in eager, without any capture: it cannot be judged."
    judged = [one for one in explicit if one.stage in TRACED]
    by_outcome = {
        said: [one.stage for one in judged if one.outcome in outcomes]
        for said, outcomes in (
            ("captured in", ("ok",)),
            ("captured, but wrong in", ("wrong",)),
            ("fails in", ("fail", "crash", "timeout")),
            ("not judged in", ("not-judged",)),
        )
    }
    where = "; ".join(f"{said} {', '.join(stages)}" for said, stages in by_outcome.items() if stages)
    exporting = [one.outcome for one in judged if one.stage in ("export", "export-strict")]
    if not exporting:
        return f"{case}: {where}."
    verb = "exports" if set(exporting) == {"ok"} else "exports in part" if "ok" in exporting else "does not export"
    return f"{case} {verb}: {where}.{_count(list(problems))}"


def _count(problems: list[Problem]) -> str:
    """How many problems there are, and how many of them neither stop capture nor make a captured program wrong."""
    minor = sum(is_minor(problem.kind) for problem in problems)
    if not problems:
        return ""
    some = "" if minor == len(problems) else f"{minor} of them "
    verbs = "stops capture nor makes" if minor == 1 else "stop capture nor make"
    said = f"; {some}neither {verbs} its result wrong" if minor else ""
    return f" {counted(len(problems), 'problem')}{said}."


def _captures(captures: list[Captured], problems: list[Problem], page: Page) -> RenderableType:
    """One row for each capture. The columns of semantics are shown only if there are several."""
    several = len({one.semantics for one in captures}) > 1
    rows = []
    for one in captures:
        cells = [plain(one.stage), Text(one.outcome, style=STYLES[one.outcome]), plain(f"{one.seconds:.1f}")]
        cells += [plain(one.semantics), plain(one.verdict or "")] if several else []
        rows.append(Detailed([*cells, plain(_says(one, problems))]))
    semantics = ["semantics", "verdict"] if several else []
    return table(["capture", "outcome", "seconds", *semantics, "says"], rows, page.width, folding=("says",))


def _says(one: Captured, problems: list[Problem]) -> str:
    """The problems that stop a capture by their number; else what it ended with."""
    numbers = [str(at) for at, problem in enumerate(problems, 1) if set(problem.keys) & set(one.keys)]
    return f"problem {', '.join(numbers)}" if numbers else one.reason or one.exception or ""


def _problem(number: int, problem: Problem, before: list[Problem], document: Document, page: Page) -> RenderableType:
    head = f"{number}. {_owner(problem)}: {what(problem)}"
    said = folded(head, page.width - HANGING).replace("\n", "\n" + " " * HANGING)
    return Group(plain(said, style="bold"), _grid(_facts(problem, before, document), page))


def _owner(problem: Problem) -> str:
    return str(problem.owner)[:1].upper() + str(problem.owner)[1:]


def what(problem: Problem) -> str:
    """What is wrong, in one line: the question that could not be decided, or the exception."""
    if problem.kind not in KINDS:
        row = row_of(problem.kind)
        return f"{'captured, but wrong' if row.wrong else row.meaning}: {problem.evidence}"
    if problem.expression is not None:
        by = "" if problem.site.module == "user code" else f" {problem.site}"
        return f"{by.strip() or 'a branch'} needs `{problem.expression}`, which depends on data"
    return problem.exception or problem.evidence or f"{problem.kind} in {problem.site}"


def _facts(problem: Problem, before: list[Problem], document: Document) -> Iterator[tuple[str, str]]:
    if problem.stages:
        yield "stops" if problem.kind in KINDS else "found in", ", ".join(problem.stages)
    if problem.site.module != "user code":
        said = problem.anchor in (problem.exception or "") or "Error: " in problem.anchor
        yield "where", str(problem.site) if said else f"{problem.site}  [{problem.anchor}]"
    if problem.module:
        yield "module", problem.module
    if problem.chain:
        yield "called by", "\n".join(_chain(problem, before))
    for symbol in problem.symbols:
        first, *others = symbol.origin.split(", dim ")
        more = f" (and {counted(len(others), 'other dim')} of the same size)" if others else ""
        yield "size", f"{symbol.symbol} = {first}{more}"
    if problem.expression is not None and problem.exception is not None:
        yield "error", problem.exception.partition(":")[0]
    if is_minor(problem.kind):
        yield "note", "this does not stop capture, and the captured program computes the values of eager"
    else:
        meaning = MEANINGS[problem.cause].meaning
        if problem.cause == "user" and problem.owner.kind == "package":
            meaning = f"{problem.owner} itself branches on data"
        yield "cause", f"{problem.cause}: {meaning}"
    if problem.about_data is False and problem.control is not None:
        yield "not data", "it fails with static sizes as well, so that sizes and data are not to blame"
    if problem.remedy:
        yield "what to do", problem.remedy
    answers = [f"{answer.value} in {answer.stage}" for answer in problem.answers]
    if answers:
        yield "answered", f"{', '.join(answers)}, so that the capture continued"
    if problem.consequence:
        yield "note", "seen only after answers to the problems above: one of these may have led to it"
    for known in document.known:
        if known.id in problem.keys:
            yield "known", str(known)
    yield "key", ", ".join(problem.keys)


def _chain(problem: Problem, before: list[Problem]) -> Iterator[str]:
    """The innermost calls. Calls that an earlier problem has too are printed there only."""
    chain = without_wrappers(problem.chain)
    common = [in_common(chain, without_wrappers(other.chain)) for other in before]
    most = max(common, default=0)
    left_out = max(len(chain) - MOST_CALLERS, most)
    if most >= FEWEST_IN_COMMON and left_out == most:
        yield f"(the first {counted(most, 'call')} of problem {common.index(most) + 1}, then)"
    elif (left_out := len(chain) - MOST_CALLERS) > 0:
        yield f"({counted(left_out, 'outer call')} left out)"
    named: set[str] = set()
    for caller in chain[max(left_out, 0) :]:
        package = str(caller.owner) if caller.owner.kind == "package" else ""
        whose = f"  ({package})" if package and package not in named else ""
        named.add(package)
        code = caller.code.partition("\n")[0]
        yield f"{caller.file}:{caller.line} {caller.function}: {code}{whose}"


def without_wrappers(chain: tuple[Caller, ...]) -> tuple[Caller, ...]:
    """A chain without the calls by which a package only passes its arguments on."""
    return tuple(
        one
        for at, one in enumerate(chain, 1)
        if at == len(chain) or one.owner.kind != "package" or not one.code.endswith("*args, **kwargs)")
    )


def in_common(chain: tuple[Caller, ...], other: tuple[Caller, ...]) -> int:
    """How many outer calls two chains share. The innermost call of `chain` is not counted."""
    pairs = zip(chain[:-1], other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _grid(facts: Iterable[tuple[str, str]], page: Page) -> RenderableType:
    """Facts by their names. Code below a fact, which people copy, is neither folded nor cut."""
    parts: list[RenderableType] = []
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        style = "red" if is_alarming(name, value) else ""
        words, code = _split(value)
        # The widest name sets the column, also after code.
        grid.add_row(Text(name.ljust(INDENT - 4), style="dim"), plain(folded(words, page.width - INDENT), style=style))
        if code:
            parts += [Padding(grid, (0, 0, 0, 2)), Text(visible(code), style=style, no_wrap=True, overflow="ignore")]
            grid = Table.grid(padding=(0, 2))
    return Group(*parts, Padding(grid, (0, 0, 0, 2)))


def _split(value: str) -> tuple[str, str]:
    """The words of a fact, and the indented code after them."""
    lines = value.split("\n")
    words = [*takewhile(lambda line: not line.startswith("    "), lines)]
    return "\n".join(words), "\n".join(lines[len(words) :])
