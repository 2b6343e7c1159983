"""``iperf``: the bandwidth of the network between this node and its peers, measured with iperf3."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from agents.checks.health_check import Args, CheckSkipped, host_names, integer
from agents.host import interfaces, programs
from kcover.checks import autopilot
from kcover.faults.fault import Check

EXTRA_SECONDS = 15.0  # on top of the duration of a measurement
RETRY_SECONDS = 1.0  # between attempts to reach a server that is not up yet
CONNECTION_REFUSED = "unable to connect"  # in the message of every version of iperf3
MAX_PROCESSES = 64  # servers, and clients


class Iperf:
    """This node's part of a measurement between nodes.

    ``addresses_without``: measure nothing; tell the addresses of the interfaces that carry data, without those of the
    management plane, which are given.

    ``serve``: start this many servers, each for one client, from ``port`` on. ``hosts``: send to these peers, one after
    the other, with ``ports`` processes, each to its own port from ``port`` on, with ``clients`` streams, for
    ``seconds``. ``bind``: this node's address to serve and to send from. ``wait``: seconds to wait for the peer's
    servers. Serving and sending at once is one step of a ring.
    ``idle``: run only if no process uses the GPUs. The caller compares the numbers; there is no limit here.
    """

    name = "iperf"
    failure_is_node_fault = False

    def invasive(self, args: Args) -> bool:
        """The check takes the network from running jobs; only the caller knows whether that matters."""
        return str(args.get("idle", False)).lower() == "true"

    def __init__(self, data_addresses: Callable[..., Mapping[str, str]] = interfaces.data_addresses) -> None:
        self._data_addresses = data_addresses

    def run(self, args: Args) -> list[Check]:
        """The device is the peer (or ``server``, for all servers together), the value is in Gbit/s."""
        if "addresses_without" in args:
            return self._tell_addresses(host_names(args, "addresses_without"))
        serve = integer(args, "serve", 0, least=0, most=MAX_PROCESSES)
        hosts = host_names(args, "hosts")
        port = integer(args, "port", autopilot.IPERF_START_PORT, least=1, most=65_000)
        ports = integer(args, "ports", 1, least=1, most=MAX_PROCESSES)
        clients = integer(args, "clients", autopilot.IPERF_CLIENTS, least=1, most=64)
        seconds = integer(args, "seconds", 5, least=1, most=60)
        wait = integer(args, "wait", 0, least=0, most=300)
        if not serve and not hosts:
            raise CheckSkipped("nothing to do: set serve (a number of servers) or hosts (peers)")
        bound = ("-B", *bind) if (bind := host_names(args, "bind")[:1]) else ()
        tool = programs.find("iperf3", install="iperf3")
        until = time.monotonic() + wait
        with ExitStack() as stack:
            servers = [stack.enter_context(_server(tool, port + place, bound)) for place in range(serve)]
            found = []
            for host in hosts:
                options = ("-P", str(clients), "-t", str(seconds), "-J", *bound)
                commands = [(tool, "-c", host, "-p", str(port + place), *options) for place in range(ports)]
                senders = [partial(_send, command, seconds=seconds, until=until) for command in commands]
                found.append(self._sum_rates(host, senders))
            if servers:
                deadline = max(time.monotonic(), until) + seconds + 2 * EXTRA_SECONDS
                receivers = [partial(_receive, server, deadline=deadline) for server in servers]
                found.append(self._sum_rates("server", receivers))
            return found

    def _tell_addresses(self, without: Sequence[str]) -> list[Check]:
        """The device is the interface, the message its address. Raises CheckSkipped if there is none."""
        found = self._data_addresses(without=without)
        if not found:
            raise CheckSkipped("this node has no data interface with an IPv4 address besides that of the cluster")
        return [
            Check(name=self.name, status="pass", device=name, unit="address", message=address)
            for name, address in found.items()
        ]

    def _sum_rates(self, device: str, parts: Sequence[Callable[[], float]]) -> Check:
        """The total rate of processes that run at the same time; an error if one of them broke."""
        rates: list[float] = []
        errors: list[str] = []

        def work(part: Callable[[], float]) -> None:
            try:
                rates.append(part())
            except (OSError, ValueError, programs.ProgramTimeout) as error:
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
    """Gbit/s received, from ``iperf3 -J``. Raises ValueError with iperf3's message."""
    content = json.loads(text)
    if content.get("error"):
        raise ValueError(content["error"])
    try:
        bits = content["end"]["sum_received"]["bits_per_second"]
    except KeyError as error:
        raise ValueError(f"the output of iperf3 has no {error}") from error
    return round(float(bits) / 1e9, 3)


def _send(command: Sequence[str], *, seconds: int, until: float) -> float:
    """Gbit/s that one client sent. Raises ValueError, OSError, programs.ProgramTimeout."""
    while True:
        result = programs.run(command, timeout=seconds + EXTRA_SECONDS)
        try:
            return throughput(result.stdout)
        except ValueError as error:
            if CONNECTION_REFUSED not in str(error) or time.monotonic() >= until:
                raise
        time.sleep(RETRY_SECONDS)


def _receive(server: "subprocess.Popen[bytes]", *, deadline: float) -> float:
    """Gbit/s that one server received. Raises ValueError."""
    try:
        out, _ = server.communicate(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise ValueError("no client connected") from error
    return throughput(out.decode(errors="replace"))


@contextmanager
def _server(tool: str, port: int, bound: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """An iperf3 server for one client; killed at the end of the block."""
    command = (tool, "-s", "-1", "-J", "-p", str(port), *bound)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()
