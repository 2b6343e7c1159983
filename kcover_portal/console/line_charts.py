"""Values over time as charts of lines, each with the same values as a table (``parts/line_charts.html``)."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines over time, and the same as rows, newest first.

    ``times``: seconds of the epoch. ``name``: the id of its heading.
    """

    name: str
    title: str
    times: Sequence[int]
    lines: Sequence[tuple[str, Sequence[float | None]]]
    rows: Sequence[tuple[datetime, Sequence[float | None]]]

    @property
    def times_json(self) -> str:
        return json.dumps(self.times)

    @property
    def lines_json(self) -> str:
        return json.dumps(self.lines)


def line_chart(
    name: str, title: str, times: Iterable[datetime], lines: Sequence[tuple[str, Sequence[float | None]]]
) -> LineChart:
    """The chart of lines with a value, or None, for each time. Times at which no line has a value are left out."""
    of_time = zip(times, zip(*(values for _name, values in lines), strict=True), strict=True)
    told = [(at, values) for at, values in of_time if any(value is not None for value in values)]
    kept = [(label, [values[number] for _at, values in told]) for number, (label, _values) in enumerate(lines)]
    return LineChart(name, title, [int(at.timestamp()) for at, _values in told], kept, told[::-1])
