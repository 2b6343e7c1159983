"""Faults in a running demo, one after the other: ``python -m bench.demo_soak --faults 60 --minutes 20``.

The demo (``make demo``) reads Loki, gpud and Prometheus and receives NVSentinel's events, and each of them tells of a
fault later than the agent. Every fault must be healed with one reboot. Reads the demo's database: set
``KCOVER_DATABASE_URL`` as the Makefile does. Prints the result as JSON. Exits with 1 if a node was rebooted twice for
one fault, or a rescue of a healthy machine failed. An incident that was closed before its machine's reboot counts, too.

``python -m tests.servers -- python -m bench.demo_soak --serve`` starts everything itself, each process on its own: the
demo's cluster and sources with ``serve``, on PostgreSQL and Redis.
"""

import argparse
import contextlib
import functools
import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import django

HARM = ("rebooted_twice", "failed_though_healthy", "closed_too_early")
CODES = (48, 62, 64)  # that the demo's policies reboot for
LAST_SECONDS = 300.0  # for the rescues that are open at the end
OPEN = ("held", "waiting", "running")
NODES = 200
# Sixty faults of three codes within minutes are a storm, which the guards would rightly hold.
NO_GUARDS = {name: {"enabled": False} for name in ("storm", "rate", "breaker")}


class Hurt(NamedTuple):
    """When a node was hurt, and the Xid."""

    at: datetime
    code: int


def main() -> int:
    """Injects the faults that the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo_soak", description=__doc__)
    parser.add_argument("--sim", default="http://127.0.0.1:8001", help="the simulator's address")
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", default="demo")
    parser.add_argument("--serve", action="store_true", help="start serve with the demo's cluster and sources")
    given = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kcover_portal.settings")
    os.environ.setdefault("KCOVER_DEMO_URL", given.sim)
    django.setup()
    with _served() if given.serve else contextlib.nullcontext():
        found = _soaked(given.sim, faults=given.faults, seconds=given.minutes * 60, chance=random.Random(given.seed))
    print(json.dumps(found, indent=1))
    return 1 if any(found[harm] for harm in HARM) or not found["healed"] else 0


def _soaked(sim: str, *, faults: int, seconds: float, chance: random.Random) -> dict[str, Any]:
    nodes: dict[str, Hurt] = {}
    for _ in range(faults):
        node, code = _idle_node(sim, chance, but=nodes), chance.choice(CODES)
        nodes[node] = Hurt(datetime.now(UTC), code)
        _ask(f"{sim}/sim/faults", {"node": node, "kind": "xid", "code": code})
        time.sleep(seconds / faults)
    deadline = time.monotonic() + LAST_SECONDS
    while time.monotonic() < deadline and _rescues(nodes, state__in=OPEN):
        time.sleep(1)
    return _result(sim, nodes)


@contextlib.contextmanager
def _served() -> Iterator[None]:
    """``serve``, which the demo's agents and sources reach, on the database and the broker of the environment."""
    from django.core.management import call_command  # noqa: PLC0415
    from django.utils import timezone  # noqa: PLC0415

    from kcover_portal.fleet.models import Cluster  # noqa: PLC0415
    from kcover_portal.fleet.services import cluster_settings  # noqa: PLC0415
    from kcover_portal.operate import demo  # noqa: PLC0415

    call_command("migrate", interactive=False, verbosity=0)
    with socket.create_server(("127.0.0.1", 0)) as listener, demo.alone():
        command = [sys.executable, "manage.py", "serve", "--fd", str(listener.fileno())]
        with (
            demo.start(port=listener.getsockname()[1], nodes=NODES, say=functools.partial(print, file=sys.stderr)),
            subprocess.Popen(command, pass_fds=[listener.fileno()], stdout=sys.stderr) as serve,
        ):
            try:
                cluster = Cluster.objects.get(name=demo.CLUSTER)
                cluster_settings.set_guards(cluster, NO_GUARDS, actor="soak", reason="", now=timezone.now())
                yield
            finally:
                serve.terminate()


def _ask(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=30) as answer:  # nosec B310
        return json.load(answer)


def _rescues(nodes: Iterable[str], **state: Any) -> list[Any]:
    from kcover_portal.rescue.models import Rescue  # noqa: PLC0415  Django must be set up first

    return list(Rescue.objects.filter(node__name__in=nodes, **state).select_related("node"))


def _idle_node(sim: str, chance: random.Random, *, but: Iterable[str]) -> str:
    """A node without a fault and without an open rescue, of those that had no fault here if there is one."""
    while True:
        busy = {rescue.node.name for rescue in _rescues([one["name"] for one in _nodes(sim)], state__in=OPEN)}
        free = [one["name"] for one in _nodes(sim) if one["gpus"] and one["ready"] and not one["faults"]]
        free = [name for name in free if name not in busy and name not in but]
        if free:
            return chance.choice(free)
        time.sleep(1)


def _nodes(sim: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _ask(f"{sim}/sim/nodes")["nodes"]
    return [one for one in found if not one["unschedulable"]]


def _closed_too_early(sim: str, nodes: dict[str, Hurt]) -> Iterator[str]:
    """The incidents that were closed before the reboot that ended their fault."""
    from django.db.models import Q  # noqa: PLC0415

    from kcover_portal.incidents.models import Incident  # noqa: PLC0415

    for node, (hurt, code) in nodes.items():
        boots = [datetime.fromisoformat(boot["at"]) for boot in _ask(f"{sim}/sim/nodes/{node}")["boots"]]
        healed = min((boot for boot in boots if boot > hurt), default=datetime.max.replace(tzinfo=UTC))
        rows = Incident.objects.filter(Q(code=str(code)) | Q(alias=str(code)), node__name=node, last_at__gte=hurt)
        for incident in rows.filter(closed_at__lt=healed):
            yield f"{incident.pk} {node} {incident.kind} {incident.code}"


def _result(sim: str, nodes: dict[str, Hurt]) -> dict[str, Any]:
    from kcover_portal.incidents.models import Occurrence  # noqa: PLC0415
    from kcover_portal.rescue.models import Step  # noqa: PLC0415

    rescues = _rescues(nodes)
    ill = {one["name"] for one in _ask(f"{sim}/sim/nodes")["nodes"] if one["faults"]}
    again = Step.objects.filter(rescue__in=rescues, name="reboot", round__gt=1).values_list("rescue", flat=True)
    late = Occurrence.objects.filter(node__name__in=nodes).exclude(late_seconds=None)
    return {
        "faults": len(nodes),
        "rescues": len(rescues),
        "healed": sum(rescue.outcome == "healed" for rescue in rescues),
        "rebooted_twice": sorted(set(again)),
        "failed_though_healthy": [
            f"{one.pk} {one.node.name} {one.outcome}: {one.why}"
            for one in rescues
            if one.outcome not in ("", "healed") and one.node.name not in ill
        ],
        "closed_too_early": list(_closed_too_early(sim, nodes)),
        "late_reports": dict(Counter(late.values_list("witness", flat=True))),
    }


if __name__ == "__main__":
    sys.exit(main())
