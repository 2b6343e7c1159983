"""Whether the kubelet and the container runtime of this node answer."""

import http.client
import pathlib
import socket
from collections.abc import Iterator, Sequence
from datetime import datetime

from agents.probes.finding import Finding, Reading, finding

HEALTHZ = ("127.0.0.1", 10248)  # the kubelet's default
RUNTIMES = (pathlib.Path("/run/containerd/containerd.sock"), pathlib.Path("/run/crio/crio.sock"))
TIMEOUT = 5.0


class KubeletProbe:
    """An ``agents.probes.finding.Probe``. Says nothing on a machine without a kubelet; the portal hears of a kubelet
    that is gone from the cluster as well, so neither is a fault by itself."""

    name = "kubelet"
    deadline = 30.0
    hung_is_fault = False

    def __init__(
        self,
        *,
        every: float = 60.0,
        address: tuple[str, int] = HEALTHZ,
        folder: pathlib.Path = pathlib.Path("/var/lib/kubelet"),
        runtimes: Sequence[pathlib.Path] = RUNTIMES,
    ) -> None:
        self.every = every
        self._address, self._folder, self._runtimes = address, folder, tuple(runtimes)

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``."""
        if not (self._folder / "config.yaml").exists():
            return Reading()
        return Reading(findings=(self._kubelet(), *self._runtime()))

    def _kubelet(self) -> Finding:
        host, port = self._address
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        try:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            said = answer.read(200).decode(errors="replace").strip()
            return finding("kubelet", answer.status != 200, message=f"{answer.status} {said}")
        except (OSError, http.client.HTTPException) as error:
            return finding("kubelet", True, message=f"{host}:{port}: {error}")
        finally:
            connection.close()

    def _runtime(self) -> Iterator[Finding]:
        for path in self._runtimes:
            if not path.exists():
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(TIMEOUT)
                try:
                    line.connect(str(path))
                    why = ""
                except OSError as error:
                    why = str(error)
            yield finding("container_runtime", bool(why), device=path.stem, message=why)
