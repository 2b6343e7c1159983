"""The benchmark of a thousand agents detects losses: its comparison, and the lines that it writes."""

import random
from collections import Counter
from datetime import UTC, datetime

from agents.probes.log import repeats, sources
from bench.agents import fleet, thousand

NODES = ["gpu-1", "gpu-2"]
NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def test_a_line_that_is_missing_and_one_that_is_counted_twice_are_both_seen():
    written = Counter({("a", "62", "s"): 3, ("b", "62", "s"): 1})
    assert thousand.compare(written, dict(written)) == (0, 0)
    assert thousand.compare(written, {("a", "62", "s"): 2, ("b", "62", "s"): 2}) == (1, 1)
    assert thousand.compare(written, {("b", "62", "s"): 1, ("c", "1", ""): 4}) == (3, 4)


def test_agents_read_every_written_line_across_rotations(tmp_path):
    kernels = thousand.Kernels(tmp_path, NODES, rng=random.Random(1))
    logs = {node: sources.LogFile(tmp_path / node / fleet.KMSG) for node in NODES}
    read = Counter()

    def look():
        for node, log in logs.items():
            more = True
            while more:
                chunk = log.read(boot_id="b", now=NOW)
                more = chunk.more
                for fault in repeats.faults(chunk.records, now=NOW):
                    read[node, str(fault.code), fault.pci] += fault.count

    for turn in range(60):
        kernels.write_fault()
        if turn == 30:
            kernels.rotate()
        if turn % 7 == 0:
            look()
    look()
    assert read == kernels.written
    assert read.total() > 60  # there were storms
