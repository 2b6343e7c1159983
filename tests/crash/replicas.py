"""The product with two of every process, behind what stands for a load balancer, and an API server that can be away."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests import servers
from tests.crash.installation import Installation
from tests.crash.relay import Relay

KINDS = ("web", "live", "worker", "beat", "watch")
LISTENING = ("web", "live")
THREADS = "16"  # of each worker: all processes together must fit PostgreSQL's connections


class Replicas(Installation):
    """Pages and REST come by the relay of ``web``, agents by the relay of ``live``, the portal's own calls by ``api``.

    The simulator is not behind a relay for the test itself, nor is its Redfish service.
    """

    def __init__(self, folder: Path, **parts: Any) -> None:
        super().__init__(folder, **parts)
        self.names = [f"{kind}-{number}" for kind in KINDS for number in (1, 2)]
        listening = [name for name in self.names if name.partition("-")[0] in LISTENING]
        self._kept = {name: servers.reserved_port() for name in listening}
        self.ports = {name: kept.getsockname()[1] for name, kept in self._kept.items()}
        web, live = (Relay(*(port for name, port in self.ports.items() if name.startswith(kind))) for kind in LISTENING)
        self._relays = [web, live]
        self.url, self.agents_url = web.url, live.url
        self.environment |= {"KCOVER_WORKERS": THREADS, "KCOVER_PUBLIC_URL": self.url}

    def reached_by(self, kubeconfig: Path) -> Path:
        """The simulator's kubeconfig with the address of a relay."""
        config = json.loads(kubeconfig.read_text(encoding="utf-8"))
        (cluster,) = (one["cluster"] for one in config["clusters"])
        self._api = Relay(urlsplit(cluster["server"]).port or 0)
        self._relays.append(self._api)
        cluster["server"] = self._api.url
        relayed = kubeconfig.with_name("kubeconfig-relayed")
        relayed.write_text(json.dumps(config), encoding="utf-8")
        return relayed

    def restart(self, name: str) -> None:
        """Kills a process and starts it again."""
        self.kill(name)
        self.start(name)

    def restart_redis(self) -> None:
        """Kills Redis, which keeps nothing, and starts it again."""
        self._broker.kill()
        self._broker.start()

    def restart_postgres(self) -> None:
        """Ends PostgreSQL as a crash would, and starts it again: it recovers from its log."""
        self._database.abort()
        self._database.start()

    def take_api_away(self, seconds: float) -> None:
        """Cuts the portal's connections to the API server, and refuses new ones for so long."""
        self._api.close()
        time.sleep(seconds)
        self._api.open()

    def stop(self) -> None:
        """Ends everything, the relays last."""
        try:
            super().stop()
        finally:
            while self._relays:
                self._relays.pop().stop()
            for kept in self._kept.values():
                kept.close()
