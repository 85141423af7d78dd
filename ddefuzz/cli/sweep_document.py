"""The census of a sweep as a document: Markdown for a repository, or one self-contained HTML page."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment

from ddefuzz.cli.sweep_page import summary_lines
from ddefuzz.escape import html_value, markdown_code, markdown_table, markdown_text, shell_words
from ddefuzz.sweep.census import Census, Row, Upstream

STATUSES = """\
Statuses: **dde** a sample ends in a data-dependent error; **unsupported** none does, but a sample is refused (no
kernel, or an output whose shape or value depends on data); **other** a sample fails in another way; **ok** all samples
trace; **none** no sample could be made. *size-oblivious* is the status with size-oblivious semantics in the same runs.
"""


def _command(census: Census) -> str:
    words = ["ddefuzz", "sweep", *(word for glob in census.selection for word in ("--ops", glob))]
    return shell_words([*words, *(["--compare-upstream"] if census.upstream is not None else [])])


def markdown_page(census: Census) -> str:
    """The Markdown page. An op that does not fail is only in the last list."""
    selection = f", ops {' '.join(census.selection)}" if census.selection else ""
    parts = [
        f"# Census of data-dependent errors: torch {markdown_text(census.torch + selection)}",
        f"Made by {markdown_code(_command(census) + ' --output markdown=FILE')}; do not edit.",
        "\n".join(f"- {markdown_text(line)}" for line in summary_lines(census)),
        STATUSES.rstrip(),
    ]
    if census.upstream is not None:
        parts += _upstream(census.upstream)
    failing = [row for row in census.rows if row.explicit not in ("ok", "none")]
    for source, title in (("opinfo", "Ops of OpInfo that fail"), ("catalogue", "Ops of the catalogue that fail")):
        rows = [row for row in failing if row.source == source]
        if rows:
            parts += [f"## {title}", markdown_table(_HEAD, map(_cells, rows))]
    wrong = [row for row in census.rows if row.wrong]
    if wrong:
        pairs = [(row.op, one) for row in wrong for one in row.wrong]
        cells = (
            [markdown_code(op), markdown_text(one.kind), markdown_code(one.site), markdown_code(one.evidence)]
            for op, one in pairs
        )
        parts += ["## Ops whose captured programs are wrong", markdown_table(("op", "kind", "site", "evidence"), cells)]
    for status, title in (("ok", "Ops whose samples all trace"), ("none", "Ops without a sample")):
        names = [markdown_code(row.op) for row in census.rows if row.explicit == status and row.source == "opinfo"]
        if names:
            parts += [f"## {title} (OpInfo)", ", ".join(names)]
    return "\n\n".join(parts) + "\n"


_HEAD = ("op", "explicit", "size-oblivious", "cause", "call sites", "confirmed", "samples", "runs")


def _cells(row: Row) -> list[str]:
    sites = dict.fromkeys(markdown_code(failure.site) for failure in row.failures)
    stages = dict.fromkeys(stage for failure in row.failures for stage in failure.confirmed)
    return [
        markdown_code(row.op),
        markdown_text(row.explicit),
        markdown_text(row.size_oblivious),
        markdown_text(row.cause),
        "<br>".join([*sites, *map(markdown_text, row.lost)]),
        markdown_text(", ".join(stages)),
        str(row.samples),
        str(row.runs),
    ]


def _upstream(upstream: Upstream) -> list[str]:
    parts = []
    for title, differences in (
        ("Fails here, and is not on upstream's list", upstream.only_here),
        ("On upstream's list, and no data-dependent error here", upstream.only_upstream),
    ):
        if differences:
            cells = (
                [markdown_code(one.op), markdown_text(one.reason), markdown_code(one.evidence)] for one in differences
            )
            parts += [f"## {title}", markdown_table(("op", "reason", "evidence"), cells)]
    if upstream.unaccounted:
        parts += ["## On upstream's list, and no run says why", ", ".join(map(markdown_code, upstream.unaccounted))]
    return parts


def html_page(census: Census) -> str:
    """The HTML page. It loads nothing, so it can be mailed and opened from disk."""
    source = files("ddefuzz.cli").joinpath("sweep.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, finalize=html_value, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(source).render(census=census, lines=summary_lines(census)) + "\n"
