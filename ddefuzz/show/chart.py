"""Charts: a Vega-Lite specification as an SVG file."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, Final

from ddefuzz.errors import UnsupportedError

EXTRA: Final = "pip install 'ddefuzz[report]'"


def require_chart() -> ModuleType:
    """The package that draws charts. Raises UnsupportedError where it is not installed."""
    try:
        return import_module("vl_convert")
    except ImportError as error:
        raise UnsupportedError(f"charts: found no vl_convert, expected it: {EXTRA}") from error


def svg(chart: dict[str, Any]) -> str:
    """The chart as SVG."""
    drawn: str = require_chart().vegalite_to_svg(chart)
    return drawn
