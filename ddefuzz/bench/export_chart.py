"""The chart of export times: CPU seconds by n, a panel for each workload and a line for each version of torch."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ddefuzz.bench.curves import require_chart
from ddefuzz.export_time.model import Series, longest


def svg(series: Sequence[Series]) -> str:
    """The series with the default knobs, on two logarithmic axes. Raises InputError without the extra `[report]`."""
    require_chart()
    altair, convert = import_module("altair"), import_module("vl_convert")
    rows: list[dict[str, Any]] = [
        {"workload": one.workload, "torch": f"torch {one.torch}", "n": point.n, "seconds": point.seconds}
        for one in longest(series)
        for point in one.points
    ]
    chart = (
        altair.Chart(altair.Data(values=rows))
        .mark_line(point=True)
        .encode(
            x=altair.X("n:Q", title="n", scale=altair.Scale(type="log", base=2)),
            y=altair.Y("seconds:Q", title="CPU seconds of the export", scale=altair.Scale(type="log")),
            color=altair.Color("torch:N", title=None),
        )
        .properties(width=220, height=180)
        .facet(facet=altair.Facet("workload:N", title=None), columns=3)
    )
    drawn: str = convert.vegalite_to_svg(chart.to_json())
    return drawn
