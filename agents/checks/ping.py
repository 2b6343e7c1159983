"""``ping``: tests that this node can reach its peers."""

import re
import threading
from collections.abc import Callable, Sequence

from agents.checks.health_check import Args, CheckSkipped, host_names
from agents.host import programs
from agents.uplink.protocol import UplinkError
from kcover.faults.fault import Check

PACKET_COUNT = 10
MAX_CONCURRENT = 16
MAX_PEERS = 256
LOSS_PATTERN = re.compile(r"([0-9.]+)% packet loss")
EXTRA_SECONDS = 15.0


class Ping:
    """``ping``: ten packets to each of ``hosts``. Fails if a peer is unreachable or all packets are lost."""

    name = "ping"
    failure_is_node_fault = False

    def __init__(
        self, peers: tuple[str, ...] = (), *, fetch_peers: Callable[[], tuple[str, ...]] | None = None
    ) -> None:
        """``peers``: the hosts to ping if the arguments name none. ``fetch_peers``: asks the portal if there are none
        either; None: there is no portal to ask."""
        self._peers, self._fetch_peers = peers, fetch_peers

    def invasive(self, args: Args) -> bool:
        return False

    def run(self, args: Args) -> list[Check]:
        """The device is the peer, the value the packet loss in percent."""
        hosts = host_names(args, "hosts") or self._peers or self._neighbours()
        if len(hosts) > MAX_PEERS:
            raise ValueError(f"hosts: at most {MAX_PEERS}")
        tool = programs.find("ping", install="iputils-ping")
        found: dict[str, Check] = {}

        def ping_each(share: Sequence[str]) -> None:
            for host in share:
                found[host] = self._ping_host(tool, host)

        threads = [
            threading.Thread(target=ping_each, args=(hosts[place::MAX_CONCURRENT],)) for place in range(MAX_CONCURRENT)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [found[host] for host in dict.fromkeys(hosts)]

    def _neighbours(self) -> tuple[str, ...]:
        """The neighbours that the portal names. Raises CheckSkipped if there are none."""
        if self._fetch_peers is None:
            raise CheckSkipped("no hosts to ping: set the argument hosts, or KCOVER_AGENT_PEERS")
        try:
            hosts = host_names({"hosts": ",".join(self._fetch_peers())}, "hosts")
        except UplinkError as error:
            raise CheckSkipped(f"no hosts to ping: the portal names no neighbours ({error})") from error
        if not hosts:
            raise CheckSkipped("no hosts to ping: the portal knows no other GPU node with an address here")
        return hosts

    def _ping_host(self, tool: str, host: str) -> Check:
        command = (tool, "-n", "-q", "-c", str(PACKET_COUNT), "-i", "0.2", "-W", "2", host)
        try:
            result = programs.run(command, timeout=PACKET_COUNT * 0.2 + EXTRA_SECONDS)
        except (OSError, programs.ProgramTimeout) as error:
            return Check(name=self.name, status="error", device=host, message=str(error))
        match = LOSS_PATTERN.search(result.stdout)
        if match is None:  # unknown host, or no permission to ping
            return Check(name=self.name, status="error", device=host, message=result.diagnostics[-500:])
        lost = float(match[1])
        status = "fail" if lost >= 100 else "warn" if lost > 0 else "pass"
        message = f"{lost:g} % of {PACKET_COUNT} packets lost" if lost else ""
        return Check(name=self.name, status=status, device=host, value=lost, unit="%", message=message)
