"""``ping`` and ``iperf``: can this node reach its peers, and how fast."""

import json
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from agents import programs
from agents.checks.port import Args, Skipped, names, whole
from kcover.fault import Check

PACKETS = 10
AT_ONCE = 16
MAX_PEERS = 256
LOSS = re.compile(r"([0-9.]+)% packet loss")
IPERF_PORT = 5200  # Autopilot's first
GRACE = 15.0


class Ping:
    """``ping``: ten packets to each of ``hosts``; fails where a peer is unreachable or all are lost."""

    name = "ping"
    about_node = False

    def __init__(self, peers: tuple[str, ...] = ()) -> None:
        """``peers``: whom to ask where the arguments name nobody."""
        self._peers = peers

    def invasive(self, args: Args) -> bool:
        """Ten small packets."""
        return False

    def run(self, args: Args) -> list[Check]:
        """See ``HealthCheck.run``. The device is the peer, the value the loss in percent."""
        hosts = names(args, "hosts") or self._peers
        if not hosts:
            raise Skipped("nobody to ping: name them, args.hosts or the agent's setting peers")
        if len(hosts) > MAX_PEERS:
            raise ValueError(f"hosts: at most {MAX_PEERS}")
        tool = programs.find("ping", install="iputils-ping")
        found: dict[str, Check] = {}

        def some(mine: Sequence[str]) -> None:
            for host in mine:
                found[host] = self._one(tool, host)

        threads = [threading.Thread(target=some, args=(hosts[place::AT_ONCE],)) for place in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [found[host] for host in dict.fromkeys(hosts)]

    def _one(self, tool: str, host: str) -> Check:
        command = (tool, "-n", "-q", "-c", str(PACKETS), "-i", "0.2", "-W", "2", host)
        try:
            ended = programs.run(command, timeout=PACKETS * 0.2 + GRACE)
        except (OSError, programs.TookTooLong) as error:
            return Check(name=self.name, status="error", device=host, message=str(error))
        match = LOSS.search(ended.out)
        if match is None:  # no such host, no right to ping
            return Check(name=self.name, status="error", device=host, message=ended.said[-500:])
        lost = float(match[1])
        status = "fail" if lost >= 100 else "warn" if lost > 0 else "pass"
        message = f"{lost:g} % of {PACKETS} packets lost" if lost else ""
        return Check(name=self.name, status=status, device=host, value=lost, unit="%", message=message)


class Iperf:
    """``iperf``: this node's part of a measurement between nodes, by iperf3.

    ``serve``: as many one-off servers, from ``port`` on; ``hosts``: peers to send to, ``clients`` streams each, for
    ``seconds``. Both at once is one step of a ring. Whoever asks compares the numbers; there is no limit here.
    """

    name = "iperf"
    about_node = False

    def invasive(self, args: Args) -> bool:
        """It loads the network, not the GPUs; who asks for it has chosen the time."""
        return False

    def run(self, args: Args) -> list[Check]:
        """See ``HealthCheck.run``. The device is the peer (or ``server PORT``), the value in Gbit/s."""
        serve = whole(args, "serve", 0, least=0, most=64)
        hosts = names(args, "hosts")
        port = whole(args, "port", IPERF_PORT, least=1, most=65000)
        clients = whole(args, "clients", 8, least=1, most=64)
        seconds = whole(args, "seconds", 5, least=1, most=60)
        if not serve and not hosts:
            raise Skipped("nothing to do: args.serve (a number of servers) or args.hosts (peers)")
        tool = programs.find("iperf3", install="iperf3")
        with ExitStack() as stack:
            servers = [stack.enter_context(_server(tool, port + place)) for place in range(serve)]
            results = [self._send(tool, host, port=port, clients=clients, seconds=seconds) for host in hosts]
            return results + [self._served(one, port + i, seconds) for i, one in enumerate(servers)]

    def _send(self, tool: str, host: str, *, port: int, clients: int, seconds: int) -> Check:
        command = (tool, "-c", host, "-p", str(port), "-P", str(clients), "-t", str(seconds), "-J")
        try:
            ended = programs.run(command, timeout=seconds + GRACE)
            rate = throughput(ended.out)
        except (OSError, ValueError, programs.TookTooLong) as error:
            return Check(name=self.name, status="error", device=host, message=str(error)[:500])
        return Check(name=self.name, status="pass", device=host, value=rate, unit="Gbit/s")

    def _served(self, server: "subprocess.Popen[bytes]", port: int, seconds: int) -> Check:
        device = f"server {port}"
        try:
            out, _ = server.communicate(timeout=seconds + 2 * GRACE)
            rate = throughput(out.decode(errors="replace"))
        except subprocess.TimeoutExpired:
            return Check(name=self.name, status="error", device=device, message="nobody came")
        except ValueError as error:
            return Check(name=self.name, status="error", device=device, message=str(error)[:500])
        return Check(name=self.name, status="pass", device=device, value=rate, unit="Gbit/s")


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


@contextmanager
def _server(tool: str, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A one-off iperf3 server that is gone when the block is left."""
    command = (tool, "-s", "-1", "-J", "-p", str(port))
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()
