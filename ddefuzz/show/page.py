"""The format `html`: one page that needs no other file."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from ddefuzz.escape import html_value
from ddefuzz.show.record import Report


def page(report: Report) -> str:
    """The page. Everything is escaped: programs and messages are not trusted."""
    environment = Environment(
        loader=PackageLoader("ddefuzz.show", "templates"),
        autoescape=True,
        finalize=html_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html").render(report=report)
