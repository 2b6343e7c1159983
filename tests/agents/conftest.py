import json
import os
import subprocess
import sys

import pytest

from tests.agents import shim
from tests.agents.server import FakePortal
from tests.agents.tools import Tools


@pytest.fixture
def portal():
    portal = FakePortal()
    yield portal
    portal.close()


@pytest.fixture
def authority(portal, tmp_path):
    """Makes the portal speak TLS; the file with the certificate, for the name localhost."""
    try:
        return portal.speak_tls(tmp_path)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl cannot make a certificate here")


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """NVIDIA's libraries without a GPU."""
    return shim.build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def driver(libraries, tmp_path):
    return shim.Driver(libraries, tmp_path)


@pytest.fixture
def ask(driver):
    """Runs a piece of Python in a process that sees the shim's GPUs; returns what it prints, as JSON."""

    def run(code, **environ):
        command = (sys.executable, "-c", f"import json\n{code}")
        ended = subprocess.run(
            command, env=os.environ | driver.environ | environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    return run


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A node without any tool; the test adds those it has."""
    return Tools(tmp_path, monkeypatch)
