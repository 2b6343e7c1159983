"""Every measurement of ``python -m bench`` runs, at a small scale. Its figures are not asserted.

A run has a fifteenth of them (``tests.share``); `make verify` has all.
"""

import os
import subprocess
import sys

import pytest

from bench.__main__ import MEASUREMENTS
from tests.share import in_share
from tests.story.product import ROOT

SHARES = 15
SCALE = 0.001
CHOSEN = [name for number, name in enumerate(MEASUREMENTS) if in_share(number, shares=SHARES)]

pytestmark = [
    pytest.mark.real_clock("measurements start whole products"),
    pytest.mark.skipif(
        not os.environ.get("KCOVER_DATABASE_URL", "").startswith("postgres"),
        reason="needs the PostgreSQL that `make test` starts",
    ),
]


@pytest.mark.parametrize("name", CHOSEN)
def test_a_measurement_has_figures(name):
    measured = MEASUREMENTS[name](SCALE)
    assert measured.command == f"make bench ARGS={name}"
    assert measured.rows
    assert [row for row in measured.rows if not row[0] or not row[1]] == []


def run_bench(*arguments):
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_command_prints_a_measurement_and_writes_no_file():
    before = (ROOT / "bench" / "RESULTS.md").read_bytes()
    ended = run_bench("pair-verdicts", "--scale", str(SCALE))
    assert ended.returncode == 0, ended.stderr
    assert "make bench ARGS=pair-verdicts" in ended.stdout
    assert (ROOT / "bench" / "RESULTS.md").read_bytes() == before


@pytest.mark.parametrize("arguments", [("no-such-measurement",), ("idle", "--scale", "0"), ("idle", "--scale", "2")])
def test_the_command_refuses_unknown_arguments(arguments):
    assert run_bench(*arguments).returncode == 2
