"""The kubelet and the container runtime of this node: do they answer?"""

import http.client
import pathlib
import socket
from collections.abc import Iterator, Sequence
from datetime import datetime

from agents.probes.finding import Finding, Observation, Severity, finding

HEALTHZ_ADDRESS = ("127.0.0.1", 10248)  # the kubelet's default address
RUNTIME_SOCKETS = (pathlib.Path("/run/containerd/containerd.sock"), pathlib.Path("/run/crio/crio.sock"))
TIMEOUT_SECONDS = 5.0


class KubeletProbe:
    """Reports nothing on a machine without a kubelet.

    The cluster also shows the portal that a kubelet is gone, so neither result is a fault by itself.
    """

    name = "kubelet"
    deadline_seconds = 30.0
    hang_severity = Severity.FAILURE

    def __init__(
        self,
        *,
        interval_seconds: float = 60.0,
        address: tuple[str, int] = HEALTHZ_ADDRESS,
        folder: pathlib.Path = pathlib.Path("/var/lib/kubelet"),
        runtimes: Sequence[pathlib.Path] = RUNTIME_SOCKETS,
    ) -> None:
        self.interval_seconds = interval_seconds
        self._address, self._folder, self._runtimes = address, folder, tuple(runtimes)

    def observe(self, now: datetime) -> Observation:
        if not (self._folder / "config.yaml").exists():
            return Observation()
        return Observation(findings=(self._kubelet(), *self._runtime()))

    def _kubelet(self) -> Finding:
        host, port = self._address
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            text = answer.read(200).decode(errors="replace").strip()
            return finding("kubelet", Severity.FAILURE.when(answer.status != 200), message=f"{answer.status} {text}")
        except (OSError, http.client.HTTPException) as error:
            return finding("kubelet", Severity.FAILURE, message=f"{host}:{port}: {error}")
        finally:
            connection.close()

    def _runtime(self) -> Iterator[Finding]:
        for path in self._runtimes:
            if not path.exists():
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
                line.settimeout(TIMEOUT_SECONDS)
                try:
                    line.connect(str(path))
                    why = ""
                except OSError as error:
                    why = str(error)
            yield finding("container_runtime", Severity.FAILURE.when(bool(why)), device=path.stem, message=why)
