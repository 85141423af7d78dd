"""The output of stages as text, as a folder of plain files, and as one HTML page that needs no other file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Group

from ddefuzz import __version__
from ddefuzz.artifacts.model import Artifacts, Broken, Cause, Made, Part
from ddefuzz.cli.layout import Detailed, counted, table
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.cli.sites_html import TEMPLATES, styles
from ddefuzz.errors import InputError
from ddefuzz.escape import block, html_value, json_text
from ddefuzz.files import check_folder, read_bytes, write_files
from ddefuzz.show.html import highlighted

INDEX, DOCUMENT = "index.html", "artifacts.json"

SHOWN_GUARDS = 40
"""Guards that took their fallback, on the page. The JSON has all."""

COUNTED = {"graph": "node", "code": "kernel call", "guards": "guard"}

MASKS = "ddefuzz/execute/stages.py"
"""The file that gives an exported program inputs with unbacked sizes, as graphs name it."""

_PER_LINE = re.compile(r"^(?=[-+])(?!\+\+\+|---)")


class Line(NamedTuple):
    """A line of a text: its number, its markup, and the CSS class of a line that is marked."""

    number: int
    code: Markup
    state: str = ""


def write_folder(made: Artifacts, folder: Path) -> Path:
    """Write the page, the texts and the document. Returns the path of the page. Raises InputError.

    Texts that an earlier run wrote to the folder are removed.
    """
    files = dict(files_of(made)) | {INDEX: html_page(made)}
    old = set[str]()
    with suppress(InputError, msgspec.DecodeError):
        old = {path for path, _ in files_of(msgspec.json.decode(read_bytes(folder / DOCUMENT), type=Artifacts))}
    check_folder(folder, [*files, *old])
    for path in old - files.keys():
        (folder / path).unlink(missing_ok=True)
    write_files(folder, files)
    return folder / INDEX


def files_of(made: Artifacts) -> Iterator[tuple[str, str]]:
    """The plain files of the folder: their paths in it, and their texts."""
    if made.program:
        yield "program.py", made.program
    for stage in made.stages:
        for part in stage.parts:
            yield f"{place_of(made, stage)}/{part.file}", part.text
        if stage.failure is not None:
            yield f"{place_of(made, stage)}/failure.txt", f"{stage.failure.message or stage.reason}\n"
    for diff in made.diffs:
        if diff.text:
            yield diff.file, diff.text
    if made.broken is not None and made.broken.breaks:
        yield "graph-breaks.txt", "\n".join(f"{one.cause.line}\n{one.reason}\n" for one in made.broken.breaks)
    yield DOCUMENT, json_text(made, indent=True) + "\n"


def place_of(made: Artifacts, stage: Made) -> str:
    """The folder of a stage: its name, with the semantics if there are several."""
    several = len({one.semantics for one in made.stages}) > 1
    return f"{stage.stage}-{stage.semantics}" if several else stage.stage


def html_page(made: Artifacts) -> str:
    """The page. Everything is escaped: programs, messages and generated code are not trusted."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=html_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(styles=styles(), counted=counted, place_of=place_of, title_of=title_of)
    return environment.get_template("artifacts.html").render(
        made=made,
        version=__version__,
        program=list(_lines(made.program)) if made.program else [],
        lines=_marked,
        diff_lines=_of_diff,
        ending=ending,
        size=size_of,
        masked=any(MASKS in stage.graph.text for stage in made.stages if stage.graph is not None),
        shown=SHOWN_GUARDS,
    )


def _marked(part: Part) -> list[Line]:
    return list(_lines(part.text, frozenset(part.assertions), python=part.kind != "guards"))


def _lines(text: str, marked: frozenset[int] = frozenset(), *, python: bool = True) -> Iterator[Line]:
    lines = text.rstrip("\n").split("\n")
    codes = highlighted(lines) if python else [Markup.escape(block(line)) for line in lines]
    for number, code in enumerate(codes, 1):
        yield Line(number, code, "raised" if number in marked else "")


def _of_diff(text: str) -> Iterator[Line]:
    """The lines of a diff: what was added and removed is marked."""
    states = {"+": "fell", "-": "never"}
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        yield Line(number, Markup.escape(block(line)), states.get(line[:1], "") if _PER_LINE.match(line) else "")


def title_of(made: Artifacts, stage: Made) -> str:
    """The heading of a stage."""
    return place_of(made, stage).replace("-explicit", " (explicit)") if made.stages else stage.stage


def ending(stage: Made) -> str:
    """How a stage ended, in words."""
    match stage.outcome:
        case "ok":
            return f"captured in {stage.seconds:.2f} s"
        case "not-judged":
            return f"not judged: {stage.reason}"
        case other:
            return "fails" if other == "fail" else other


def size_of(part: Part) -> str:
    """`12 nodes, 2 assertions`."""
    said = [counted(part.nodes, COUNTED[part.kind])] if part.nodes else []
    if part.kind != "guards":
        said.append(counted(len(part.assertions), "assertion"))
    elif part.assertions:
        said.append(f"{len(part.assertions)} of them on symbols")
    return ", ".join(said)


def artifacts_text(made: Artifacts, index: Path, page: Page) -> str:
    """One row for each stage, failures, graph breaks, diffs, and where the page is."""
    rows = []
    met: dict[tuple[str, str], str] = {}
    for stage in made.stages:
        graph = stage.graph
        code = [part for part in stage.parts if part.kind == "code"]
        cells = (
            place_of(made, stage),
            ending(stage),
            str(graph.nodes) if graph is not None else "-",
            str(stage.assertions) if graph is not None else "-",
            str(sum(part.nodes for part in code)) if code else "-",
            str(len(stage.fallbacks)),
        )
        detail = ""
        if (failure := stage.failure) is not None:
            first = met.setdefault((failure.kind, failure.site), place_of(made, stage))
            detail = said_cause(failure) if first == place_of(made, stage) else f"as in {first}"
        rows.append(Detailed([plain(cell) for cell in cells], plain(detail, style="dim")))
    titles = ("stage", "outcome", "nodes", "assertions", "kernel calls", "fallbacks")
    head = plain(f"{made.target}, torch {made.torch}")
    shown = rendered(Group(head, "", table(titles, rows, page.width, folding=("outcome",)), ""), page)
    lines = [*_said_breaks(made.broken), *(f"diff {one.name}: {one.note or _changes(one.text)}" for one in made.diffs)]
    return shown + "\n".join([*lines, f"Next:\n  open {index}"]) + "\n"


def said_cause(cause: Cause) -> str:
    """`dde in at::native::diff_helper [operator>]: 1 > u0 (avoidable), called by model.py:5 …`."""
    anchor = f" [{cause.anchor}]" if cause.anchor else ""
    caller = f", called by {cause.line}" if cause.line else ""
    return f"{cause.kind} in {cause.site}{anchor}: {cause.evidence} ({cause.cause}){caller}"


def _said_breaks(broken: Broken | None) -> Iterator[str]:
    if broken is None:
        return
    breaks, graphs = counted(len(broken.breaks), "graph break"), counted(broken.graphs, "graph")
    yield f"with fullgraph=False: {graphs}, {breaks}{f', ended by {broken.error}' if broken.error else ''}"
    for one in broken.breaks:
        yield f"  {said_cause(one.cause)}"


def _changes(text: str) -> str:
    lines = text.splitlines()[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"{counted(added, 'line')} added, {removed} removed"
