"""``iperf``: how fast this node's network is to its peers, by iperf3."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from agents import programs
from agents.checks.port import Args, Skipped, names, whole
from kcover import autopilot
from kcover.fault import Check

GRACE = 15.0  # seconds on top of what a measurement lasts
AGAIN = 1.0  # seconds between two attempts to reach a server that is not there yet
REFUSED = "unable to connect"  # iperf3's words, in all its versions
MOST = 64  # processes of either kind


class Iperf:
    """This node's part of a measurement between nodes.

    ``serve``: as many servers for one client each, from ``port`` on. ``hosts``: peers to send to, one after the other:
    ``ports`` processes, each to a port of its own from ``port`` on with ``clients`` streams, for ``seconds``. ``wait``:
    seconds until the peer's servers must be there. Both at once is one step of a ring. ``idle``: only where nobody uses
    the GPUs. Whoever asks compares the numbers; there is no limit here.
    """

    name = "iperf"
    about_node = False

    def invasive(self, args: Args) -> bool:
        """It takes the network away from who computes here; only who asks knows whether that matters."""
        return str(args.get("idle", False)).lower() == "true"

    def run(self, args: Args) -> list[Check]:
        """See ``HealthCheck.run``. The device is the peer (or ``server``: all of them), the value in Gbit/s."""
        serve = whole(args, "serve", 0, least=0, most=MOST)
        hosts = names(args, "hosts")
        port = whole(args, "port", autopilot.START_PORT, least=1, most=65_000)
        ports = whole(args, "ports", 1, least=1, most=MOST)
        clients = whole(args, "clients", autopilot.CLIENTS, least=1, most=64)
        seconds = whole(args, "seconds", 5, least=1, most=60)
        wait = whole(args, "wait", 0, least=0, most=300)
        if not serve and not hosts:
            raise Skipped("nothing to do: args.serve (a number of servers) or args.hosts (peers)")
        tool = programs.find("iperf3", install="iperf3")
        until = time.monotonic() + wait
        with ExitStack() as stack:
            servers = [stack.enter_context(_server(tool, port + place)) for place in range(serve)]
            found = []
            for host in hosts:
                options = ("-P", str(clients), "-t", str(seconds), "-J")
                commands = [(tool, "-c", host, "-p", str(port + place), *options) for place in range(ports)]
                senders = [partial(_sent, command, seconds=seconds, until=until) for command in commands]
                found.append(self._together(host, senders))
            if servers:
                deadline = max(time.monotonic(), until) + seconds + 2 * GRACE
                receivers = [partial(_served, server, deadline=deadline) for server in servers]
                found.append(self._together("server", receivers))
            return found

    def _together(self, device: str, parts: Sequence[Callable[[], float]]) -> Check:
        """What processes at work at the same time carried, together; an error where one of them broke."""
        rates: list[float] = []
        errors: list[str] = []

        def work(part: Callable[[], float]) -> None:
            try:
                rates.append(part())
            except (OSError, ValueError, programs.TookTooLong) as error:
                errors.append(str(error))

        threads = [threading.Thread(target=work, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            return Check(name=self.name, status="error", device=device, message=errors[0][:500])
        return Check(name=self.name, status="pass", device=device, value=round(sum(rates), 3), unit="Gbit/s")


def throughput(text: str) -> float:
    """Gbit/s that arrived, from ``iperf3 -J``. Raises ValueError with iperf3's own words."""
    content = json.loads(text)
    if content.get("error"):
        raise ValueError(content["error"])
    try:
        bits = content["end"]["sum_received"]["bits_per_second"]
    except KeyError as error:
        raise ValueError(f"iperf3 said nothing of {error}") from error
    return round(float(bits) / 1e9, 3)


def _sent(command: Sequence[str], *, seconds: int, until: float) -> float:
    """What one client sent. Raises ValueError, OSError, programs.TookTooLong."""
    while True:
        ended = programs.run(command, timeout=seconds + GRACE)
        try:
            return throughput(ended.out)
        except ValueError as error:
            if REFUSED not in str(error) or time.monotonic() >= until:
                raise
        time.sleep(AGAIN)


def _served(server: "subprocess.Popen[bytes]", *, deadline: float) -> float:
    """What one server received. Raises ValueError."""
    try:
        out, _ = server.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise ValueError("nobody came") from error
    return throughput(out.decode(errors="replace"))


@contextmanager
def _server(tool: str, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """An iperf3 server for one client; it is gone when the block is left."""
    command = (tool, "-s", "-1", "-J", "-p", str(port))
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()
