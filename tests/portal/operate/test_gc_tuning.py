"""Tests of kcover_portal/config/gc_tuning.py, in processes that end."""

import subprocess
import sys

import pytest

from kcover_portal.config import gc_tuning

ENDS = """
import os, runpy, sys

class Ring:
    def __init__(self):
        self.itself = self
    def __del__(self, write=os.write):
        write(1, b"searched")

ring = Ring()
"""
TUNED = """
runpy.run_path(sys.argv[1])["collect_rarely"]()
"""


@pytest.mark.parametrize(("program", "wanted"), [(ENDS + TUNED, ""), (ENDS, "searched")])
def test_a_process_that_ends_is_not_searched_for_rings(program: str, wanted: str) -> None:
    command = [sys.executable, "-c", program, gc_tuning.__file__]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == wanted
