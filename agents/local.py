"""This node's own addresses: ``/metrics`` for Prometheus and ``/healthz`` for the kubelet. Read-only, by default on
loopback only."""

import json
import logging
import pathlib
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from agents import VERSION
from agents.loop import Agent
from kcover import autopilot
from kcover.fault import Check, Inventory

log = logging.getLogger(__name__)

Page = tuple[str, str, str]  # status, kind, text
OK = "200 OK"
NOT_FOUND: Page = "404 Not Found", "text/plain", "there is /healthz and /metrics\n"
MAX_LINE, MAX_HEADERS = 8192, 100
STUCK = timedelta(minutes=2)  # without a look at the kernel log the agent is of no use


class Server:
    """Answers in threads of its own until it is closed. Raises OSError where the address is taken.

    A line of HTTP by hand: the standard library's server would be a fortieth of all the memory the agent may take.
    """

    def __init__(self, agent: Agent, address: tuple[str, int], *, late: Callable[[], Iterable[str]]) -> None:
        """``late``: the probes that do not come back."""
        pages = {"/healthz": lambda: _healthz(agent, tuple(late())), "/metrics": lambda: _metrics(agent, tuple(late()))}

        class Handler(socketserver.StreamRequestHandler):
            timeout = 10.0

            def handle(self) -> None:
                words = self.rfile.readline(MAX_LINE).decode("latin-1").split()
                for _ in range(MAX_HEADERS):
                    if self.rfile.readline(MAX_LINE) in (b"\r\n", b"\n", b""):
                        break
                if len(words) != 3:
                    return
                page = pages.get(words[1].partition("?")[0]) if words[0] in ("GET", "HEAD") else None
                status, kind, text = page() if page else NOT_FOUND
                body = text.encode()
                head = (
                    f"HTTP/1.1 {status}",
                    f"Content-Type: {kind}",
                    f"Content-Length: {len(body)}",
                    "Connection: close",
                )
                self.wfile.write("\r\n".join((*head, "", "")).encode() + (b"" if words[0] == "HEAD" else body))

        class Listener(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                log.debug("local: %s went away", client_address)

        self._server = Listener(address, Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(2.0,), name="local", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _healthz(agent: Agent, late: tuple[str, ...]) -> Page:
    """503 only where a restart would help: the portal being away, or a driver that hangs, is no fault of the agent."""
    now = agent.clock()
    stuck = agent.observed_at is not None and now - agent.observed_at > STUCK
    answer = {
        "status": "stuck" if stuck else "ok",
        "node": agent.config.node,
        "version": VERSION,
        "spooled": agent.spool.waiting,
        "unwritten": agent.spool.unwritten,
        "reported_at": _stamp(agent.reported_at),
        "late_probes": list(late),
    }
    return ("503 Service Unavailable" if stuck else OK), "application/json", json.dumps(answer) + "\n"


def _stamp(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _metrics(agent: Agent, late: tuple[str, ...]) -> Page:
    lines = [*_own(agent, late), *_checks(agent.results.values()), *_autopilot(agent)]
    return OK, "text/plain; version=0.0.4; charset=utf-8", "\n".join(lines) + "\n"


def _own(agent: Agent, late: tuple[str, ...]) -> Iterator[str]:
    yield "# TYPE kcover_agent_info gauge"
    yield f"kcover_agent_info{_labels(version=VERSION, node=agent.config.node)} 1"
    yield "# HELP kcover_agent_spooled_reports Reports that the portal does not have yet."
    yield "# TYPE kcover_agent_spooled_reports gauge"
    yield f"kcover_agent_spooled_reports {agent.spool.waiting}"
    yield "# HELP kcover_agent_unwritten_reports Of these, in memory only: the disk refused them."
    yield "# TYPE kcover_agent_unwritten_reports gauge"
    yield f"kcover_agent_unwritten_reports {agent.spool.unwritten}"
    yield "# HELP kcover_agent_dropped_reports_total Reports without faults that made room for others."
    yield "# TYPE kcover_agent_dropped_reports_total counter"
    yield f"kcover_agent_dropped_reports_total {agent.spool.dropped}"
    if agent.reported_at is not None:
        yield "# TYPE kcover_agent_last_report_timestamp_seconds gauge"
        yield f"kcover_agent_last_report_timestamp_seconds {agent.reported_at.timestamp():.3f}"
    yield "# HELP kcover_agent_late_probes Probes that are past their deadline."
    yield "# TYPE kcover_agent_late_probes gauge"
    yield f"kcover_agent_late_probes {len(late)}"


def _checks(results: Iterable[Check]) -> Iterator[str]:
    yield "# HELP kcover_agent_check The latest result of a check; the label says which, the value is 1."
    yield "# TYPE kcover_agent_check gauge"
    for check in list(results):
        yield f"kcover_agent_check{_labels(check=check.name, device=check.device, status=check.status)} 1"


def _autopilot(agent: Agent) -> Iterator[str]:
    """What broke or was skipped has no value: it is neither 0 nor 1."""
    yield "# TYPE autopilot_health_checks gauge"
    cpu = _cpu_model()
    inventory = agent.inventory or Inventory()
    models = {gpu.uuid: gpu.model for gpu in inventory.gpus}
    usual = next(iter(models.values()), "")
    for check in list(agent.results.values()):
        value = autopilot.metric_value(check.name, check.status, check.value)
        if value is None:
            continue
        labels = _labels(
            health=autopilot.NAMES[check.name].metric,
            node=agent.config.node,
            cpumodel=cpu,
            gpumodel=models.get(check.device, usual),
            deviceid=check.device,
        )
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
