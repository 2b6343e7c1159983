"""Standard output of the commands if its reader is gone or missing: no traceback, and the exit status stays."""

import os
import subprocess
import sys

import pytest

XID = "[   12.3] NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n"
AGENTS = (sys.executable, "-m", "agents")
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as it is for users


@pytest.fixture(params=["reader gone", "closed"])
def run(request, tmp_path):
    """Runs a command whose output nobody reads; returns its status and its error output."""

    def gone(*arguments):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            command = [*AGENTS, *arguments]
            return subprocess.run(command, env=BUFFERED, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
        finally:
            os.close(writer)

    def closed(*arguments):
        command = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *AGENTS, *arguments]
        return subprocess.run(command, env=BUFFERED, stderr=subprocess.PIPE, timeout=60, check=False)

    def ended(*arguments):
        one = (gone if request.param == "reader gone" else closed)(*arguments)
        return one.returncode, one.stderr.decode()

    return ended


def test_a_scan(run, tmp_path):
    path = tmp_path / "kern.log"
    path.write_text(XID * 1000)
    assert run("scan", str(path)) == (0, "")


def test_a_check_keeps_its_verdict(run):
    assert run("check", ",".join(f"nonesuch{number}" for number in range(300))) == (3, "")


def test_help_and_version(run):
    (status, help), (other, version) = run("--help"), run("--version")
    assert (status, other) == (0, 0)
    assert "Traceback" not in help + version
    assert "Exception" not in help + version
