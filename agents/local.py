"""This node's own addresses: ``/metrics`` for Prometheus and ``/healthz`` for the kubelet. Read-only, by default on
loopback only."""

import json
import logging
import pathlib
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agents import VERSION
from agents.loop import Agent
from kcover.fault import Check, Inventory

log = logging.getLogger(__name__)

STUCK = timedelta(minutes=2)  # without a look at the kernel log the agent is of no use
# Autopilot's gauge, for dashboards that there are: our check -> its name, and whether it shows the measured value.
AUTOPILOT = {
    "pciebw": ("pciebw", True),
    "remapped": ("remapped", False),
    "dcgm": ("dcgm", False),
    "ping": ("ping", False),
    "gpupower": ("power-slowdown", False),
    "gpumem": ("gpumem", False),
}


class Server:
    """Answers in threads of its own until it is closed. Raises OSError where the address is taken."""

    def __init__(self, agent: Agent, address: tuple[str, int], *, late: Callable[[], Iterable[str]]) -> None:
        """``late``: the probes that do not come back."""
        pages = {"/healthz": lambda: _healthz(agent, tuple(late())), "/metrics": lambda: _metrics(agent, tuple(late()))}

        class Handler(BaseHTTPRequestHandler):
            server_version = f"kcover-agent/{VERSION}"
            timeout = 10.0

            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                status, kind, text = page() if page else (404, "text/plain", "there is /healthz and /metrics\n")
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                log.debug("%s: %s", self.address_string(), format % args)

        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
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


Page = tuple[int, str, str]


def _healthz(agent: Agent, late: tuple[str, ...]) -> Page:
    """503 only where a restart would help: the portal being away, or a driver that hangs, is no fault of the agent."""
    now = agent.clock()
    stuck = agent.observed_at is not None and now - agent.observed_at > STUCK
    answer = {
        "status": "stuck" if stuck else "ok",
        "node": agent.config.node,
        "version": VERSION,
        "spooled": agent.spool.waiting,
        "reported_at": _stamp(agent.reported_at),
        "late_probes": list(late),
    }
    return (503 if stuck else 200), "application/json", json.dumps(answer) + "\n"


def _stamp(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def _metrics(agent: Agent, late: tuple[str, ...]) -> Page:
    lines = [*_own(agent, late), *_checks(agent.results.values()), *_autopilot(agent)]
    return 200, "text/plain; version=0.0.4; charset=utf-8", "\n".join(lines) + "\n"


def _own(agent: Agent, late: tuple[str, ...]) -> Iterator[str]:
    yield "# TYPE kcover_agent_info gauge"
    yield f"kcover_agent_info{_labels(version=VERSION, node=agent.config.node)} 1"
    yield "# HELP kcover_agent_spooled_reports Reports that the portal does not have yet."
    yield "# TYPE kcover_agent_spooled_reports gauge"
    yield f"kcover_agent_spooled_reports {agent.spool.waiting}"
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
        name, measured = AUTOPILOT.get(check.name, ("", False))
        if not name or check.status in ("error", "skipped"):
            continue
        value = check.value if measured else float(check.status == "fail")
        labels = _labels(
            health=name,
            node=agent.config.node,
            cpumodel=cpu,
            gpumodel=models.get(check.device, usual),
            deviceid=check.device,
        )
        if value is not None:
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
