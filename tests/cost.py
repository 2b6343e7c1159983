"""A pytest plug-in (``-p tests.cost``): the CPU and the time of each folder, and the dearest tests, after the run.

CPU is that of the process of the tests and of the processes that it started and waited for. That of a server that tests
share is counted to the test that ends it, and that of PostgreSQL and Redis to none.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

NAME = "cost"
DEAREST = 30

_began: dict[str, tuple[float, float]] = {}
_costs: dict[str, tuple[float, float]] = {}


def _cpu() -> float:
    return sum(os.times()[:4])


def pytest_runtest_logstart(nodeid: str) -> None:
    _began[nodeid] = (_cpu(), time.perf_counter())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Puts the cost so far into each report: the last one of a test, of its teardown, has all of it."""
    report: pytest.TestReport = yield
    cpu, wall = _began[item.nodeid]
    report.user_properties.append((NAME, (_cpu() - cpu, time.perf_counter() - wall)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, cost in report.user_properties:
        if name == NAME:
            _costs[report.nodeid] = cost


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    folders: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for nodeid, cost in _costs.items():
        folders[_folder(nodeid)].append(cost)
    terminalreporter.section("cost")
    for cpu, wall, folder, cases in sorted(_summed(folders), reverse=True):
        terminalreporter.write_line(f"{cpu:8.1f} s CPU {wall:8.1f} s {cases:6} {folder}")
    terminalreporter.write_line(f"{sum(cpu for cpu, _ in _costs.values()):8.1f} s CPU in all; the dearest tests:")
    for nodeid, (cpu, wall) in sorted(_costs.items(), key=lambda entry: -entry[1][0])[:DEAREST]:
        terminalreporter.write_line(f"{cpu:8.1f} s CPU {wall:8.1f} s {nodeid}")


def _summed(folders: dict[str, list[tuple[float, float]]]) -> Iterator[tuple[float, float, str, int]]:
    for folder, costs in folders.items():
        yield sum(cpu for cpu, _ in costs), sum(wall for _, wall in costs), folder, len(costs)


def _folder(nodeid: str) -> str:
    """The folder in tests/; in tests/portal, that of the app."""
    parts = PurePosixPath(nodeid.partition("::")[0]).parent.parts
    return "/".join(parts[: 3 if "portal" in parts else 2])
