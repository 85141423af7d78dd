"""The output of stages as text, as a folder of plain files, and as one HTML page that needs no other file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ddefuzz import __version__
from ddefuzz.artifacts.model import About, Artifacts, CacheUse, CallAt, Cause, Frame, GraphBreaks, Part, StageOutput
from ddefuzz.artifacts.way import Way
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.errors import InputError
from ddefuzz.escape import json_text
from ddefuzz.execute.protocol import Call, CallEnd, Observation
from ddefuzz.files import check_folder, is_there, parse_json, read_bytes, write_files
from ddefuzz.oracles.recompilation import CallSequence
from ddefuzz.oracles.table import row_of
from ddefuzz.show.blocks import (
    Block,
    Code,
    Commands,
    Details,
    Heading,
    Items,
    Mark,
    Paragraph,
    Span,
    Table,
    TableRow,
    counted,
    marked,
    prose,
    table,
)
from ddefuzz.show.html import html

INDEX, DOCUMENT = "index.html", "artifacts.json"

SHOWN_GUARDS = 40
"""Guards that took their fallback, on the page. The JSON has all."""

LANGUAGES = {"graph": "python", "code": "python", "diff": "diff"}

COUNTED = {"graph": "node", "code": "kernel call", "guards": "guard"}

MASKS = "ddefuzz/execute/stages.py"
"""The file that gives an exported program inputs with unbacked sizes, as graphs name it."""

MADE = "Made by ddefuzz "
"""What the page says at its end, before the version."""

MAX_TEXT = 2**30
"""The largest file of an earlier run that is read."""

TITLES = ("stage", "outcome", "nodes", "assertions", "kernel calls", "fallbacks")


def write_folder(made: Artifacts, folder: Path) -> Path:
    """Write the page, the texts and the document. Returns the path of the page. Raises InputError of `own_files`.

    Texts that an earlier run wrote to the folder are removed.
    """
    files = dict(files_of(made)) | {INDEX: html_page(made)}
    for path in own_files(folder, files) - files.keys():
        (folder / path).unlink()
    write_files(folder, files)
    return folder / INDEX


def own_files(folder: Path, files: Mapping[str, str]) -> set[str]:
    """The files in a folder that are as an earlier run wrote them, or as in `files`, which is to be written.

    Raises InputError if another file, or a document that does not fit, has the place of one of `files`.
    """
    document, old = folder / DOCUMENT, dict[str, str]()
    if is_there(document):
        expected = "one that this version of `ddefuzz artifacts` wrote, or another folder"
        old = dict(files_of(parse_json(read_bytes(document, MAX_TEXT), Artifacts, document, expected)))
    check_folder(folder, [*files, *old])
    own = set[str]()
    for path in filter(lambda name: is_there(folder / name), {**old, **files}):
        content = read_bytes(folder / path, MAX_TEXT)
        same = content in [of.get(path, "").encode(errors="surrogatepass") for of in (old, files)]
        if same or path == DOCUMENT or (path == INDEX and MADE.encode() in content):
            own.add(path)
        elif path in files:
            raise InputError(f"{folder / path}: found a file that `ddefuzz artifacts` did not write, expected none")
    return own


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
    for frame in frames_of(made):
        for part in frame.parts:
            yield f"{place_of_frame(frame)}/{part.file}", part.text
    if made.broken is not None and made.broken.breaks:
        yield "graph-breaks.txt", "\n".join(f"{one.cause.line}\n{one.reason}\n" for one in made.broken.breaks)
    yield DOCUMENT, json_text(made, indent=True) + "\n"


def frames_of(made: Artifacts) -> tuple[Frame, ...]:
    """The frames of a subject that dynamo breaks: the only frame of another one is in the stages."""
    return made.broken.frames if made.broken is not None and len(made.broken.frames) > 1 else ()


def place_of_frame(frame: Frame) -> str:
    """The folder of a frame: `frame-1-0`."""
    return f"frame-{frame.name.replace('/', '-')}"


def place_of(made: Artifacts, stage: StageOutput) -> str:
    """The folder of a stage: its name, with the semantics if there are several."""
    several = len({one.semantics for one in made.stages}) > 1
    return f"{stage.stage}-{stage.semantics}" if several else stage.stage


def html_page(made: Artifacts) -> str:
    """The page."""
    return html(f"{made.target}: what each stage makes", _page(made))


def _page(made: Artifacts) -> Iterator[Block]:
    yield Heading(f"{made.target}: what each stage makes", 1)
    if made.about is not None:
        yield from _about(made.about, [stage.stage for stage in made.stages])
    sample = Span("like this", style="warn")
    yield Paragraph(
        (f"torch {made.torch}. Lines that check a condition when the program runs are marked ", sample, ".")
    )
    yield _stages(made)
    yield Paragraph(
        "nodes: of the graph that the stage ends with. assertions: of the code that runs. fallbacks: guards on "
        "unbacked sizes that could not be decided and took their fallback.",
        "dim",
    )
    if made.program:
        yield Heading("Program")
        yield Code(made.program.rstrip("\n"), first=1, anchor="program-")
        if any(MASKS in stage.graph.text for stage in made.stages if stage.graph is not None):
            yield Paragraph(
                f"Lines of {MASKS} in the graphs prepare the program's inputs. In export, they make sizes unbacked: "
                "they select elements by masks, which are additional inputs. The other stages mark the dims, and clone "
                "scalar inputs.",
                "dim",
            )
    for stage in made.stages:
        yield from _stage(stage, place_of(made, stage))
    if made.broken is not None:
        yield from _broken(made.broken, frames_of(made))
    for number, diff in enumerate(made.diffs, 1):
        yield Heading(diff.name)
        yield Code(diff.text.rstrip("\n"), "diff", 1, f"diff-{number}-") if diff.text else Paragraph(diff.note)
    yield Paragraph(f"{MADE}{__version__}. The same texts are in plain files next to this page.", "dim")


def _about(of: About, stages: list[str]) -> Iterator[Block]:
    yield Paragraph(of.title, "bold")
    noun, them = ("stage", "it") if len(of.stages) == 1 else ("stages", "them")
    missing = bool(of.stages) and not set(of.stages) & set(stages)
    note = f" This page does not have {them}, so it may not show the finding." if missing else ""
    yield prose("`{}`: {}. Seen in the {} {}.{}", of.kind, of.meaning, noun, ", ".join(of.stages), note)
    if of.calls:
        titles = ("call at size", "what happened when the finding was confirmed")
        yield table(titles, ((call.size, call.result) for call in of.calls))
    if of.shared:
        yield Paragraph(of.shared)


def _stages(made: Artifacts) -> Table:
    """A row for each stage. A failure that an earlier stage has too is told there only."""
    rows = []
    met: dict[tuple[str, str], str] = {}
    for stage in made.stages:
        graph, place = stage.graph, place_of(made, stage)
        code = [part for part in stage.parts if part.kind == "code"]
        numbers = (
            str(graph.nodes) if graph is not None else "-",
            str(stage.assertions) if graph is not None else "-",
            str(sum(part.nodes for part in code)) if code else "-",
            str(len(stage.fallbacks)),
        )
        detail = ""
        if (failure := stage.failure) is not None:
            first = met.setdefault((failure.kind, failure.site), place)
            detail = said_cause(failure) if first == place else f"as in {first}"
        rows.append(TableRow((Span(place, href=f"#{place}"), ending(stage), *numbers), Span(detail, style="dim")))
    return table(TITLES, rows, right=TITLES[2:], folding=("outcome",))


def _stage(stage: StageOutput, place: str) -> Iterator[Block]:
    yield Heading(f"{place}: {ending(stage)}", anchor=place)
    if stage.failure is not None:
        yield _cause(stage.failure)
        if stage.failure.message:
            yield Details("the message", (Code(stage.failure.message, "text"),))
    if stage.symbols:
        yield Heading("Symbols", 3)
        rows = ((one.name, one.range, one.op, one.line) for one in stage.symbols)
        yield table(("symbol", "range", "made by", "line"), rows, code=("symbol", "made by", "line"))
    way = Way(stage, place)
    if stage.sources:
        yield Heading("From line to node to kernel, and back", 3)
        yield from way.sources()
    yield from way.kernels()
    yield from _caches(stage.caches)
    opened = stage.graph.name if stage.graph is not None else ""
    yield from _parts(stage.parts, place, opened, way)
    if stage.fallbacks:
        yield Details(f"{counted(len(stage.fallbacks), 'guard')} took the fallback", tuple(_fallbacks(stage)))


def _caches(uses: Sequence[CacheUse]) -> Iterator[Block]:
    if uses:
        yield Heading("Inductor's caches", 3)
        yield prose("The program was compiled twice, beginning with empty caches. A row is a graph.")
        rows = [(use.cache, str(use.compilation), use.use, use.reason) for use in uses]
        yield table(("cache", "compilation", "use", "why"), rows, folding=("why",))


def _parts(parts: Sequence[Part], place: str, opened: str = "", way: Way | None = None) -> Iterator[Block]:
    """The texts. Other entries of torch's log are files that the page only names."""
    for part in parts:
        if part.kind == "log":
            continue
        marks = tuple(Mark(line, line, "warn") for line in part.assertions)
        marks += way.marks(part) if way is not None else ()
        anchor = f"{place}-{part.file.replace('.', '-')}-"
        code = Code(part.text.rstrip("\n"), LANGUAGES.get(part.kind, "text"), 1, anchor, marks)
        summary = (f"{part.name}{': ' if size_of(part) else ''}{size_of(part)} (", _link(part, place), ")")
        yield Details(summary, (code,), is_open=part.name == opened)
    if log := [part for part in parts if part.kind == "log"]:
        rows = [(part.name, _link(part, place)) for part in log]
        yield Details(f"torch's trace log: {counted(len(log), 'other text')}", (table(("entry", "file"), rows),))


def _link(part: Part, place: str) -> Span:
    return Span(part.file, href=f"{place}/{part.file}")


def _fallbacks(stage: StageOutput) -> Iterator[Block]:
    rows = (
        (
            guard.expression,
            str(guard.fallback),
            str(guard.counterfactual),
            f"{guard.place.file}:{guard.place.line} {guard.function}".rstrip(),
        )
        for guard in stage.fallbacks[:SHOWN_GUARDS]
    )
    yield table(("guard", "answer", "size-oblivious", "place"), rows, code=("guard", "place"))
    if (left_out := len(stage.fallbacks) - SHOWN_GUARDS) > 0:
        yield Paragraph(f"{left_out} more are in {DOCUMENT}.", "dim")


def _broken(broken: GraphBreaks, frames: Sequence[Frame]) -> Iterator[Block]:
    yield Heading("Graph breaks with fullgraph=False", anchor="breaks")
    ended = marked(" The call ended with `{}`", broken.error) if broken.error else ()
    yield Paragraph((f"{_counts(broken)}.", *ended))
    for graph_break in broken.breaks:
        yield _cause(graph_break.cause)
        yield Details("what dynamo says", (Code(graph_break.reason, "text"),))
    if not frames:
        return
    yield Heading("Frames that dynamo compiled", 3)
    yield Paragraph(
        "1/0 is the second function, compiled for the first time. After a break, dynamo goes on with a function that "
        "it makes of the rest.",
        "dim",
    )
    titles = ("frame", "function", "starts at", "nodes", "assertions", "kernel calls")
    yield table(titles, map(_frame_row, frames), right=titles[3:], code=("function", "starts at"))
    for frame in frames:
        yield Heading(f"{frame.name} {frame.function}", 3, anchor=place_of_frame(frame))
        if frame.failure is not None:
            yield _cause(frame.failure)
        yield from _parts(frame.parts, place_of_frame(frame))


def _frame_row(frame: Frame) -> tuple[str | Span, ...]:
    graph = next((part for part in frame.parts if part.name == "dynamo graph"), None)
    code = [part for part in frame.parts if part.kind == "code"]
    last = code or ([graph] if graph is not None else [])
    return (
        Span(frame.name, href=f"#{place_of_frame(frame)}"),
        frame.function,
        frame.line,
        str(graph.nodes) if graph is not None else "-",
        str(sum(len(part.assertions) for part in last)) if last else "-",
        str(sum(part.nodes for part in code)) if code else "-",
    )


def _cause(cause: Cause) -> Paragraph:
    anchor = Span(f" [{cause.anchor}]" if cause.anchor else "", style="dim")
    called = ("\n", *marked("called by `{}`", cause.line)) if cause.line else ()
    head = marked("**{}** in `{}`", cause.kind, cause.site)
    return Paragraph((*head, anchor, "\n", f"{cause.evidence} (cause: {cause.cause})", *called))


def ending(stage: StageOutput) -> str:
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
    parts = [counted(part.nodes, COUNTED[part.kind])] if part.nodes else []
    if part.kind in ("graph", "code"):
        parts.append(counted(len(part.assertions), "assertion"))
    elif part.assertions:
        parts.append(f"{len(part.assertions)} of them on symbols")
    return ", ".join(parts)


def artifacts_view(made: Artifacts, index: Path) -> Iterator[Block]:
    """One row for each stage, failures, graph breaks, diffs, and where the page is."""
    yield Paragraph(f"{made.target}, torch {made.torch}")
    yield _stages(made)
    broken = list(_said_breaks(made.broken))
    yield Items((*broken, *(f"diff {diff.name}: {diff.note or _changes(diff.text)}" for diff in made.diffs)))
    yield Commands((f"open {index}",))


def said_cause(cause: Cause) -> str:
    """`dde in at::native::diff_helper [operator>]: 1 > u0 (avoidable), called by model.py:5 …`."""
    anchor = f" [{cause.anchor}]" if cause.anchor else ""
    caller = f", called by {cause.line}" if cause.line else ""
    return f"{cause.kind} in {cause.site}{anchor}: {cause.evidence} ({cause.cause}){caller}"


def _said_breaks(broken: GraphBreaks | None) -> Iterator[str]:
    if broken is None:
        return
    yield f"with fullgraph=False: {_counts(broken)}{f', ended by {broken.error}' if broken.error else ''}"
    for graph_break in broken.breaks:
        yield f"  {said_cause(graph_break.cause)}"


def _counts(broken: GraphBreaks) -> str:
    return f"{counted(broken.graphs, 'graph')}, {counted(len(broken.breaks), 'graph break')}"


def _changes(text: str) -> str:
    lines = text.splitlines()[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"{counted(added, 'line')} added, {removed} removed"


def about(title: str, kind: Kind, stages: tuple[str, ...], failure: Failure | None) -> About:
    """What a finding reports, by the stages in which it was seen and the failure that it stores."""
    observation = None if failure is None else failure.observation
    return About(
        title,
        kind,
        row_of(kind).meaning,
        stages,
        tuple(_calls_of(observation)) if observation is not None else (),
        _shared(observation) if observation is not None else "",
    )


def _calls_of(observation: Observation) -> Iterator[CallAt]:
    for call in observation.calls:
        result = said_of(call) if observation.measurement(CallSequence) is None else _counted(call)
        yield CallAt(call.size, result)


def said_of(call: Call) -> str:
    """How the captured program and eager ended at one size."""
    if call.eager.returned and call.captured.returned:
        differences = [f"{one.where}: {one.how}" for one in call.differences]
        result = "; ".join(differences) or call.why or "the same result"
        return f"{result}, although the assertion {call.failing} of the capture is not true" if call.failing else result
    return f"eager: {_ended(call.eager)}; captured: {_ended(call.captured)}"


def _counted(call: Call) -> str:
    return "compiled" if call.recompiled else "called with a graph that was compiled before"


def _ended(end: CallEnd) -> str:
    return end.error or "returns"


def _shared(observation: Observation) -> str:
    """The sizes for which one graph is right, and the guard that keeps them apart."""
    repeated = observation.measurement(CallSequence)
    if repeated is None:
        return ""
    sizes = [call.size for call in observation.calls]
    groups = [[sizes[at] for at in group if at < len(sizes)] for group in repeated.shareable]
    sentences = [f"One graph is right for the sizes {', '.join(group)}." for group in groups if len(group) > 1]
    return " ".join([*sentences, *([f"The guard {repeated.guard} was false."] if repeated.guard else [])])
