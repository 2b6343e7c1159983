"""5,000 agents of a new DaemonSet start within a minute; then ``live`` restarts under their polls."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agents.supervisor import LONG_POLL_SECONDS
from bench import scene
from bench.agents import thousand
from bench.result import Result, percentile, scaled
from bench.rollout import agents
from bench.rollout.others import Others
from tests.story import product as products
from tests.story.product import ROOT, Product

AGENTS = 5_000
START_SECONDS = 60.0  # in which the agents start
QUIET_SECONDS = 60.0
BEATING, FRESH = 500, 600  # nodes beside them: with heartbeats, and for one fault each
MIN_FRESH = 120  # a fault occurs each second, however few the nodes
HEARTBEAT_SECONDS = 30.0
SECONDS_AFTER = 15.0  # the others are measured so long after the polls are open again
NODES_PER_SPARE = 8
NAMESPACE, ACCOUNT = "kcover-system", "kcover-agent"
AUDIENCE = "kcover-portal"
LATE_SECONDS = 600.0
MIN_SECONDS = 1.0
MIN_POLL_SECONDS = 2.0  # after an answer within a second, an agent pauses


class Clients:
    """The process of the agents."""

    def __init__(self, plan: agents.Plan) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.rollout.agents"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._write(json.dumps(asdict(plan)))

    def wait(self, word: str) -> None:
        """Waits until the agents have come so far."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != f"{word}\n":
            raise RuntimeError(f"the agents ended with {self._process.wait()}")

    def restart(self) -> None:
        """Counts from now which polls are open again."""
        self._write("restart")

    def stop(self) -> agents.Outcome:
        self._write("stop")
        assert self._process.stdout is not None
        found = json.loads(self._process.stdout.read())
        self._end()
        for name in ("refused", "refused_later"):
            found[name] = Counter({int(status): count for status, count in found[name].items()})
        return agents.Outcome(**found)

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def _end(self) -> None:
        """Waits for the process and closes its pipes."""
        with self._process:
            pass

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")


def measure(scale: float) -> Result:
    """Twice on the same nodes: with the tokens of their pods, and with an enrolment token."""
    count, start = scaled(AGENTS, scale, least=20), scaled(START_SECONDS, scale, least=MIN_SECONDS)
    beating, fresh = scaled(BEATING, scale, least=20), scaled(FRESH, scale, least=MIN_FRESH)
    thousand.raise_file_limit()
    with tempfile.TemporaryDirectory() as folder, products.on_postgres(Path(folder)) as product:
        wanted = count + beating + fresh
        product.set_up(
            nodes=wanted + wanted // NODES_PER_SPARE + 8,
            policies=scene.CORDON,
            agents=False,
            simulator=["--no-workloads"],
            guards=json.dumps({**json.loads(products.FEW_NODES), "plans": {"limit": 10_000}}),
        )
        product.wait(lambda: len(scene.working_nodes(product)) >= wanted, "the nodes to be listed")
        names = scene.working_nodes(product)[:wanted]
        mine, rest = names[:count], names[count:]
        boots = {node: boot for node, boot in scene.boots(product).items() if node in set(mine)}
        others = Others(product, beating=rest[:beating], fresh=rest[beating:])
        with others.phase("quiet"):
            time.sleep(scaled(QUIET_SECONDS, scale, least=MIN_SECONDS))
        rows: list[tuple[str, str, str]] = []
        given = {"pod tokens": ("", _pod_tokens(product, mine)), "an enrolment token": (_enrolment(product), {})}
        for what, (token, tokens) in given.items():
            plan = agents.Plan(
                url=product.url,
                cluster="sim",
                token=token,
                tokens=tokens,
                boots=boots,
                seconds=start,
                heartbeat=HEARTBEAT_SECONDS,
                poll=scaled(LONG_POLL_SECONDS, scale, least=MIN_POLL_SECONDS),
            )
            rows += _roll_out(product, plan, others, what, after=scaled(SECONDS_AFTER, scale, least=MIN_SECONDS))
        rows += others.rows(product, seconds=LATE_SECONDS)
    return Result(
        name="Roll-out of a DaemonSet",
        command="make bench ARGS=rollout",
        conditions=f"{count:,} agents start within {start:.0f} s, enrol, send their inventory (8 GPUs) and "
        f"open a long poll; then heartbeats every {HEARTBEAT_SECONDS:.0f} s. They share a process, with the requests "
        f"and pauses of real agents. {beating} other nodes send 20 heartbeats and one fault per second; a fault is "
        "decided when its rescue is open. `live` (one process) is ended by SIGTERM and started again. live, worker, "
        "beat, watch and the simulated API server run beside them. The load average was "
        f"{os.getloadavg()[1]:.0f} on {os.cpu_count()} cores.",
        rows=rows,
    )


def _roll_out(
    product: Product, plan: agents.Plan, others: Others, what: str, *, after: float
) -> Iterator[tuple[str, str, str]]:
    meter = thousand.Meter(product)
    meter.begin()
    clients = Clients(plan)
    try:
        with others.phase(f"{what}, beside the roll-out"):
            clients.wait("enrolled")
        meter.sample()
        used = meter.used()
        log = product.folder / "live.log"
        before = len(log.read_text(errors="replace").splitlines())
        with others.phase(f"{what}, beside the restart"):
            stopped, ended, answered = _restart_live(product, clients)
            clients.wait("open")
            time.sleep(after)
        lines = len(log.read_text(errors="replace").splitlines()) - before
        outcome = clients.stop()
    finally:
        clients.kill()
    yield f"{what}: first start to last first report", f"{outcome.ended - outcome.began:.1f} s", "≤ 120 s"
    first = [percentile(outcome.enrolled, share) for share in (0.5, 0.99, 1.0)]
    yield f"{what}: start to first report, P50 / P99 / max", " / ".join(f"{one:.2f}" for one in first) + " s", ""
    yield f"{what}: refused and tried again", _statuses(outcome.refused), ""
    cores = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in used.items() if name in ("live", "PostgreSQL"))
    yield f"{what}: CPU of the roll-out", cores, ""
    reopened = sorted(outcome.reopened.values())
    yield f"{what}, restart: SIGTERM to the end of the process", f"{ended - stopped:.1f} s", ""
    yield f"{what}, restart: SIGTERM to the first answer", f"{answered - stopped:.1f} s", ""
    yield f"{what}, restart: SIGTERM to the last open poll", f"{reopened[-1] - stopped:.1f} s", "≤ 60 s"
    peak = max(Counter(int(at) for at in reopened).values())
    yield f"{what}, restart: most polls opened in a second", f"{peak:,}", ""
    yield f"{what}, restart: refused and tried again", _statuses(outcome.refused_later), ""
    yield f"{what}, restart: lines in the log of live", f"{lines:,}", "≤ 100"


def _restart_live(product: Product, clients: Clients) -> tuple[float, float, float]:
    """Returns the times of SIGTERM, of the end of the process, and of the first answer of the next one."""
    process = product.processes.pop("live")
    clients.restart()
    stopped = time.time()
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(timeout=60)
    ended = time.time()
    product.start("live")

    def answers() -> bool:
        with contextlib.suppress(OSError):
            return products.call("GET", product.url + "/healthz", timeout=60)[0] == 200
        return False

    product.wait(answers, "live to answer")
    return stopped, ended, time.time()


def _statuses(counted: Counter[int]) -> str:
    named = ((f"{status}" if status else "no answer", number) for status, number in sorted(counted.items()))
    return ", ".join(f"{number:,} x {name}" for name, number in named) or "0"


def _enrolment(product: Product) -> str:
    return (product.folder / "enrolment").read_text(encoding="utf-8").strip()


def _pod_tokens(product: Product, nodes: list[str]) -> dict[str, str]:
    """The tokens that kubelets would project into the pods of the DaemonSet."""
    _kube(product, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    _kube(product, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    return {node: _pod_token(product, node) for node in nodes}


def _pod_token(product: Product, node: str) -> str:
    metadata = {"name": f"agent-{node}", "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "kcover-agent"}}
    spec = {"nodeName": node, "serviceAccountName": ACCOUNT, "containers": [{"name": "agent", "image": "bench"}]}
    pod = _kube(product, f"/api/v1/namespaces/{NAMESPACE}/pods", {"metadata": metadata, "spec": spec})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": pod["metadata"]["uid"]}
    wanted = {"spec": {"audiences": [AUDIENCE], "boundObjectRef": bound}}
    made = _kube(product, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token", wanted)
    return str(made["status"]["token"])


def _kube(product: Product, path: str, body: Any) -> Any:
    status, answer = products.call("POST", product.sim + path, body, token=product.sim_token())
    assert status < 300 or status == 409, (path, status, answer)
    return answer
