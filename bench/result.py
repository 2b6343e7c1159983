"""The result of a measurement, and the page of results."""

import math
import os
import platform
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import psycopg

RESULTS = Path(__file__).parent / "RESULTS.md"
SHARES = (0.1, 1 / 3, 1.0)
Number = TypeVar("Number", int, float)
HEAD = """# Results

Written by `make bench`. Everything (client, portal, PostgreSQL with synchronous_commit=on, Redis, simulated cluster)
ran on one machine. Absolute figures depend on the machine. The goals are the project's own.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One measurement: its name, the command that repeats it, the conditions, and rows of (label, figure, goal)."""

    name: str
    command: str
    conditions: str
    rows: Sequence[tuple[str, str, str]]


def scaled(full: Number, scale: float, *, least: Number) -> Number:
    """A count (int) or a duration (float, in seconds) at this scale: ``full`` at 1, and never below ``least``."""
    return max(least, round(full * scale) if isinstance(full, int) else full * scale)


def sizes(largest: int, scale: float, *, least: int) -> list[int]:
    """A tenth, a third and all of the largest size at this scale, each once: at a small scale they may be equal."""
    return sorted({scaled(largest, scale * share, least=least) for share in SHARES})


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile; ``share`` from 0 to 1."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float], *, unit: str = "ms", digits: int = 1) -> list[tuple[str, str]]:
    """Minimum, median, P99 and maximum as text."""
    return [
        ("min", f"{min(values):.{digits}f} {unit}"),
        ("P50", f"{statistics.median(values):.{digits}f} {unit}"),
        ("P99", f"{percentile(values, 0.99):.{digits}f} {unit}"),
        ("max", f"{max(values):.{digits}f} {unit}"),
    ]


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The growth of cost with size: the slope of log(cost) over log(size), by least squares. 1 is linear.

    One size alone has none (NaN).
    """
    if len(points) == 1:
        return math.nan
    logs = [(math.log(size), math.log(cost)) for size, cost in points]
    slope, _ = statistics.linear_regression([x for x, _ in logs], [y for _, y in logs])
    return slope


def versions() -> str:
    """The software and the machine of the measurement."""
    with psycopg.connect(os.environ["KCOVER_DATABASE_URL"]) as connection:
        postgres = connection.info.server_version // 10_000
    return ", ".join(
        (
            f"Python {platform.python_version()}",
            f"Django {metadata.version('django')}",
            f"PostgreSQL {postgres}",
            f"{os.cpu_count()} cores {platform.machine()}",
        )
    )


def write(result: Result) -> None:
    """Writes the result to the page and replaces an earlier one of the same name."""
    page = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else HEAD
    section = "\n".join(
        (
            f"## {result.name}",
            "",
            f"`{result.command}` · {datetime.now(UTC):%Y-%m-%d} · {versions()}",
            "",
            result.conditions,
            "",
            "| what | figure | goal |",
            "|---|---|---|",
            *(f"| {label} | {figure} | {goal} |" for label, figure, goal in result.rows),
            "",
        )
    )
    pattern = re.compile(rf"^## {re.escape(result.name)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    page = pattern.sub(lambda _: section + "\n", page) if pattern.search(page) else f"{page.rstrip()}\n\n{section}"
    RESULTS.write_text(page.rstrip() + "\n", encoding="utf-8")
