"""A pytest plug-in (``-p tests.repeat_red``): red tests of a whole run are repeated once, alone, after the run.

If all of them pass, the run is green and its summary names each as ``FLAKY: node id``. The run is red if more than
``MOST`` tests failed, or if one fails again. A flaky test is a defect: docs/testing.md lists each with its cause.
pytest-rerunfailures repeats a test at once, beside the tests that disturbed it.
"""

import subprocess
import sys

import pytest

MOST = 3
SECONDS = 900

_red: dict[str, None] = {}  # node ids in the order in which they failed
_flaky = pytest.StashKey[list[str]]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _red[report.nodeid] = None


@pytest.hookimpl(trylast=True)  # xdist has ended its workers by then
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Repeats the red tests in a process of their own. The servers of the run still answer."""
    config = session.config
    whole = session.exitstatus == pytest.ExitCode.TESTS_FAILED and not config.option.maxfail
    if hasattr(config, "workerinput") or not whole or not 0 < len(_red) <= MOST:
        return
    print(f"\n\nrepeated alone: {' '.join(_red)}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", *_red]
    again = subprocess.run(command, cwd=config.invocation_params.dir, check=False, timeout=SECONDS)
    if again.returncode == pytest.ExitCode.OK:
        config.stash[_flaky] = list(_red)
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for nodeid in config.stash.get(_flaky, []):
        terminalreporter.write_line(f"FLAKY: {nodeid}", yellow=True)
