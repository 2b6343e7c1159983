"""The HTTP server of the agent: ``/metrics`` for Prometheus and ``/healthz`` for the kubelet.

It is read-only and listens on loopback by default.
"""

import contextlib
import json
import logging
import pathlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from agents import VERSION
from agents.agent import Agent
from kcover.checks import autopilot
from kcover.faults.fault import Check, Inventory

log = logging.getLogger(__name__)

Page = tuple[str, str, str]  # status line, content type, text
OK = "200 OK"
NOT_FOUND: Page = "404 Not Found", "text/plain", "Not found. Available: /healthz, /metrics\n"
SHUTDOWN_POLL_SECONDS = 3600.0  # ``close`` wakes the thread; polling would be work of an idle agent
MAX_LINE_BYTES, MAX_HEADERS = 8192, 100
STUCK_AFTER = timedelta(minutes=2)  # an agent that has not read the kernel log for this long must be restarted


class MetricsServer:
    """Serves requests in its own threads until it is closed. Raises OSError if the address is in use.

    HTTP is parsed by hand: the standard library's server would take a fortieth of the memory the agent is allowed.
    """

    def __init__(self, agent: Agent, address: tuple[str, int], *, late_probes: Callable[[], Iterable[str]]) -> None:
        """``late_probes`` returns the names of probes past their deadline."""
        pages = {
            "/healthz": lambda: _healthz(agent, tuple(late_probes())),
            "/metrics": lambda: _metrics(agent, tuple(late_probes())),
        }

        class Handler(socketserver.StreamRequestHandler):
            timeout = 10.0

            def handle(self) -> None:
                request = self.rfile.readline(MAX_LINE_BYTES).decode("latin-1").split()
                for _ in range(MAX_HEADERS):
                    if self.rfile.readline(MAX_LINE_BYTES) in (b"\r\n", b"\n", b""):
                        break
                if len(request) != 3:
                    return
                page = pages.get(request[1].partition("?")[0]) if request[0] in ("GET", "HEAD") else None
                status, kind, text = page() if page else NOT_FOUND
                body = text.encode()
                head = (
                    f"HTTP/1.1 {status}",
                    f"Content-Type: {kind}",
                    f"Content-Length: {len(body)}",
                    "Connection: close",
                )
                self.wfile.write("\r\n".join((*head, "", "")).encode() + (b"" if request[0] == "HEAD" else body))

        class Listener(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                log.debug("metrics: client %s disconnected", client_address)

        self._server = Listener(address, Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(SHUTDOWN_POLL_SECONDS,), name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The TCP port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _healthz(agent: Agent, late_probes: tuple[str, ...]) -> Page:
    """503 only if a restart would help. It does not help if the portal is away or the driver hangs."""
    now = agent.clock()
    stuck = agent.observed_at is not None and now - agent.observed_at > STUCK_AFTER
    answer = {
        "status": "stuck" if stuck else "ok",
        "node": agent.config.node,
        "version": VERSION,
        "spooled": agent.spool.waiting,
        "unwritten": agent.spool.unwritten,
        "reported_at": _stamp(agent.reported_at),
        "late_probes": list(late_probes),
    }
    return ("503 Service Unavailable" if stuck else OK), "application/json", json.dumps(answer) + "\n"


def _stamp(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _metrics(agent: Agent, late_probes: tuple[str, ...]) -> Page:
    lines = [*_agent_metrics(agent, late_probes), *_check_metrics(agent.results.values()), *_autopilot_metrics(agent)]
    return OK, "text/plain; version=0.0.4; charset=utf-8", "\n".join(lines) + "\n"


def _agent_metrics(agent: Agent, late_probes: tuple[str, ...]) -> Iterator[str]:
    yield "# TYPE kcover_agent_info gauge"
    yield f"kcover_agent_info{_labels(version=VERSION, node=agent.config.node)} 1"
    yield "# HELP kcover_agent_spooled_reports Reports that the portal has not acknowledged."
    yield "# TYPE kcover_agent_spooled_reports gauge"
    yield f"kcover_agent_spooled_reports {agent.spool.waiting}"
    yield "# HELP kcover_agent_unwritten_reports Unacknowledged reports that could not be written to disk."
    yield "# TYPE kcover_agent_unwritten_reports gauge"
    yield f"kcover_agent_unwritten_reports {agent.spool.unwritten}"
    yield "# HELP kcover_agent_dropped_reports_total Reports without faults that were dropped to make room for others."
    yield "# TYPE kcover_agent_dropped_reports_total counter"
    yield f"kcover_agent_dropped_reports_total {agent.spool.dropped}"
    if agent.reported_at is not None:
        yield "# TYPE kcover_agent_last_report_timestamp_seconds gauge"
        yield f"kcover_agent_last_report_timestamp_seconds {agent.reported_at.timestamp():.3f}"
    yield "# HELP kcover_agent_late_probes Probes past their deadline."
    yield "# TYPE kcover_agent_late_probes gauge"
    yield f"kcover_agent_late_probes {len(late_probes)}"


def _check_metrics(results: Iterable[Check]) -> Iterator[str]:
    yield "# HELP kcover_agent_check The latest result of a check, in the label status; the value is 1."
    yield "# TYPE kcover_agent_check gauge"
    for check in list(results):
        yield f"kcover_agent_check{_labels(check=check.name, device=check.device, status=check.status)} 1"


def _autopilot_metrics(agent: Agent) -> Iterator[str]:
    """Results of checks as Autopilot's metric, with its labels: ``deviceid`` is the GPU's index, ``0`` for gpumem, the
    peer of a ping, and empty for dcgm.

    Those without a value (skipped, error) are left out: they are neither 0 nor 1.
    """
    yield "# TYPE autopilot_health_checks gauge"
    cpu = _cpu_model()
    gpus = {gpu.uuid: gpu for gpu in (agent.inventory or Inventory()).gpus}
    default_model = next((gpu.model for gpu in gpus.values()), "")
    gauges: dict[str, float] = {}
    for check in list(agent.results.values()):
        value = autopilot.metric_value(check.name, check.status, check.value)
        if value is None or (check.name == "dcgm" and check.device):
            continue
        gpu = gpus.get(check.device)
        device = str(gpu.index) if gpu else check.device
        labels = _labels(
            health=autopilot.CHECKS[check.name].metric,
            node=agent.config.node,
            cpumodel=cpu,
            gpumodel=gpu.model if gpu else default_model,
            deviceid="0" if check.name == "gpumem" else device,
        )
        gauges[labels] = max(value, gauges.get(labels, value))  # gpumem has one gauge for all GPUs
    for labels, value in gauges.items():
        yield f"autopilot_health_checks{labels} {value:g}"


def _cpu_model() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _labels(**labels: str) -> str:
    def quoted(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{quoted(value)}"' for name, value in labels.items()) + "}"
