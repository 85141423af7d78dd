"""Charts: a Vega-Lite specification as an SVG file."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, Final

from ddefuzz.errors import InputError

EXTRA: Final = "pip install 'ddefuzz[report]'"


def require_chart() -> ModuleType:
    """The package that draws charts. Raises InputError where it is not installed."""
    try:
        return import_module("vl_convert")
    except ImportError as error:
        raise InputError(f"svg: found no vl_convert, expected the packages of the extra: {EXTRA}") from error


def svg(chart: dict[str, Any]) -> str:
    """The chart as SVG."""
    drawn: str = require_chart().vegalite_to_svg(chart)
    return drawn
