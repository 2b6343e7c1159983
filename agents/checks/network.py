"""``ping``: can this node reach its peers."""

import re
import threading
from collections.abc import Sequence

from agents import programs
from agents.checks.port import Args, Skipped, names
from kcover.fault import Check

PACKETS = 10
AT_ONCE = 16
MAX_PEERS = 256
LOSS = re.compile(r"([0-9.]+)% packet loss")
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
