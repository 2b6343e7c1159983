"""A real Prometheus and a real Alertmanager on free ports, for as long as a test runs.

`make test` installs them from Debian's packages (tools/system_packages.sh).
"""

import json
import shutil
import signal
import urllib.request
from typing import Any

import pytest

from tests import servers

PROMETHEUS, ALERTMANAGER = "prometheus", "prometheus-alertmanager"
OFTEN = "200ms"


def needs(*names: str) -> pytest.MarkDecorator:
    """Skips a test where one of these programs is missing."""
    missing = [name for name in names if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)} (Debian packages)")


class Monitor(servers.Server):
    """A server of the Prometheus project. It keeps nothing, so it is killed at the end."""

    stop_signal = signal.SIGKILL

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def write(self, name: str, config: dict[str, Any]) -> None:
        """A configuration file; JSON is YAML."""
        (self.folder / name).write_text(json.dumps(config), encoding="utf-8")


class Prometheus(Monitor):
    """It scrapes one exporter, and sends the alerts of one rule to Alertmanager. Both are HOST:PORT."""

    name = PROMETHEUS

    def __init__(self, *, exporter: str, alertmanager: str, rule: dict[str, Any]) -> None:
        super().__init__()
        self.write("rules.yml", {"groups": [{"name": "gpu", "rules": [rule]}]})
        config = {
            "global": {"scrape_interval": OFTEN, "scrape_timeout": OFTEN, "evaluation_interval": OFTEN},
            "scrape_configs": [{"job_name": "dcgm-exporter", "static_configs": [{"targets": [exporter]}]}],
            "rule_files": ["rules.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        }
        self.write("prometheus.yml", config)

    def command(self) -> list[str]:
        return [
            self.name,
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address={self.address}",
        ]

    def value(self, query: str) -> str | None:
        """The value of the first series of an instant query; None if there is none."""
        with urllib.request.urlopen(f"{self.url}/api/v1/query?query={query}", timeout=60) as answer:
            found = json.load(answer)["data"]["result"]
        return found[0]["value"][1] if found else None


class Alertmanager(Monitor):
    """It sends every alert to one webhook. ``token``: the file with its token, which is read for each request."""

    name = ALERTMANAGER

    def __init__(self, *, webhook: str) -> None:
        super().__init__()
        self.token = self.folder / "token"
        self.token.write_text("unknown", encoding="utf-8")
        sent = {
            "url": webhook,
            "send_resolved": True,
            "http_config": {"authorization": {"credentials_file": str(self.token)}},
        }
        route = {"receiver": "kcover", "group_by": ["alertname"], "group_wait": OFTEN, "group_interval": OFTEN}
        self.write("alertmanager.yml", {"route": route, "receivers": [{"name": "kcover", "webhook_configs": [sent]}]})

    def command(self) -> list[str]:
        return [
            self.name,
            f"--config.file={self.folder}/alertmanager.yml",
            f"--storage.path={self.folder}/data",
            f"--web.listen-address={self.address}",
            "--cluster.listen-address=",
        ]
