"""Hostile text in every field of every record, through every format of every command that reports.

A report of hostile text must have the structure of one of plain text: the same blocks, elements, keys, rows and
statements, with other text in them. With `DDEFUZZ_HOSTILE=320` that many texts go through each command.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import random
import re
import tokenize
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from ddefuzz.campaign.page import replay_report, replay_view, run_report, summary_view
from ddefuzz.campaign.replay import ReplayResult
from ddefuzz.checking.problems import problems_of
from ddefuzz.checking.report import Report, captures_of
from ddefuzz.cli.check import writers
from ddefuzz.cli.command import Output
from ddefuzz.cli.output import Writer, deliver, json_writers, page_writers, writers_of
from ddefuzz.cli.sweep import census_writers
from ddefuzz.execute.protocol import EXPLICIT, Observation
from ddefuzz.findings.model import Finding, Note, as_document, summary_of
from ddefuzz.findings.textform import KnownFinding
from ddefuzz.repro.finding import exportdb_example, issue, unit_test
from ddefuzz.repro.run import ScriptResult
from ddefuzz.show.blocks import Block, Invocation
from ddefuzz.show.findings import findings_report, list_view, scripts_report, scripts_view, show_view
from ddefuzz.show.terminal import terminal
from ddefuzz.sweep.census import sweep_report
from tests.checking.test_check_rows import BRANCH, EAGER, FAILED, runs
from tests.cli.infected import infected
from tests.cli.test_every_report import CASE, FINDING
from tests.cli.test_run_page import SUMMARY
from tests.cli.test_sweep import CENSUS
from tests.show.hostile import CONTROL, MARKDOWN, REFERENCE, TOKENS, leaves, parsed
from tests.show.test_formats import checked_sarif

PLAIN = "plain"
SEED = 19

_FAILED = Observation("export", EXPLICIT, "fail", exceptions=FAILED.exceptions, raised=BRANCH)
_RUNS = runs(EAGER, _FAILED, Observation("compile", EXPLICIT, "ok"))
DOCUMENT = Report(
    "model.py:f",
    "2.13.0",
    False,
    captures_of(_RUNS)[1:],
    problems_of(_RUNS),
    known=(KnownFinding("dde-1", "title", "new", ("2.13",), ("https://example.org",)),),
)
WHOLE = msgspec.structs.replace(
    FINDING,
    occurrences=FINDING.occurrences[:3],
    labels=("x",),
    fixed_in=("2.14",),
    former=("dde-2",),
    models=("bert",),
    links=("https://example.org",),
    notes=(Note("2026-01-31T12:00:00.000000Z", "who", "text"),),
)
"""A finding without an empty field."""

PROGRAMS = frozenset({"id", "minimal", "original"})
"""What a finding needs to have a snippet: a program that can be parsed."""


def storable(text: str) -> str:
    """The text as findings can have it: databases, JSON and TOML hold no lone surrogates."""
    return text.encode(errors="backslashreplace").decode()


def findings(text: str) -> list[Finding]:
    """Findings with this text: one of C++ with a title that a person gave, one of Python with one that is made."""
    text = storable(text)
    site = msgspec.structs.replace(WHOLE.site, language="Python", module="x")
    program = f"def\n{text}"  # no expression, of which an operator would be an op
    return [
        msgspec.structs.replace(infected(WHOLE, text), minimal=program, original=program),
        msgspec.structs.replace(
            infected(
                msgspec.structs.replace(WHOLE, signature=msgspec.structs.replace(WHOLE.signature, site=site)),
                text,
                PROGRAMS,
            ),
            given_title="",
            links=(),
        ),
    ]


def of_findings(text: str) -> Mapping[str, Writer]:
    """`findings list`, `findings show` and `report`."""
    found = findings(text)

    def pages(call: Invocation) -> Iterator[Block]:
        yield from list_view(list(map(summary_of, found)), call, filters=text)
        yield from (block for finding in found for block in show_view(finding, call))

    return {
        "text": page_writers("", pages(Invocation()))["text"],
        **writers_of(findings_report(found, text, lambda finding: finding is found[1])),
    }


def of_documents(text: str) -> Mapping[str, Writer]:
    """The JSON of `findings list`."""
    return json_writers([as_document(one) for one in findings(text)])


def of_check(text: str) -> Mapping[str, Writer]:
    """`check`."""
    return writers(infected(DOCUMENT, text, frozenset({"case", "keys", "kind"})))


def of_run(text: str) -> Mapping[str, Writer]:
    """`run`."""
    summary = infected(SUMMARY, storable(text))
    pages = page_writers("", summary_view(summary, "x", Invocation()))
    return pages | writers_of(run_report(summary, findings(text)))


def of_replay(text: str) -> Mapping[str, Writer]:
    """`replay`."""
    done = (infected(ReplayResult(CASE, "fails otherwise", "x", "x"), text, frozenset({"subject"})),)
    pages = page_writers("", replay_view(done, Invocation()))
    return {**pages, **writers_of(replay_report(done, text))}


def of_scripts(text: str) -> Mapping[str, Writer]:
    """`replay --scripts`."""
    found = findings(text)
    ran = (ScriptResult(found[0].id, "fails otherwise", text, text, {"x": text}, {"x": text}, text),)
    pages = page_writers("", scripts_view(ran, Invocation()))
    return {**pages, **writers_of(scripts_report(ran, found, text))}


def of_sweep(text: str) -> Mapping[str, Writer]:
    """`sweep`."""
    census = infected(msgspec.structs.replace(CENSUS, selection=("x",)), text)
    return {
        **writers_of(sweep_report(census)),
        "text": census_writers(census)["text"],
        "markdown-page": census_writers(census)["markdown"],
        "html-page": census_writers(census)["html"],
    }


def of_upstream(text: str) -> Mapping[str, Writer]:
    """`report ID`, with the formats for PyTorch."""
    one = infected(WHOLE, storable(text), PROGRAMS)
    made = msgspec.structs.replace(one, given_title="")
    return {
        **{"issue": lambda _: issue(one, text, text), "issue-of-made-title": lambda _: issue(made, text, text)},
        **{"unittest": lambda _: unit_test(one), "exportdb": lambda _: exportdb_example(one)},
    }


COMMANDS: dict[str, Callable[[str], Mapping[str, Writer]]] = {
    "findings": of_findings,
    "findings list": of_documents,
    "check": of_check,
    "run": of_run,
    "replay": of_replay,
    "replay --scripts": of_scripts,
    "sweep": of_sweep,
    "report ID": of_upstream,
}


def markdown(text: str) -> Iterator[Any]:
    """The blocks and inline parts, without the ends of lines. Text is looked at for what GitHub links."""
    for token in leaves(MARKDOWN.parse(text)):
        if token.content == "<br>":
            continue
        if token.type in ("html_block", "html_inline"):
            found = parsed(token.content)
            yield token.type, tuple(found.elements), len(found.others)
        elif token.type not in ("text", "text_special", "softbreak"):
            yield token.type, token.tag, token.info
        elif token.type == "text" and (reference := REFERENCE.search(token.content)):
            yield "reference", reference[0]


def html(text: str) -> Iterator[Any]:
    """The elements with the names of their attributes, and what is neither element nor text. Colors of code differ."""
    found = parsed(text)
    yield tuple(element for element in found.elements if element != "span class")
    yield len(found.others)


def shape(value: Any) -> Any:
    """The structure of a JSON document. Keys are part of it if all are words."""
    if isinstance(value, dict):
        return sorted((name if name.isidentifier() else "", str(shape(of))) for name, of in value.items())
    return [shape(one) for one in value] if isinstance(value, list) else type(value).__name__


def python(text: str) -> Iterator[Any]:
    """The tree without docstrings, and the number of comments."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    yield ast.dump(tree)
    yield sum(one.type == tokenize.COMMENT for one in tokenize.generate_tokens(io.StringIO(text).readline))


def github(text: str) -> Iterator[Any]:
    """Each command, with the names of its properties."""
    for line in text.removesuffix("\n").split("\n"):
        command, properties, _ = re.fullmatch(r"::(\w+) (.*?)::(.*)", line).groups()  # type: ignore[union-attr]
        yield command, [one.partition("=")[0] for one in properties.split(",")]


def sarif(text: str) -> Iterator[Any]:
    """The shape of a log that the schema of OASIS accepts."""
    yield shape(checked_sarif(text))


def rows(text: str) -> Iterator[Any]:
    """The number of cells in each row. None begins as a formula."""
    for row in csv.reader(io.StringIO(text, newline=""), strict=True):
        yield len(row), any(cell.lstrip().startswith(("=", "+", "-", "@")) for cell in row)


STRUCTURE: dict[str, Callable[[str], Iterator[Any]]] = {
    "text": lambda _: iter(()),
    "json": lambda text: iter([shape(json.loads(text)), text.isascii()]),
    "jsonl": lambda text: iter([[shape(json.loads(line)) for line in text.splitlines()], text.isascii()]),
    "markdown": markdown,
    "markdown-page": markdown,
    "html": html,
    "html-page": html,
    "junit": lambda text: ((one.tag, sorted(one.attrib)) for one in ET.fromstring(text).iter()),
    "sarif": sarif,
    "github": github,
    "csv": rows,
    "issue": markdown,
    "issue-of-made-title": markdown,
    "unittest": python,
    "exportdb": python,
}
"""What a parser finds in a format, without text."""


class Wrong(NamedTuple):
    """One text that left its place."""

    command: str
    format_: str
    text: str
    why: str


def written(command: str, text: str, folder: Path) -> dict[str, str]:
    """What a command writes with this text, in each format, as its option `--output` does."""
    writers = COMMANDS[command](text)
    with suppress(Exception):  # else each format by itself
        deliver(writers, Output(next(iter(writers)), tuple((name, folder / name) for name in writers)))
        return {name: (folder / name).read_bytes().decode() for name in writers}
    got = {}
    for name in writers:
        try:
            deliver(writers, Output(name, ((name, folder / name),)))
            got[name] = (folder / name).read_bytes().decode()
        except Exception as error:  # noqa: BLE001 - counted
            got[name] = f"raised {type(error).__name__}: {error}"
    return got


def wrong_in(command: str, texts: list[str], folder: Path) -> Iterator[Wrong]:
    """The texts that leave their place in the reports of a command."""
    expected = {name: list(STRUCTURE[name](text)) for name, text in written(command, PLAIN, folder).items()}
    for text in texts:
        for name, report in written(command, text, folder).items():
            if report.startswith("raised "):
                yield Wrong(command, name, text, report)
                continue
            try:
                found = list(STRUCTURE[name](report))
            except Exception as error:  # noqa: BLE001 - counted
                yield Wrong(command, name, text, f"cannot be read: {type(error).__name__}: {error}")
                continue
            if found != expected[name]:
                yield Wrong(command, name, text, "has another structure")
            elif control := CONTROL.search(report.replace("\r\n", "\n") if name == "csv" else report):
                yield Wrong(command, name, text, f"has the control character {control[0]!r}")


def hostile(number: int) -> list[str]:
    """Texts with a visible character: each token by itself, then several of them."""
    draw = random.Random(SEED)
    drawn = ["".join(draw.choices(TOKENS, k=draw.randint(2, 9))) for _ in range(2 * number)]
    return [text for text in [*draw.sample(TOKENS, len(TOKENS)), *drawn] if text.strip()][:number]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_few_hostile_texts_stay_in_their_places(command: str, tmp_path: Path) -> None:
    texts = ["".join(TOKENS), *hostile(len(TOKENS) + 3)[-3:]]
    assert not list(wrong_in(command, texts, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_texts_stay_in_their_places(command: str, tmp_path: Path) -> None:
    number = os.environ.get("DDEFUZZ_HOSTILE")
    texts = hostile(int(number)) if number else hostile(320)[list(COMMANDS).index(command) :: len(COMMANDS)]
    wrong = list(wrong_in(command, texts, tmp_path))
    assert not wrong, f"{len({one.text for one in wrong})} of {len(texts)} texts"


def test_markup_of_rich_is_text_on_a_terminal() -> None:
    text = "[bold]x[/bold] [red]y[/] :smile: \x1b[31mz"
    one = infected(FINDING, text, PROGRAMS)
    for width, color in ((80, False), (200, True)):
        page = re.sub(r"\x1b\[[0-9;]*m", "", terminal(show_view(one, Invocation()), width, color=color))
        assert "[bold]x[/bold] [red]y[/] :smile: \\x1b[31mz" in " ".join(page.split())
