"""What an idle agent imports, as a process: it runs on every node, and each module stays in its memory."""

import ctypes
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from agents.deferred_imports import DEFERRED_MODULES
from kcover.faults.fault import Command

pytestmark = pytest.mark.slow

# Prints the names of the modules that the agent imported until SIGTERM ended it.
PROGRAM = """
import sys
before = set(sys.modules)
from agents.__main__ import main
main([])
import json
print(json.dumps([name for name in set(sys.modules) - before if type(sys.modules[name]).__name__ != "_DeferredModule"]))
"""
OPENSSL = {"ssl", "_ssl", "hashlib", "_hashlib"}
UNUSED = {
    *DEFERRED_MODULES,
    *("_bz2", "_lzma", "_ssl", "_hashlib", "ast", "dis", "gettext"),
    *("asyncio", "concurrent", "http.server", "logging.config", "multiprocessing", "urllib.request", "yaml"),
    *("agents.check", "agents.command_line", "agents.scan"),
}


class Agent:
    def __init__(self, folder, portal):
        self.portal = portal
        (folder / "kern.log").touch()
        self.settings = {
            "NODE_NAME": "gpu-1",
            "KCOVER_AGENT_URL": portal.url,
            "KCOVER_AGENT_TOKEN": "kca_x",
            "KCOVER_AGENT_KMSG": str(folder / "kern.log"),
            "KCOVER_AGENT_SPOOL": str(folder / "spool"),
            "KCOVER_AGENT_INTERVAL": "0.5",
            "KCOVER_AGENT_LISTEN": "127.0.0.1:0",
        }

    def modules_until(self, condition, **environ):
        """The modules that the agent imported until the condition was true."""
        process = subprocess.Popen(
            (sys.executable, "-c", PROGRAM),
            env=os.environ | self.settings | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            self.portal.wait_for(condition)
            process.terminate()
            printed, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        return set(json.loads(printed))

    def is_settled(self):
        """The first round of probes and three heartbeats are over."""
        checks = {check.name for report in list(self.portal.reports) for check in report.checks}
        inventories = [report.inventory for report in list(self.portal.reports) if report.inventory]
        return bool({"clock", "disk", "kernel_log"} <= checks and inventories and len(self.portal.reports) >= 6)


def has_driver():
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_driver(), reason="this machine has the library of the NVIDIA driver")
def test_without_gpus_and_tls(tmp_path, portal):
    agent = Agent(tmp_path, portal)
    imported = agent.modules_until(agent.is_settled)
    assert "agents.probes.gpu.nvml" in imported
    assert imported & (UNUSED | {"pynvml"}) == set()


def test_with_gpus(tmp_path, portal, driver):
    agent = Agent(tmp_path, portal)
    imported = agent.modules_until(
        lambda: agent.is_settled() and any(report.inventory.gpus for report in portal.reports if report.inventory),
        **driver.environ,
    )
    assert "pynvml" in imported
    assert imported & UNUSED == set()


def test_with_tls(tmp_path, portal, authority):
    agent = Agent(tmp_path, portal)
    imported = agent.modules_until(agent.is_settled, KCOVER_AGENT_CA_FILE=str(authority))
    assert "_ssl" in imported
    assert imported & (UNUSED - OPENSSL) == set()


def test_a_command_needs_a_digest(tmp_path, portal):
    agent = Agent(tmp_path, portal)
    now = datetime.now(UTC)
    portal.commands = [
        Command(
            id="c1", kind="run_check", args={"check": "ping"}, created_at=now, expires_at=now + timedelta(minutes=5)
        )
    ]
    imported = agent.modules_until(lambda: portal.results)
    assert "_hashlib" in imported
