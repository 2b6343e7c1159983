"""Every server believes ``KCOVER_TRUSTED_PROXIES`` alone about who a client is, whichever machine it connects from."""

import http.client
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kcover_portal.operate.management.commands import serve
from tests.portal.operate.raw_http import run_server
from tests.waiting import HANG_SECONDS

pytestmark = pytest.mark.slow


def command(name: str, fd: int) -> list[str]:
    if name == "standalone":
        return [sys.executable, "manage.py", "standalone", "--fd", str(fd)]
    children = {child.name: list(child.command) for child in serve.processes(front=fd, back=fd, schedule_file="")}
    return children[name]


@pytest.mark.parametrize("name", ["web", "live", "standalone"])
@pytest.mark.parametrize("is_named", [False, True])
def test_this_machine_is_a_proxy_only_if_it_is_named(tmp_path: Path, name: str, is_named: bool) -> None:
    """Whoever runs a program here must not pass for the monitoring system, or for a person who fails to sign in."""
    settings = {
        "KCOVER_TRUSTED_PROXIES": "127.0.0.1" if is_named else "none",
        "KCOVER_METRICS_NETWORKS": "192.0.2.0/24",
        "KCOVER_DATABASE_URL": f"sqlite:///{tmp_path}/k.sqlite3",
        "KCOVER_SIGNING_KEY": f"{tmp_path}/signing.pem",
    }
    with (
        run_server(lambda fd: command(name, fd), **settings) as port,
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)) as client,
    ):
        client.request("GET", "/metrics", headers={"X-Forwarded-For": "192.0.2.7"})
        answer = client.getresponse()
        # Without tables, as before a migration, there is nothing to tell; but whoever gets that far was let in.
        assert (answer.status != 403) == is_named, answer.read()
