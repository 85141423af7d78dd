"""The way from a line of the user's code to nodes, kernels and time, and back: links between the texts of one page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ddefuzz.artifacts.model import Kernel, Link, Part, StageOutput
from ddefuzz.show.blocks import Block, Code, Details, Heading, Mark, Paragraph, Span, Table, joined, table

SHOWN = 8
"""The nodes that a note names at most."""

_DEFINED = re.compile(r"(?P<name>(?:cpp_fused|triton_)\w*) = ")


class Way:
    """The links of one stage. `place` is the stage's place on the page."""

    def __init__(self, stage: StageOutput, place: str) -> None:
        self.stage, self.place = stage, place
        self.code = next((part for part in stage.parts if part.kind == "code"), None)
        self.lines = dict(_kernel_lines(self.code)) if self.code is not None else {}
        self.times = {kernel.name: kernel for kernel in stage.kernels}

    def sources(self) -> Iterator[Block]:
        """The user's lines, each with the nodes and kernels that come from it below."""
        for number, source in enumerate(self.stage.sources):
            marks = []
            for at, links in self._by_line(source.file).items():
                marks.append(Mark(at, at, "good", below=(Paragraph(self._made_by(links), "dim"),)))
            anchor = f"{self.place}-source-{number}-"
            code = Code(source.text.rstrip("\n"), "python", source.first, anchor, tuple(marks))
            yield Details(source.file, (code,), is_open=True)

    def marks(self, part: Part) -> tuple[Mark, ...]:
        """The notes in the text of a graph or of code that lead back."""
        if self.stage.graph is not None and part.file == self.stage.graph.file:
            return tuple(self._of_nodes())
        if self.code is not None and part.file == self.code.file:
            return tuple(self._of_kernels())
        return ()

    def kernels(self) -> Iterator[Block]:
        """The kernels, the slowest first, with the lines that they compute."""
        used = dict.fromkeys(name for link in self.stage.links for name in link.kernels)
        names = sorted({**used, **dict.fromkeys(self.times)}, key=lambda name: -self._microseconds(name))
        if not names:
            return
        total = sum(kernel.microseconds for kernel in self.stage.kernels)
        yield Heading("Kernels", 3)
        yield self._table(names, total)

    def _table(self, names: Sequence[str], total: float) -> Table:
        rows = []
        for name in names:
            kernel, links = self.times.get(name), [link for link in self.stage.links if name in link.kernels]
            time = () if not self.times else ("-", "-", "-") if kernel is None else _time(kernel, total)
            rows.append((self._kernel(name), *time, self._users(links), self._nodes(links)))
        columns = ("calls", "CPU µs", "share") if self.times else ()
        return table(("kernel", *columns, "lines", "nodes"), rows, right=columns, code=("kernel",))

    def _by_line(self, file: str) -> dict[int, list[Link]]:
        lines: dict[int, list[Link]] = {}
        for link in self.stage.links:
            if link.place is not None and link.place[0] == file:
                lines.setdefault(link.place[1], []).append(link)
        return dict(sorted(lines.items()))

    def _made_by(self, links: Sequence[Link]) -> tuple[str | Span, ...]:
        kernels = list(dict.fromkeys(name for link in links for name in link.kernels))
        arrow: tuple[str | Span, ...] = (" → ",) if kernels else ()
        shown = joined([self._kernel(name, with_time=True) for name in kernels], ", ")
        return ("nodes: ", *self._nodes(links), *arrow, *shown)

    def _of_nodes(self) -> Iterator[Mark]:
        """A note below the last of the nodes that follow each other and come from one line."""
        links = [link for link in self.stage.links if link.number]
        for at, link in enumerate(links):
            following = links[at + 1] if at + 1 < len(links) else None
            if (link.line or link.kernel) and (following is None or (following.line, following.kernel) != _way(link)):
                kernels = joined([self._kernel(name, with_time=True) for name in dict.fromkeys(link.kernels)], ", ")
                back = self._users([link])
                note = (*(("from ", *back) if back else ()), *((" → ", *kernels) if kernels else ()))
                yield Mark(link.number, link.number, "", below=(Paragraph(note, "dim"),))

    def _of_kernels(self) -> Iterator[Mark]:
        for name, number in self.lines.items():
            links = [link for link in self.stage.links if name in link.kernels]
            time = f"{self._microseconds(name):.1f} µs; " if name in self.times else ""
            if links or time:
                users, nodes = self._users(links), self._nodes(links)
                back = ("from ", *users, "; ") if users else ()
                note = (time, *back, *(("nodes: ", *nodes) if nodes else ()))
                yield Mark(number, number, "", below=(Paragraph(note, "dim"),))

    def _kernel(self, name: str, *, with_time: bool = False) -> Span:
        number = self.lines.get(name) or self.lines.get(name.removesuffix("_0"))
        href = f"#{self.place}-{self.code.file.replace('.', '-')}-{number}" if self.code and number else ""
        time = f" {self._microseconds(name):.1f} µs" if with_time and name in self.times else ""
        return Span(f"{name}{time}", code=True, href=href)

    def _nodes(self, links: Sequence[Link]) -> tuple[str | Span, ...]:
        graph = self.stage.graph
        anchor = f"#{self.place}-{graph.file.replace('.', '-')}-" if graph is not None else ""
        places = [f"{anchor}{link.number}" if anchor and link.number else "" for link in links]
        named = [Span(link.node, code=True, href=href) for link, href in zip(links, places, strict=True)]
        more = (f", … {len(named) - SHOWN} more",) if len(named) > SHOWN else ()
        return (*joined(named[:SHOWN], ", "), *more)

    def _users(self, links: Sequence[Link]) -> tuple[str | Span, ...]:
        """The user's lines, each once, as links to the source if the page has it."""
        files = {source.file: number for number, source in enumerate(self.stage.sources)}
        spans = []
        for file, number in dict.fromkeys(link.place for link in links if link.place is not None):
            href = f"#{self.place}-source-{files[file]}-{number}" if file in files else ""
            spans.append(Span(f"{file.rpartition('/')[2]}:{number}", code=True, href=href))
        return joined(spans, ", ")

    def _microseconds(self, name: str) -> float:
        return self.times[name].microseconds if name in self.times else 0.0


def _way(link: Link) -> tuple[str, str]:
    return link.line, link.kernel


def _time(kernel: Kernel, total: float) -> tuple[str, str, str]:
    return str(kernel.calls), f"{kernel.microseconds:.1f}", f"{kernel.microseconds / max(total, 1e-9):.0%}"


def _kernel_lines(code: Part) -> Iterator[tuple[str, int]]:
    """Where generated code defines its kernels, and where it first calls one of a library."""
    called: set[str] = set()
    for number, line in enumerate(code.text.splitlines(), 1):
        if (match := _DEFINED.match(line)) is not None:
            yield match["name"], number
        for name in re.findall(r"extern_kernels\.\w+(?=\()", line):
            if name not in called:
                called.add(name)
                yield name, number
