"""The cost of an agent: memory and CPU while idle, and how fast it scans a saved kernel log."""

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.result import Result, scaled
from tests.agents import shim
from tests.agents.server import FakePortal
from tests.story.product import ROOT

SETTLE_SECONDS = 45.0  # until the first round of checks, 30 s after the start, has ended
IDLE_SECONDS = 60.0
MIN_SECONDS = 1.0
LINES = 5_000_000
FAULT_INTERVAL = 1_000  # lines per fault
RUNS = 5
PATTERN = "NVRM: Xid|SXid \\(PCI|fallen off the bus"
NOISE = (
    "[12345.678901] audit: type=1400 audit(1700000000.123:456): apparmor=DENIED operation=open profile=runc\n",
    "[12345.679012] eth0: renamed from veth1a2b3c4\n",
    "[12345.680123] cni0: port 7(veth9f8e7d6c) entered forwarding state\n",
    "[12345.681234] nfs: server storage-3.example not responding, still trying\n",
    "[12345.682345] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n",
)
FAULT = "[12346.000000] NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


def measure(scale: float) -> Result:
    """An idle agent with two GPUs (a fake NVML library under the real pynvml), then the log, alternating with grep."""
    idle, runs = scaled(IDLE_SECONDS, scale, least=MIN_SECONDS), scaled(RUNS, scale, least=1)
    with tempfile.TemporaryDirectory() as folder:
        settle = SETTLE_SECONDS * min(1.0, scale * 4)
        rows = _idle(Path(folder), settle=settle, seconds=idle)
        rows += _idle_with_tls(Path(folder), settle=settle)
        rows += _scan(Path(folder), lines=scaled(LINES, scale, least=FAULT_INTERVAL * 10), runs=runs)
    return Result(
        name="What an agent costs",
        command="make bench ARGS=agent-figures",
        conditions="`python -m agents` with a heartbeat every 30 s, the probes and checks of a node with two GPUs, and "
        f"a pipe in place of /dev/kmsg; CPU over {idle:.0f} s after its first checks. The log "
        f"is a file in the page cache, one fault in {FAULT_INTERVAL:,} lines; `python -m agents scan` (including its "
        f"start) and `grep -E` alternate, {runs} runs, median (and range).",
        rows=rows,
    )


def _idle(folder: Path, *, settle: float, seconds: float) -> list[tuple[str, str, str]]:
    portal = FakePortal()
    with _agent(folder / "plain", portal, settle=settle) as agent:
        before, began = agent.cpu_times(), time.monotonic()
        time.sleep(seconds)
        after, took = agent.cpu_times(), time.monotonic() - began
        memory = agent.memory_full_info()
    used = after.user + after.system - before.user - before.system
    return [
        ("resident memory", f"{memory.rss / 2**20:.1f} MiB", "≤ 24 MiB"),
        ("of which private (USS)", f"{memory.uss / 2**20:.1f} MiB", ""),
        ("CPU while idle", f"{used / took:.3%} of a core", "≤ 0.05 %"),
    ]


def _idle_with_tls(folder: Path, *, settle: float) -> list[tuple[str, str, str]]:
    portal = FakePortal()
    certificate = portal.speak_tls(folder)
    with _agent(folder / "tls", portal, settle=settle, KCOVER_AGENT_CA_FILE=str(certificate)) as agent:
        memory = agent.memory_full_info()
    return [
        ("resident memory, https:// portal", f"{memory.rss / 2**20:.1f} MiB", ""),
        ("of which private (USS), https:// portal", f"{memory.uss / 2**20:.1f} MiB", ""),
    ]


@contextlib.contextmanager
def _agent(folder: Path, portal: FakePortal, *, settle: float, **environ: str) -> Iterator[psutil.Process]:
    """An agent that has reported to the portal and was left alone for ``settle`` seconds. Ends both."""
    folder.mkdir()
    driver = shim.Driver(shim.build(folder), folder)
    kmsg = folder / "kmsg"
    os.mkfifo(kmsg)
    held = os.open(kmsg, os.O_RDWR | os.O_NONBLOCK)  # otherwise the agent reads a pipe without a writer
    portal.patience = 60.0
    settings = {
        "NODE_NAME": "gpu-1",
        "KCOVER_AGENT_URL": portal.url,
        "KCOVER_AGENT_TOKEN": "kca_x",
        "KCOVER_AGENT_KMSG": str(kmsg),
        "KCOVER_AGENT_SPOOL": str(folder / "spool"),
        "KCOVER_AGENT_GPUS": "2",
        "KCOVER_AGENT_LISTEN": "127.0.0.1:0",
    }
    process = subprocess.Popen(
        (sys.executable, "-m", "agents"),
        cwd=ROOT,
        env=os.environ | driver.environ | settings | environ,
        stderr=subprocess.DEVNULL,
    )
    try:
        portal.wait_for(lambda: any(report.inventory for report in portal.reports))
        time.sleep(settle)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(timeout=20)
        portal.close()
        os.close(held)


def _scan(folder: Path, *, lines: int, runs: int) -> list[tuple[str, str, str]]:
    log = folder / "kern.log"
    block = "".join([*itertools.islice(itertools.cycle(NOISE), FAULT_INTERVAL - 1), FAULT]).encode()
    with log.open("wb") as file:
        for _ in range(lines // FAULT_INTERVAL):
            file.write(block)
    agent_rates, grep_rates = [], []
    for _ in range(runs):
        agent_rates.append(lines / _timed(sys.executable, "-m", "agents", "scan", str(log)))
        grep_rates.append(lines / _timed("grep", "-a", "-E", PATTERN, str(log)))
    ratios = [grep / agent for grep, agent in zip(grep_rates, agent_rates, strict=True)]
    return [
        (f"a saved log of {lines:,} lines", f"{_millions(agent_rates)} M lines/s", "≥ 3 M/s"),
        ("grep -E, the same run", f"{_millions(grep_rates)} M lines/s", ""),
        ("grep is faster by", f"{statistics.median(ratios):.1f} x", "≤ 4 x"),
    ]


def _timed(*command: str) -> float:
    """Seconds. The output goes to a pipe, because grep stops at the first hit if it writes to /dev/null."""
    began = time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE)
    return time.monotonic() - began


def _millions(values: list[float]) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle / 1e6:.1f} ({low / 1e6:.1f} to {high / 1e6:.1f})"
