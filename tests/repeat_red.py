"""A pytest plug-in (``-p tests.repeat_red``): red tests of a whole run are repeated once, alone, after the run.

If all of them pass, the run is green and its summary names each as ``FLAKY: node id``. The run is red if more than
``MOST`` tests failed, or if one fails again. A flaky test is a defect: docs/testing.md lists each with its cause.
pytest-rerunfailures repeats a test at once, beside the tests that disturbed it.
"""

import os
import subprocess
import sys

import pytest

from tests import databases

MOST = 3
SECONDS = 900

_red: dict[str, str] = {}  # node ids in the order in which they failed, with their database
_flaky = pytest.StashKey[list[str]]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        worker = getattr(report, "node", None)  # of xdist
        _red[report.nodeid] = databases.of_worker(worker.gateway.id) if worker else databases.POSTGRES


@pytest.hookimpl(trylast=True)  # xdist has ended its workers by then
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Repeats the red tests, each on its database, in processes of their own. The servers of the run still answer."""
    config = session.config
    whole = session.exitstatus == pytest.ExitCode.TESTS_FAILED and not config.option.maxfail
    if hasattr(config, "workerinput") or not whole or not 0 < len(_red) <= MOST:
        return
    print(f"\n\nrepeated alone: {' '.join(_red)}", flush=True)
    if all(_passes(config, database) for database in dict.fromkeys(_red.values())):
        config.stash[_flaky] = list(_red)
        session.exitstatus = pytest.ExitCode.OK


def _passes(config: pytest.Config, database: str) -> bool:
    red = [nodeid for nodeid, its_database in _red.items() if its_database == database]
    command = [sys.executable, "-m", "pytest", "-p", "tests.isolation", "-q", *red]
    environment = {**os.environ, databases.REPEATED_ON: database}
    directory = config.invocation_params.dir
    ended = subprocess.run(command, cwd=directory, env=environment, check=False, timeout=SECONDS)
    return ended.returncode == pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for nodeid in config.stash.get(_flaky, []):
        terminalreporter.write_line(f"FLAKY: {nodeid}", yellow=True)
